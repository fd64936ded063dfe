# REQUIRES: torch
# RUN: %venv_torch %s
"""What a step does to gradients and parameters beside its optimizer: loss scales, by the rule of GradScaler and static; moving averages."""
import copy
import math
import os
import sys
import warnings

import torch
import torch.nn.functional as F
from torch.amp import GradScaler
from torch.optim import SGD, AdamW
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from against_torch import mlp, trainc  # noqa: E402
from tiny import refused  # noqa: E402

torch.manual_seed(6)
batches = [(torch.randn(4, 6, dtype=torch.float64), torch.randint(0, 3, (4,))) for _ in range(12)]
BROKEN = [(torch.full((4, 6), math.inf, dtype=torch.float64), batches[0][1])]  # its gradients are NaN
# With the scales growing and backing off, also twice in a row.
SOME = batches[:4] + BROKEN + batches[4:8] + BROKEN * 2 + batches[8:]


def loss(m, x, y):
    return F.cross_entropy(m(x), y)


def export(m, optimizer, **options):
    return trainc.torch.export(m, batches[0], loss, optimizer, **options)


def scaled(m, optimizer, scaler, some):
    """PyTorch's loop: the scale of each update."""
    scales = []
    for batch in some:
        optimizer.zero_grad()
        scales.append(scaler.get_scale())
        scaler.scale(loss(m, *batch)).backward()
        scaler.step(optimizer)
        scaler.update()
    return scales


def equal(step, m):
    for name, value in step.state_dict(as_torch=True).items():
        torch.testing.assert_close(value, m.state_dict()[name], rtol=1e-10, atol=1e-12)


def rule_of_grad_scaler():
    for options in {}, dict(init_scale=8.0, growth_factor=4.0, backoff_factor=0.25, growth_interval=3), dict(init_scale=0.5, growth_interval=2):
        m = mlp().double()
        theirs = copy.deepcopy(m)
        scaler = GradScaler("cpu", **options)
        with export(m, AdamW(m.parameters(), 1e-2), scaler=scaler).step(threads=1) as step:
            scales = scaled(theirs, AdamW(theirs.parameters(), 1e-2), scaler, SOME)
            for batch, scale in zip(SOME, scales):
                assert step.get("loss_scale") == scale, (step.get("loss_scale"), scale)
                result = step(*batch)
                assert result.updated == result.finite == (batch is not BROKEN[0])
            assert step.get("loss_scale") == scaler.get_scale() and result.skipped == 3
            equal(step, theirs)


def static_scales():
    m = mlp().double()
    assert " loss_scale(1024.0)" in export(m, SGD(m.parameters(), 0.1), scaler=1024).text
    for none in None, GradScaler("cpu", enabled=False):
        assert "loss_scale" not in export(m, SGD(m.parameters(), 0.1), scaler=none).text
    for wrong in 0, -1.0, math.inf, math.nan, True, "dynamic", AdamW(m.parameters()):
        with refused(trainc.UnsupportedError, f"scaler is {wrong!r}: expected a torch.amp.GradScaler or a number above 0"):
            export(m, SGD(m.parameters(), 0.1), scaler=wrong)
    with refused(trainc.UnsupportedError, "precision='f16' of 0.weight, which is float64"):
        export(m, SGD(m.parameters(), 0.1), precision="f16")


def one_clip():
    m = mlp().double()
    with refused(trainc.UnsupportedError, "clip_grad_norm and clip_grad_value together: expected one of them, as a step has one clip"):
        export(m, SGD(m.parameters(), 0.1), clip_grad_norm=1.0, clip_grad_value=1.0)


def scales_of_several_steps():
    """Each has its own."""
    m = torch.nn.ModuleDict(dict(a=mlp(), b=mlp())).double()
    trains = {name: trainc.torch.Trains(batches[0], lambda m, x, y, name=name: loss(m[name], x, y), SGD(m[name].parameters(), 0.1), scaler=scaler)
              for name, scaler in (("a", GradScaler("cpu", init_scale=4.0, growth_factor=4.0, growth_interval=1)),
                                    ("b", GradScaler("cpu", init_scale=16.0, growth_interval=1)))}
    with trainc.torch.export(m, trains=trains).step(threads=1) as step:
        for name in "a", "b":
            step.train(name, *batches[0])
        assert [step.get("a.loss_scale"), step.get("b.loss_scale")] == [16.0, 32.0]
        assert [step.torch_scaler()[name]["growth_factor"] for name in ("a", "b")] == [4.0, 2.0]


def half_precision():
    """Gradients that are too small for f16 are there with a scale, and are said to be lost without."""
    m = mlp()
    x, y = batches[0][0].float(), batches[0][1]
    norms, said = {}, {}
    for precision, scaler in (None, None), ("f16", None), ("f16", GradScaler("cpu", init_scale=2.0**20)):
        exported = trainc.torch.export(m, (x, y), lambda m, x, y: loss(m, x, y) * 1e-9, SGD(m.parameters(), 0.1), precision=precision, scaler=scaler)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with exported.step(threads=1) as step:
                norms[precision, bool(scaler)] = step(x, y).grad_norm
        said[precision, bool(scaler)] = [str(w.message) for w in caught]
    whole = norms[None, False]
    assert norms["f16", False] < whole / 2 and abs(norms["f16", True] / whole - 1) < 1e-2, norms
    assert not said[None, False] and not said["f16", True], said
    assert len(said["f16", False]) == 1 and 'expected scaler=torch.amp.GradScaler("cpu") or a number' in said["f16", False][0], said


def averages():
    """AveragedModel begins with the parameters that its first update_parameters() sees: here those before training."""
    m = torch.nn.Sequential(torch.nn.BatchNorm1d(6), *mlp()).double()
    m[0].bias.requires_grad_(False)
    theirs = copy.deepcopy(m)
    averaged = AveragedModel(theirs, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(theirs)
    for make in (lambda p: AdamW(p, 1e-2), lambda p: SGD(p, 0.1, maximize=True)):  # a named optimizer and a region
        optimizer = make([p for p in theirs.parameters() if p.requires_grad])
        exported = export(m, make([p for p in m.parameters() if p.requires_grad]), ema=0.9, evals={"now": lambda m, x, y: m(x)},
                          ema_evals={"averaged": lambda m, x, y: m(x)})
        with exported.step(threads=1) as step:
            step.load_state_dict(theirs.state_dict())
            for name, p in averaged.module.named_parameters():
                if p.requires_grad:
                    step.write(name, p, "ema")
            for batch in batches:
                optimizer.zero_grad()
                loss(theirs, *batch).backward()
                optimizer.step()
                averaged.update_parameters(theirs)
                step(*batch)
            got = step.state_dict(as_torch=True, ema=True)
            assert step.optimizer_states() and not got["0.weight"].equal(step.state_dict(as_torch=True)["0.weight"])
            for name, value in got.items():
                torch.testing.assert_close(value, averaged.module.state_dict()[name], rtol=1e-10, atol=1e-12)
            for name, reference in ("now", theirs), ("averaged", averaged):
                torch.testing.assert_close(step.eval(name, *batches[0])[name], reference.eval()(batches[0][0]), rtol=1e-10, atol=1e-12)
                reference.train()
            # An optimizer's state is without averages.
            step.load_torch_optimizer(optimizer.state_dict())
            torch.testing.assert_close(step.torch_optimizer()["state"], optimizer.state_dict()["state"], rtol=1e-10, atol=1e-12)
            assert step.read("0.weight", "ema").tolist() == got["0.weight"].tolist()


def averages_that_are_not_there():
    m = mlp().double()
    optimizer = SGD(m.parameters(), 0.1)
    for wrong in -0.1, 1.5, math.nan, "0.9", True:
        with refused(trainc.UnsupportedError, f"ema is {wrong!r}: expected a decay between 0 and 1"):
            export(m, optimizer, ema=wrong)
    evals = {"logits": lambda m, x, y: m(x)}
    with refused(trainc.UnsupportedError, "ema_evals without ema"):
        export(m, optimizer, ema_evals=evals)
    with refused(trainc.UnsupportedError, "evals and ema_evals both have logits"):
        export(m, optimizer, ema=0.9, evals=evals, ema_evals=evals)
    with export(m, optimizer).step(threads=1) as step, refused(trainc.NotFoundError, "no moving averages"):
        step.state_dict(ema=True)
    # Of several steps the one that has an average: those that others train are as they are.
    m = torch.nn.ModuleDict(dict(a=mlp(), b=mlp())).double()
    trains = {name: trainc.torch.Trains(batches[0], lambda m, x, y, name=name: loss(m[name], x, y), SGD(m[name].parameters(), 0.1), ema=ema)
              for name, ema in (("a", 0.5), ("b", None))}
    both = {"both": (lambda m, x: (m["a"](x), m["b"](x)), batches[0][:1])}
    with trainc.torch.export(m, trains=trains, ema_evals=both).step(threads=1) as step:
        for name in "a", "b":
            step.train(name, *batches[0])
        now, averaged = step.state_dict(as_torch=True), step.state_dict(as_torch=True, ema=True)
        assert {name[0] for name in now if not now[name].equal(averaged[name])} == {"a"}
        m.load_state_dict(averaged)
        for got, wanted in zip(step.eval("both", batches[0][0]).values(), (m["a"], m["b"])):
            torch.testing.assert_close(got, wanted(batches[0][0]), rtol=1e-10, atol=1e-12)


for test in (rule_of_grad_scaler, static_scales, one_clip, scales_of_several_steps, half_precision, averages, averages_that_are_not_there):
    if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
        test()
        print(f"{test.__name__}: ok", flush=True)
