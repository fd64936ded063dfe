# REQUIRES: torch
# RUN: %venv_torch %s
"""torch.vmap as operations on whole batches: ensembles, batches in batches, derivatives for each example."""
import copy
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, stack_module_state, vmap

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402

torch.manual_seed(1)
torch.set_default_dtype(torch.float64)
x = torch.randn(6, 4)


class Ensemble(nn.Module):
    """Three models of the same structure, by one call."""

    def __init__(self):
        super().__init__()
        models = [nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)) for _ in range(3)]
        self.one = [copy.deepcopy(models[0]).to("meta")]
        self.names, stacked = zip(*stack_module_state(models)[0].items())
        self.stacked = nn.ParameterList(v.detach().clone() for v in stacked)

    def forward(self, x):
        return vmap(lambda values, x: functional_call(self.one[0], values, (x,)), in_dims=(0, None))(dict(zip(self.names, self.stacked)), x)


def network():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))


CASES = {
    "rows": (nn.Linear(4, 4), lambda m, x: vmap(lambda r: m(r).square().sum() * (r > 0).sum())(x).mean()),
    "ensemble": (Ensemble(), lambda m, x: (m(x).sin() * torch.arange(3.0)).sum()),
    "in batches": (nn.Linear(4, 4), lambda m, x: vmap(lambda a: vmap(lambda b: (m(a) * b).sum().tanh())(x))(x).mean()),
    "dimensions": (nn.Linear(4, 4), lambda m, x: (vmap(lambda r: (m(r).sin(), r.cumsum(0)), 1, (1, 0))(x[:4])[0] * torch.arange(4.0)).sum()),
    "trees": (nn.Linear(4, 4), lambda m, x: vmap(lambda r, k: {"a": [m(r) * k, r]}, (0, None))(x, 2.0)["a"][0].mean()),
    "attention": (nn.Linear(4, 4), lambda m, x: vmap(lambda r: F.scaled_dot_product_attention(r[:, None] * m.weight, m.weight, m.weight))(x).square().mean()),
    "products": (nn.Linear(4, 4), lambda m, x: vmap(lambda r: torch.dot(r, m(r)))(x).mean()),
    # Second derivatives, as equations of physics have them.
    "slopes": (network(), lambda m, x: vmap(grad(lambda r: m(r).sum().sin()))(x).square().mean()),
    "Laplacian": (network(), lambda m, x: vmap(lambda r: jacfwd(grad(lambda z: m(z).sum()))(r).trace())(x).square().mean()),
    "curvature": (network(), lambda m, x: vmap(hessian(lambda z: m(z).sum()))(x).square().mean()),
    "gradients of examples": (network(), lambda m, x: vmap(grad(lambda p, r: functional_call(m, p, (r,)).sum().sin()), (None, 0))(
        dict(m.named_parameters()), x)["0.weight"].square().mean())}
own = torch.vmap.__globals__["vmap_impl"]
for name, (model, loss) in CASES.items():
    agree(model, (x,), loss)
    assert torch.vmap.__globals__["vmap_impl"] is own
    print(f"{name}: ok", flush=True)

model = nn.Linear(4, 4)


def drawn(m, x):
    return m(x).mean(), {"kept": vmap(lambda r: F.dropout(torch.ones(4000), 0.25), randomness="different")(x)}


with trainc.torch.export(model, (x,), drawn, torch.optim.SGD(model.parameters(), 0.1)).step() as step:
    kept = torch.as_tensor(step(x).outputs["kept"]) > 0
assert bool(((kept.double().mean(1) - 0.75).abs() < 0.04).all()) and not kept[0].equal(kept[1])
print("drawn: ok")
