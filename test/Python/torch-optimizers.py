# REQUIRES: torch
# RUN: %venv_torch %s
"""Every optimizer of PyTorch that has a translation, with its flags and groups; moments handed over and back; the
others are refused by name."""
import os
import sys

import torch
import torch.nn.functional as F
from torch import nn
from torch.optim import ASGD, LBFGS, SGD, Adadelta, Adafactor, Adagrad, Adam, Adamax, AdamW, Muon, NAdam, RAdam, RMSprop, Rprop, SparseAdam

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import agree, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(5)
torch.set_default_dtype(torch.float64)


def of_groups(kind, **of_first):
    """With other settings of the first parameter, which the constructor may refuse for all."""
    def made(parameters, **options):
        first, *rest = parameters
        return kind([dict(params=[first], **of_first), dict(params=rest)], **options)

    made.__name__ = f"{kind.__name__} of groups"
    return made


CASES = [
    (SGD, {}), (SGD, dict(momentum=0.9)), (SGD, dict(momentum=0.9, dampening=0.3)), (SGD, dict(momentum=0.9, nesterov=True, weight_decay=0.1)),
    (SGD, dict(dampening=0.3)), (Adam, {}), (Adam, dict(weight_decay=0.1, betas=(0.8, 0.99), eps=1e-6)), (AdamW, {}), (AdamW, dict(weight_decay=0.3)),
    (AdamW, dict(weight_decay=0.0)), (RAdam, {}), (RAdam, dict(weight_decay=0.1)), (RAdam, dict(weight_decay=0.1, decoupled_weight_decay=True)),
    (Adamax, {}), (Adamax, dict(weight_decay=0.1)), (Adagrad, {}), (Adagrad, dict(lr_decay=0.01, initial_accumulator_value=0.2, weight_decay=0.1)),
    (Adadelta, {}), (Adadelta, dict(rho=0.8, weight_decay=0.1)), (RMSprop, {}), (RMSprop, dict(centered=True)),
    (RMSprop, dict(momentum=0.9, alpha=0.9, weight_decay=0.1)), (RMSprop, dict(momentum=0.5, centered=True)),
    # By scalar regions.
    (NAdam, {}), (NAdam, dict(weight_decay=0.1, momentum_decay=0.01)), (NAdam, dict(weight_decay=0.1, decoupled_weight_decay=True, maximize=True)),
    (Adam, dict(amsgrad=True, weight_decay=0.1)), (AdamW, dict(amsgrad=True)), (AdamW, dict(maximize=True)), (SGD, dict(maximize=True)),
    (SGD, dict(maximize=True, momentum=0.9, dampening=0.3, weight_decay=0.1)), (SGD, dict(maximize=True, momentum=0.9, nesterov=True)),
    (RAdam, dict(maximize=True, weight_decay=0.1)), (RAdam, dict(maximize=True, weight_decay=0.1, decoupled_weight_decay=True)),
    (RAdam, dict(maximize=True, betas=(0.8, 0.5))), (Adamax, dict(maximize=True, weight_decay=0.1)), (Adagrad, dict(maximize=True)),
    (Adagrad, dict(maximize=True, lr_decay=0.01, initial_accumulator_value=0.2, weight_decay=0.1)), (Adadelta, dict(maximize=True, weight_decay=0.1)),
    (RMSprop, dict(maximize=True, weight_decay=0.1)), (RMSprop, dict(maximize=True, momentum=0.5, centered=True)),
    (of_groups(SGD, dampening=0.3), dict(momentum=0.9, nesterov=True, weight_decay=0.1)),
    (of_groups(SGD, momentum=0.0), dict(momentum=0.9, nesterov=True)),
]


def loss(model, x, y):
    return F.mse_loss(model(x), y)


def model():
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


batches = [(torch.randn(5, 4), torch.randn(5, 3)) for _ in range(3)]
def train(model, optimizer, first, count):
    for i in range(first, first + count):
        optimizer.zero_grad()
        loss(model, *batches[i % len(batches)]).backward()
        optimizer.step()


def close(got, wanted):
    for name, value in wanted.state_dict().items():
        torch.testing.assert_close(got[name], value, rtol=1e-10, atol=1e-12)


def handed_over(kind, options):
    """10 updates in PyTorch, 10 here, 10 in PyTorch again, against 30 in PyTorch."""
    whole, part = model(), model()
    part.load_state_dict(whole.state_dict())
    reference, optimizer = (kind(m.parameters(), lr=0.02, **options) for m in (whole, part))
    train(whole, reference, 0, 20)
    train(part, optimizer, 0, 10)
    with trainc.torch.export(part, batches[0], loss, optimizer).step(threads=1) as step:
        step.load_torch_optimizer(optimizer.state_dict())
        for i in range(10, 20):
            step(*batches[i % len(batches)])
        close(step.state_dict(as_torch=True), whole)
        part.load_state_dict(step.state_dict(as_torch=True))
        optimizer.load_state_dict(step.torch_optimizer())
    train(whole, reference, 20, 10)
    train(part, optimizer, 20, 10)
    close(part.state_dict(), whole)


for kind, options in CASES:
    if sys.argv[1:] and kind.__name__ not in sys.argv[1:]:
        continue
    handed_over(kind, options)
    # What maximizes with momentum diverges, and differences of the last bits with it.
    diverges = options.get("maximize") and options.get("momentum")
    agree(model(), batches, loss, lambda p: kind(p, lr=0.02, **options), updates=20 if diverges else 50, bar=1e-10, parameters=1e-10)
    print(kind.__name__, options, "ok", flush=True)


def grouped(parameters):
    first, second, *rest = parameters
    return AdamW([dict(params=[first], lr=0.1, weight_decay=0.0), dict(params=[second, *rest])], lr=0.01)


exported = agree(model(), batches, loss, grouped, updates=50, bar=1e-10, parameters=1e-10)
assert exported.text.count("train.optimizer") == 2


# What is loaded into AdamW decouples its decay in all groups.
for options in {}, dict(amsgrad=True):
    coupled = of_groups(AdamW, decoupled_weight_decay=False, **options)
    exported = agree(model(), batches, loss, lambda p: coupled(p, lr=0.02, weight_decay=0.3), updates=50, bar=1e-10, parameters=1e-10)
    assert options or " = adam<" in exported.text and "l2 = 0.3" in exported.text
    m = model()
    optimizer, other = (kind(m.parameters(), lr=0.02, weight_decay=0.3) for kind in (coupled, of_groups(AdamW, **options)))
    with trainc.torch.export(m, batches[0], loss, optimizer).step(threads=1) as step:
        step.load_torch_optimizer(optimizer.state_dict())
        assert [group["decoupled_weight_decay"] for group in step.torch_optimizer()["param_groups"]] == [False, True]
        with refused(trainc.MismatchError, "decoupled_weight_decay of group0 is True, expected False"):
            step.load_torch_optimizer(other.state_dict())


def accumulating(parameters):
    """PyTorch reads the constructor's value for all groups."""
    first, *rest = parameters
    return Adagrad([dict(params=[first], initial_accumulator_value=1.0), dict(params=rest)], 0.05, initial_accumulator_value=0.2)


agree(model(), batches, loss, accumulating, updates=5, bar=1e-10, parameters=1e-10)


def muon_and_adamw(m, **options):
    """Muon takes matrices alone; PyTorch computes its products in bf16, whatever the parameters are."""
    matrices = [p for p in m.parameters() if p.ndim == 2]
    return [Muon(matrices, lr=0.02, **options), AdamW([p for p in m.parameters() if p.ndim != 2], lr=0.01)]


def with_muon(**options):
    """5 updates in PyTorch, 5 here, 5 in PyTorch again, against 15 in PyTorch: within 5 % of what moved."""
    whole, part = model(), model()
    part.load_state_dict(whole.state_dict())
    start = {name: value.clone() for name, value in whole.state_dict().items()}
    references, optimizers = muon_and_adamw(whole, **options), muon_and_adamw(part, **options)

    def updates(m, those, first, count):
        for i in range(first, first + count):
            m.zero_grad()
            loss(m, *batches[i % len(batches)]).backward()
            for one in those:
                one.step()

    updates(whole, references, 0, 15)
    updates(part, optimizers, 0, 5)
    with trainc.torch.export(part, batches[0], loss, optimizers).step(threads=1) as step:
        step.load_torch_optimizer([o.state_dict() for o in optimizers])
        assert step.get("update") == 5
        for i in range(5, 10):
            step(*batches[i % len(batches)])
        part.load_state_dict(step.state_dict(as_torch=True))
        for one, state in zip(optimizers, step.torch_optimizer()):
            one.load_state_dict(state)
    updates(part, optimizers, 10, 5)
    for name, value in whole.state_dict().items():
        moved, apart = (value - start[name]).norm(), (part.state_dict()[name] - value).norm()
        assert 0 < moved and apart <= 0.05 * moved, (name, float(apart / moved))


for options in ({}, dict(nesterov=False, weight_decay=0.0), dict(adjust_lr_fn="match_rms_adamw"), dict(adjust_lr_fn="spectral_unclamped"),
                dict(ns_coefficients=(2.0, -1.5, 0.5), ns_steps=7, momentum=0.8)):
    with_muon(**options)
m = model()
try:
    trainc.torch.export(m, batches[0], loss, [AdamW(m.parameters()), Muon([m[0].weight])])
    raise AssertionError("a parameter in two optimizers is not refused")
except trainc.UnsupportedError as e:
    assert "0.weight is in two optimizers" in str(e), e

# States of another optimizer, or of parameters that were updated a different number of times.
m = model()
adam, other = AdamW(m.parameters()), AdamW(list(m.parameters())[:2])
with trainc.torch.export(m, batches[0], loss, adam).step(threads=1) as step:
    train(m, adam, 0, 2)
    states = adam.state_dict()
    states["state"][1]["step"] += 1
    missing = adam.state_dict()
    missing["state"] = {0: missing["state"][0]}
    momentum = SGD(m.parameters(), 0.1, momentum=0.9)
    train(m, momentum, 0, 1)
    for wrong, said in [(states, "2, 3 updates"), (missing, "has no m in the optimizer"), (other.state_dict(), "4 parameters"),
                        (momentum.state_dict(), "expected the state of AdamW"), ({}, "with state and param_groups"), ([], "got list"),
                        (Adamax(m.parameters()).state_dict(), "expected the state of AdamW")]:
        try:
            step.load_torch_optimizer(wrong)
            raise AssertionError(f"{said}: not refused")
        except trainc.MismatchError as e:
            assert said in str(e), e

# Parameters in no group are frozen.
exported = agree(model(), batches, loss, lambda p: SGD(list(p)[:2], 0.1), bar=1e-10, parameters=1e-10)
assert exported.frozen == ["2.weight", "2.bias"]

class Own(AdamW):
    pass


class Other(torch.optim.Optimizer):
    def __init__(self, parameters, lr):
        super().__init__(parameters, dict(lr=lr))


for kind, said in [(ASGD, "schedules of their own (use SGD with a scheduler and ema=)"), (Rprop, "signs of full-batch gradients"),
                   (LBFGS, "the loss several times for one update"), (Adafactor, "those of rows and columns"), (SparseAdam, "sparse gradients"),
                   (Own, "a subclass of AdamW"), (Other, "its formula is not known")]:
    m = model()
    with refused(trainc.UnsupportedError, f".{kind.__name__}: ", said, "expected one of Adadelta, Adagrad, Adam"):
        trainc.torch.export(m, batches[0], loss, kind(m.parameters(), lr=0.1))
m = model()
try:
    trainc.torch.export(m, batches[0], loss, SGD(model().parameters(), 0.1))
    raise AssertionError("parameters of another model are not refused")
except trainc.UnsupportedError as e:
    assert "not one of the model's" in str(e), e
