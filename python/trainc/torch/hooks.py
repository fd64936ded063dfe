"""What PyTorch calls between a forward and an update, and a compiled step would not."""
from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import nn
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from ..errors import UnsupportedError


def refuse_hooks(model: nn.Module, used: Iterable[torch.optim.Optimizer]) -> None:
    """Refuses hooks of gradients and of updates, all of them by name. (Those of forwards are captured.)"""
    found = []
    for name, p in model.named_parameters():
        if p.requires_grad:
            found += [f"Tensor.register_hook of {name}"] * bool(p._backward_hooks)
            found += [f"Tensor.register_post_accumulate_grad_hook of {name}"] * bool(p._post_accumulate_grad_hooks)
    for name, m in model.named_modules():
        of = f" of {name}" if name else f" of {type(m).__name__}"
        found += [f"Module.register_full_backward_hook{of}"] * bool(m._backward_hooks)
        found += [f"Module.register_full_backward_pre_hook{of}"] * bool(m._backward_pre_hooks)
    found += ["torch.nn.modules.module.register_module_full_backward_hook"] * bool(modules._global_backward_hooks)
    found += ["torch.nn.modules.module.register_module_full_backward_pre_hook"] * bool(modules._global_backward_pre_hooks)
    for o in used:
        found += [f"register_step_pre_hook of {type(o).__name__}"] * bool(o._optimizer_step_pre_hooks)
        found += [f"register_step_post_hook of {type(o).__name__}"] * bool(o._optimizer_step_post_hooks)
    found += ["torch.optim.optimizer.register_optimizer_step_pre_hook"] * bool(optimizers._global_optimizer_pre_hooks)
    found += ["torch.optim.optimizer.register_optimizer_step_post_hook"] * bool(optimizers._global_optimizer_post_hooks)
    if found:
        raise UnsupportedError(f"hooks that a step does not call: {'; '.join(found)}. Compute it in the forward, clip by clip_grad_norm= or "
                               "clip_grad_value=, or remove the hook")
