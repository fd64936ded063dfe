# REQUIRES: torch
# RUN: %venv_torch %s
"""Looking at the operations of a step: which one writes the first NaN, on which line of the model, and how long each takes."""
import json
import os
import sys
import tempfile

import torch
from torch import nn

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import refused, trainc  # noqa: E402

import trainc.torch  # noqa: E402

torch.manual_seed(4)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 5)
        nn.init.eye_(self.first.weight)
        nn.init.zeros_(self.first.bias)

    def forward(self, x):
        x = self.first(x)
        x = torch.log(x)
        return self.last(x).square().mean()


def line_of(text):
    """Where the line of this file that has it begins."""
    with open(__file__, encoding="utf-8") as file:
        return f"at torch-observed.py:{next(i for i, line in enumerate(file, 1) if text in line)}:"


def exported(precision=None, **options):
    m = Model()
    return trainc.torch.export(m, (torch.rand(4, 6),), optimizer=torch.optim.SGD(m.parameters(), 0.0), precision=precision,
                               evals={"log": lambda m, x: m.first(x).log()}, **options)


def finite():
    """The first operation that writes a NaN or an infinity is named, with its line; what was called is done then, as it is without."""
    x = torch.rand(4, 6) + 2
    nan, negative, zero = (x.clone() for _ in range(3))
    nan[2, 3], negative[1], zero[0, 0] = torch.nan, -5.0, 0.0
    product, log, wrong = line_of("self.first(x)\n"), line_of("torch.log(x)\n"), trainc.NotFiniteError
    for precision in None, "bf16":
        with exported(precision, accumulate=2).step(threads=2) as step:
            loss = step(x).loss
            with step.check_finite() as checks:
                assert step(x).loss == loss and step.get("update") == 1
                assert step.eval("log", x)["log"].isfinite().all()
                with refused(wrong, "cast" if precision else product, " wrote nan to ", "; it reads nan of input x (element 15 of float32)"):
                    step(nan)
                assert step.get("micro_step") == 1
                with refused(wrong, log, " wrote nan to an activation (element 6 of "):
                    step(negative)
                assert (step.get("micro_step"), step.get("skipped")) == (0, 1)
                with refused(wrong, "torch-observed.py:", " wrote nan to output log (element 6 of float32)"):
                    step.eval("log", negative)
                with refused(wrong, log, " wrote -inf to an activation (element 0 of "):
                    step(zero)
                with refused(trainc.InvalidArgumentError, "within another check_finite() or profile()"):
                    step.profile().__enter__()
                assert step._observer is checks
            step.flush()
            with step.check_finite(infinities=False):
                assert step.eval("log", zero)["log"].isinf().any()
            assert not step(nan).closed and not step.flush().finite  # no longer looked at
            step.write("first.bias", torch.full((6,), torch.nan))
            with refused(wrong, f"it reads nan of {'compute copy' if precision else 'parameter'} first.bias (element 0 of "), step.check_finite():
                step(x)
    assert issubclass(wrong, FloatingPointError)


def profiles():
    """Operations with their lines, in a table and in a trace."""
    x = torch.rand(4, 6) + 2
    with exported().step(threads=1) as step:
        with step.profile() as profile:
            for _ in range(3):
                step(x)
            step.eval("log", x)
        step(x)
        table = profile.table()
        head, *rows, last = table.splitlines()
        row = next(row for row in rows if line_of("torch.log(x)\n")[3:] in row and row.split()[4] == "log")
        assert head.split() == ["ms", "of", "all", "times", "operation"] and row.split()[3] == "3" and last.endswith("in all"), table
        assert len(profile.table(rows=2).splitlines()) == 4
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            profile.export_chrome_trace(path)
            with open(path, encoding="utf-8") as file:
                events = json.load(file)["traceEvents"]
        assert {event["args"]["entry"] for event in events} == {"step", "log"} and all(event["dur"] >= 0 for event in events)
        assert sum(event["name"] == "log" for event in events if event["args"]["entry"] == "step") == 3, events
        assert min(event["ts"] for event in events) == 0 and any(event["args"]["flops"] > 0 for event in events)
    with refused(trainc.InvalidArgumentError, "closed"), step.profile():
        pass


for test in (finite, profiles):
    if not sys.argv[1:] or test.__name__ in sys.argv[1:]:
        test()
        print(f"{test.__name__}: ok", flush=True)
