# REQUIRES: numpy, torch
# RUN: %venv_torch %s
"""Random numbers of a PyTorch model: each draw is the one that nn.random or nn.dropout defines, other ones in each step."""
import os
import sys

import numpy as np
import torch
from torch import nn

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "Inputs"), os.path.join(HERE, *[os.pardir] * 2, "bench")]
from against_torch import trainc  # noqa: E402
from oracle import philox  # noqa: E402

torch.set_default_dtype(torch.float64)
SHAPE, SEED = (50, 40), 7


class Draws(nn.Module):
    """Every way to draw, in the order of SITES."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(SHAPE))

    def forward(self, p):
        new, w, ones = torch.empty(SHAPE), self.w, torch.ones(SHAPE)
        drawn = {
            "randn": torch.randn(SHAPE), "randn_like": torch.randn_like(w), "normal_": new.clone().normal_(2.0, 0.5),
            "normal": torch.normal(torch.zeros(SHAPE), 2.0), "normal_2": torch.normal(3.0, torch.ones(SHAPE)),
            "normal_3": torch.normal(torch.ones(SHAPE), torch.ones(SHAPE)), "normal_4": torch.normal(1.0, 2.0, SHAPE),
            "rand": torch.rand(SHAPE), "rand_like": torch.rand_like(w), "uniform_": new.clone().uniform_(-1, 2),
            "float32": torch.rand(SHAPE, dtype=torch.float32), "exponential_": new.clone().exponential_(2.0),
            "bernoulli_": new.clone().bernoulli_(0.25), "bernoulli_2": new.clone().bernoulli_(1e-05), "bernoulli": torch.bernoulli(p),
            "randint": torch.randint(3, 70, SHAPE), "randint_2": torch.randint(9, SHAPE), "randint_like": torch.randint_like(w, -3, 4),
            "randint_like_2": torch.randint_like(w, 5), "dropout": nn.functional.dropout(ones, 0.25), "native_dropout": torch.native_dropout(ones, 0.25, True)[0],
        }
        changed = ones.clone()
        seen = changed.view(-1)
        nn.functional.dropout(changed, 0.25, inplace=True)
        drawn["dropout_"] = seen.view(SHAPE)  # what saw it before is changed, too
        channels = nn.functional.dropout2d(ones.view(10, 5, 10, 4), 0.5)
        return (w * drawn["randn"]).sum(), drawn, {"channels": channels}


def expected(p):
    """Of each a function of its place (seed, site, updates done or skipped, micro-step)."""
    def normal(*at):
        return philox.normal(SHAPE, 32, *at)

    def uniform(*at):
        return philox.uniform(SHAPE, 32, *at)

    def dropped(*at):
        return philox.dropout(SHAPE, 0.25, *at)

    return {
        "randn": normal, "randn_like": normal, "normal_": lambda *at: 2 + 0.5 * normal(*at), "normal": lambda *at: 2 * normal(*at),
        "normal_2": lambda *at: 3 + normal(*at), "normal_3": lambda *at: 1 + normal(*at), "normal_4": lambda *at: 1 + 2 * normal(*at),
        "rand": uniform, "rand_like": uniform, "uniform_": lambda *at: 3 * uniform(*at) - 1,
        "float32": lambda *at: philox.uniform(SHAPE, 24, *at), "exponential_": lambda *at: -np.log(1 - uniform(*at)) / 2,
        "bernoulli_": lambda *at: philox.bernoulli(SHAPE, 0.25, *at), "bernoulli_2": lambda *at: philox.bernoulli(SHAPE, 1e-05, *at),
        "bernoulli": lambda *at: uniform(*at) < p.numpy(),
        "randint": lambda *at: 3 + np.floor(67 * uniform(*at)), "randint_2": lambda *at: np.floor(9 * uniform(*at)),
        "randint_like": lambda *at: np.floor(7 * uniform(*at)) - 3, "randint_like_2": lambda *at: np.floor(5 * uniform(*at)),
        "dropout": dropped, "native_dropout": dropped, "dropout_": dropped,
        "channels": lambda *at: np.broadcast_to(2 * philox.bernoulli((10, 5, 1, 1), 0.5, *at), (10, 5, 10, 4)),
    }


model, p = Draws(), torch.rand(SHAPE)
exported = trainc.torch.export(model, (p,), lambda m, p: m(p), torch.optim.SGD(model.parameters(), 1.0), accumulate=2)
with exported.step(threads=2, seed=SEED) as step:
    for i in range(4):
        outputs = step(p).outputs
        assert len(outputs) == len(expected(p))
        for site, (name, draw) in enumerate(expected(p).items()):
            want = draw(SEED, site, i // 2, i % 2)
            np.testing.assert_allclose(outputs[name].numpy(), want, rtol=1e-12, atol=1e-12, err_msg=f"{name}, call {i}")
    # The gradient of @w in a window is the mean of its draws.
    moved = sum(philox.normal(SHAPE, 32, SEED, 0, update, micro) for update in range(2) for micro in range(2)) / 2
    np.testing.assert_allclose(step.state_dict()["w"], 1 - moved, rtol=1e-12, atol=1e-12)
print(f"{len(expected(p))} ways to draw, ok")
