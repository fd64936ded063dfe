# REQUIRES: numpy, torch
# RUN: %venv_torch %s
"""What calls count is found wherever a program keeps it."""
import argparse
import collections
import functools
import operator
import os
import sys
import types

import numpy as np
import torch
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, mlp  # noqa: E402
from tiny import refused, trainc  # noqa: E402

torch.manual_seed(2)
torch.set_default_dtype(torch.float64)
x, y = torch.randn(4, 6), torch.tensor([0, 2, 1, 1])


def ce(m, x, y):
    return F.cross_entropy(m(x), y)


def export(loss):
    m = mlp()
    return trainc.torch.export(m, (x, y), loss, torch.optim.SGD(m.parameters(), 0.1))


def places():
    """In default and bound arguments, namespaces, modules, classes, what other methods read, numbers of NumPy, long lists."""
    config = types.ModuleType("config_of_a_program")
    sys.modules[config.__name__] = config
    config.step = 0
    cache = functools.lru_cache(lambda m: setattr(config, "step", config.step + 1) or config.step)

    def default(m, x, y, state={"n": 0}, *, more=[0]):
        state["n"] += 1
        more[0] += 1
        return state["n"] + more[0]

    def bound(m, x, y, state):
        state["n"] += 1
        return state["n"]

    def listed(m, x, y, state):
        before, state[0] = state[0], m(x).detach().mean()
        return before

    def attribute(m, x, y):
        attribute.calls += 1
        return attribute.calls

    def of_module(m, x, y):
        config.step += 1
        return config.step

    def cached(m, x, y):
        return cache(object())

    def kept_in(state, get, put):
        def scale(m, x, y):
            put(state, get(state) + 1)
            return get(state)

        return scale

    class Counts:
        step = 0

        @property
        def next(self):
            Counts.step += 1
            return Counts.step

        def scale(self, m, x, y):
            return self.next

    class Numbers:
        def __init__(self, value):
            self.value = value

        def scale(self, m, x, y):
            self.value = self.value * 2
            return float(self.value)

    attribute.calls = 0
    history = [1.0] * 1500
    named = operator.attrgetter("n"), lambda state, n: setattr(state, "n", n)
    entry = operator.itemgetter("n"), lambda state, n: operator.setitem(state, "n", n)
    for scale, said in [(default, "state of default()"), (functools.partial(bound, state={"n": 0}), "state of partial(bound)"),
                        (functools.partial(listed, state=[torch.zeros(())]), "state of partial(listed)"),
                        (kept_in(types.SimpleNamespace(n=0), *named), "n of SimpleNamespace"),
                        (kept_in(argparse.Namespace(n=0), *named), "n of Namespace"),
                        (kept_in(collections.UserDict(n=0), *entry), "data of UserDict"), (of_module, "step of config_of_a_program"),
                        (attribute, "calls of attribute()"), (Counts().scale, "step of Counts"), (cached, "step of config_of_a_program"),
                        (Numbers(np.int64(1)).scale, "value of Numbers"), (Numbers(np.float32(1)).scale, "value of Numbers"),
                        (lambda m, x, y: history.append(len(history)) or sum(history[-2:]), "history of ")]:
        with refused(trainc.UnsupportedError, said, "changes in each call", "register_buffer"):
            export(loss=lambda m, x, y: ce(m, x, y) * scale(m, x, y))

    def logged(m, x, y, table={"n": 0}):
        table["n"] += 1
        config.step += 1
        Counts.step += 1
        history.append(0.0)
        return ce(m, x, y)

    agree(mlp(), [(x, y)], logged, lambda p: torch.optim.SGD(p, 0.1), updates=6, bar=1e-9, parameters=1e-9)


places()
print("places: ok")
