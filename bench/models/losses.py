"""Losses that several entries share."""

import torch
import torch.nn.functional as F


def classification(model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Cross entropy of model(x) [N, C] and classes y [N]."""
    return F.cross_entropy(model(x), y)


def language_model(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Cross entropy of model(tokens)[:, :-1] [N, T - 1, V] and the tokens that follow; tokens [N, T]."""
    logits = model(tokens[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
