# REQUIRES: torch
# RUN: %venv_torch %s
"""What torch.utils.checkpoint runs is computed again here, too."""
import os
import sys
import warnings

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree  # noqa: E402

torch.manual_seed(3)
torch.set_default_dtype(torch.float64)


class Blocks(nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4)) for _ in range(3))
        self.scale, self.reentrant = nn.Parameter(torch.randn(4)), reentrant

    def both(self, x, block):
        y = block(x)
        return y * self.scale, y.square().mean()

    def forward(self, x):
        total = 0
        for i, block in enumerate(self.blocks):
            if i == 1:  # one that is kept
                y, size = self.both(x, block)
            else:
                y, size = checkpoint(self.both, x, block, use_reentrant=self.reentrant)
            x, total = x + y, total + size
        return x.square().mean() + total


def checkpointed():
    exported = agree(Blocks(False), (torch.randn(5, 4),))
    assert exported.text.count("train.recompute") == 2, exported.text
    inside = [line for line in exported.text.splitlines() if line.startswith("    ")]
    assert sum("nn.matmul" in line or "nn.linear" in line for line in inside) == 4 and not any("train.read" in line for line in inside), inside


def with_reentrant():
    """use_reentrant=True, which is the default: with the gradients of False where an argument requires one, else with none."""
    for reentrant in None, True:
        for requires, frozen in (True, []), (False, [f"blocks.0.{layer}.{kind}" for layer in (0, 2) for kind in ("weight", "bias")]):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                exported = agree(Blocks(reentrant), (torch.randn(5, 4, requires_grad=requires),))
            assert exported.text.count("train.recompute") == 2 and exported.frozen == frozen, exported.text
            ours = [str(w.message) for w in said if "gets none, as in PyTorch" in str(w.message)]
            assert bool(ours) == bool(frozen) and all("torch-checkpoint.py:" in text for text in ours), ours
    model = LlamaForCausalLM(LlamaConfig(vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2,
                                         use_cache=False))
    model.gradient_checkpointing_enable({"use_reentrant": True})
    ids = torch.randint(0, 16, (2, 6))
    assert "train.recompute" in agree(model, (ids,), lambda m, ids: m(ids, labels=ids).loss, bar=2e-6, parameters=1e-3).text


for test in (checkpointed, with_reentrant):
    if sys.argv[1:] and test.__name__ not in sys.argv[1:]:
        continue
    test()
    print(f"{test.__name__}: ok", flush=True)
