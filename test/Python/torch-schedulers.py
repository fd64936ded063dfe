# REQUIRES: numpy, torch
# RUN: %venv_torch %s
"""Every scheduler of PyTorch that has a translation, and those of transformers, which are functions of the count; the others are refused."""
import itertools
import math
import os
import random
import sys
from math import cos

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from torch import nn
from torch.optim import SGD, lr_scheduler

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import trainc  # noqa: E402

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)


def model():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def loss(model, x, y):
    return F.mse_loss(model(x), y)


batches = [(torch.randn(5, 4), torch.randn(5, 3)) for _ in range(3)]


class Warmup:
    def __init__(self, updates):
        self.updates = updates

    def __call__(self, t):
        return float(t + 1) / self.updates if t < self.updates else 1.0


def wave(t):
    return 0.5 * (1 + cos(math.pi * int(t) / 7))


def waves(t, least=0.01):
    return least if t == 4 else least + abs(wave(t)) * np.exp(-t / 20)


def numbers(t):
    whole = round(t / 3) + t // 4 + (7 - t) % 3 + math.floor(t / 5) + math.ceil(-t / 6) + np.clip(t, 3, 9)
    whole += (2 if 3 <= t <= 5 else 0) + (1 if t else 0)
    whole += math.log(t + 2, 10) + math.log10(t + 3) + np.log2(t + 4) + math.log1p(t) + math.hypot(t, 3) + math.tan(t / 100) + np.exp2(-t) + math.expm1(-t)
    return (whole + math.sqrt(t) + math.log(t + 1) + math.pow(t, 0.5) + math.tanh(t) + math.sin(t) + pow(2, -t) + math.fabs(2.5 - t)) / 50


SCHEDULERS = [
    lambda o: lr_scheduler.ConstantLR(o, 0.5, 4), lambda o: lr_scheduler.LinearLR(o, 0.1, 0.9, 7), lambda o: lr_scheduler.ExponentialLR(o, 0.9),
    lambda o: lr_scheduler.StepLR(o, 5, 0.5), lambda o: lr_scheduler.MultiStepLR(o, [3, 3, 8], 0.5), lambda o: lr_scheduler.PolynomialLR(o, 12, 1.7),
    lambda o: lr_scheduler.LinearLR(o, 0.1, 0.9, 0), lambda o: lr_scheduler.PolynomialLR(o, 0, 2.0), lambda o: lr_scheduler.ConstantLR(o, 0.5, 0),
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o, 0.5, 0), lr_scheduler.ConstantLR(o, 0.5, 0)], [5]),
    lambda o: lr_scheduler.CosineAnnealingLR(o, 9, 1e-3), lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 4),
    lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 3, 2, 1e-3),
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 5), lr_scheduler.CosineAnnealingLR(o, 15)], [5]),
    lambda o: lr_scheduler.OneCycleLR(o, [0.3, 0.1], 20, cycle_momentum=False),
    lambda o: lr_scheduler.OneCycleLR(o, 0.2, 20, 0.43, anneal_strategy="linear", cycle_momentum=False, three_phase=True),
    lambda o: lr_scheduler.LambdaLR(o, [lambda t: 0.9 ** t, lambda t: min((t + 1) ** -0.5, (t + 1) * 8 ** -1.5)]),
    lambda o: lr_scheduler.LambdaLR(o, [waves, Warmup(7)]), lambda o: lr_scheduler.LambdaLR(o, numbers),
    lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.1 ** t),
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LambdaLR(o, Warmup(5)), lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t))], [5]),
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.LinearLR(o, 0.1, 1.0, 4), lr_scheduler.LambdaLR(o, lambda t: (t + 1) ** -0.5)], [4]),
    lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.ConstantLR(o, 0.5, 9), lr_scheduler.LambdaLR(o, lambda t: 1 / (1 + t))], [6]),
    lambda o: lr_scheduler.SequentialLR(
        o, [lr_scheduler.StepLR(o, 2), *(lr_scheduler.LambdaLR(o, f) for f in (lambda t: 0.5, lambda t: max(1, t) ** -0.5))], [3, 7]),
    lambda o: transformers.get_constant_schedule_with_warmup(o, 5), lambda o: transformers.get_linear_schedule_with_warmup(o, 5, 15),
    lambda o: transformers.get_cosine_schedule_with_warmup(o, 5, 18), lambda o: transformers.get_inverse_sqrt_schedule(o, 5),
    lambda o: transformers.get_cosine_with_hard_restarts_schedule_with_warmup(o, 3, 18, 3),
    lambda o: transformers.get_cosine_with_min_lr_schedule_with_warmup(o, 5, 18, min_lr=1e-3),
    lambda o: transformers.get_polynomial_decay_schedule_with_warmup(o, 5, 15, 1e-3, 1.5),
    lambda o: transformers.get_wsd_schedule(o, 4, 6, num_stable_steps=5, warmup_type="1-sqrt", decay_type="cosine")]


def same_state(got, wanted):
    assert got.keys() == wanted.keys(), (got, wanted)
    for key, value in wanted.items():
        if key == "_schedulers":
            for one, their in zip(got[key], value, strict=True):
                same_state(one, their)
        elif key != "lr_lambdas":
            assert got[key] == value or np.allclose(got[key], value, rtol=1e-10, atol=1e-14), (key, got[key], value)


def scheduled(make):
    """20 updates of two groups."""
    theirs, ours = model(), model()
    ours.load_state_dict(theirs.state_dict())
    reference, optimizer = (SGD([dict(params=list(m.parameters())[:1], lr=0.3), dict(params=list(m.parameters())[1:])], lr=0.05)
                            for m in (theirs, ours))
    steps = make(reference)
    with trainc.torch.export(ours, batches[0], loss, optimizer, scheduler=make(optimizer)).step(threads=1) as step:
        for i in range(20):
            rates = [group["lr"] for group in reference.param_groups]
            reference.zero_grad()
            loss(theirs, *batches[i % len(batches)]).backward()
            reference.step()
            torch.testing.assert_close(torch.tensor([step.get(f"group{k}.lr") for k in range(2)]), torch.tensor(rates), rtol=1e-10, atol=1e-14)
            step(*batches[i % len(batches)])
            torch.testing.assert_close(torch.tensor([step.get(f"group{k}.schedule") for k in range(2)]), torch.tensor(rates), rtol=1e-10, atol=1e-14)
            steps.step()
        same_state(step.torch_scheduler(), steps.state_dict())
        step.load_torch_optimizer(step.torch_optimizer(), scheduler=steps.state_dict())
        for name, value in theirs.state_dict().items():
            torch.testing.assert_close(step.state_dict(as_torch=True)[name], value, rtol=1e-10, atol=1e-12)


for make in SCHEDULERS:
    scheduled(make)

def rebased(optimizer):
    scheduler = lr_scheduler.StepLR(optimizer, 5)
    scheduler.base_lrs = [0.2]
    return scheduler


def nested(optimizer):
    inner = lr_scheduler.SequentialLR(optimizer, [lr_scheduler.ConstantLR(optimizer, 1.0, 3), lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 6)], [4])
    return lr_scheduler.SequentialLR(optimizer, [inner, lr_scheduler.ExponentialLR(optimizer, 0.9)], [9])


count = itertools.count()
for make, words in [
        (lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.9), ("MultiplicativeLR", "any other stays in Python",
                                                                  "leave scheduler= out, and before each update step.set")),
        (lambda o: lr_scheduler.ChainedScheduler([lr_scheduler.StepLR(o, 2)]), ("ChainedScheduler", "leave scheduler= out")),
        (lambda o: lr_scheduler.CyclicLR(o, 0.1, 0.2), ("CyclicLR", "leave scheduler= out")),
        (lambda o: lr_scheduler.ReduceLROnPlateau(o), ("ReduceLROnPlateau", "leave scheduler= out")),
        (lambda o: lr_scheduler.LambdaLR(o, lambda t: [1.0, 0.5][min(t, 1)]), ("LambdaLR", "needs the count as a number", "step.set")),
        (lambda o: lr_scheduler.LambdaLR(o, lambda t: 1.0 / (1 + next(count))), ("LambdaLR", "after 0 updates", "step.set")),
        (lambda o: lr_scheduler.LambdaLR(o, lambda t: random.random()), ("LambdaLR", "after 0 updates", "step.set")),
        (lambda o: lr_scheduler.LambdaLR(o, lambda t: sum(0.1 for k in range(90) if t > k)), ("LambdaLR", "64 ways", "step.set")),
        (lambda o: lr_scheduler.SequentialLR(o, [lr_scheduler.OneCycleLR(o, 0.1, 20), lr_scheduler.StepLR(o, 2)], [9]),
         ("OneCycleLR", "cycle_momentum=False")),
        (nested, ("SequentialLR: one of its schedulers is a SequentialLR, too", "expected one SequentialLR of all", "step.set")),
        (rebased, ("StepLR", "begins with 0.2", "0.1"))]:
    m = model()
    optimizer = SGD(m.parameters(), 0.1, momentum=0.5)
    try:
        trainc.torch.export(m, batches[0], loss, optimizer, scheduler=make(optimizer))
        raise AssertionError(f"{words[0]} is not refused")
    except trainc.UnsupportedError as e:
        assert all(word in str(e) for word in words), e
