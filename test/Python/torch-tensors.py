# REQUIRES: torch
# RUN: %venv_torch %s
"""Inputs and outputs of torch: lent without copies, all types, state dicts, and what is refused."""
import os
import sys
import tempfile
import warnings

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import linear, refused, trainc, types  # noqa: E402

warnings.simplefilter("error")
torch.manual_seed(1)


def lent(path):
    with trainc.load(path, threads=1) as step:
        state = step.state_dict(as_torch=True)
        assert all(isinstance(value, torch.Tensor) for value in state.values())
        addresses = []
        bind = step._evals["predict"]._bind_input
        step._evals["predict"]._bind_input = lambda *arguments: addresses.append(arguments[3]) or bind(*arguments)

        def check(x, *wanted):
            """The output is right, and of these addresses are bound."""
            addresses.clear()
            y = step.eval("predict", x)["y"]
            assert isinstance(y, torch.Tensor)
            torch.testing.assert_close(y, x @ state["weight"] + state["bias"])
            assert addresses == list(wanted), (addresses, wanted)

        x = torch.randn(4, 3)
        check(x, x.data_ptr())
        x += 1
        check(x)
        # The same tensor object with other memory.
        x.data = torch.randn(4, 3)
        check(x, x.data_ptr())
        parameter = torch.nn.Parameter(torch.randn(4, 3))
        check(parameter.detach(), parameter.data_ptr())
        part = torch.randn(8, 3)[4:]
        check(part, part.data_ptr())
        x.data = torch.randn(4, 3, dtype=torch.float64)
        with refused(trainc.InvalidArgumentError, "float32", "float64"):
            step.eval("predict", x)
        # Transposed in place: same address, other strides.
        for value, why in [(torch.randn(3, 4).T, "contiguous"),
                           (torch.randn(4, 3, dtype=torch.complex64).conj().imag, "negative|contiguous")]:
            with trainc.load(path, weights=state, threads=1) as fresh, warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for _ in range(2):
                    torch.testing.assert_close(fresh.eval("predict", value)["y"],
                                               value @ state["weight"] + state["bias"])
                assert len(said) == 1 and any(w in str(said[0].message) for w in why.split("|")), list(map(str, said))
        with refused(trainc.InvalidArgumentError, "device meta"):
            step.eval("predict", torch.randn(4, 3, device="meta"))
        freed = torch.randn(4, 3)
        check(freed, freed.data_ptr())
        freed.untyped_storage().resize_(0)
        with refused(trainc.InvalidArgumentError, "input x of predict", "without storage"):
            step.eval("predict", freed)
        with refused(trainc.InvalidArgumentError, "sparse"):
            step.eval("predict", torch.randn(4, 3).to_sparse())

        # State dicts, both ways and into a module.
        module = torch.nn.Linear(3, 1)
        result = step.load_state_dict({"weight": module.weight.detach().T.contiguous().double(), "bias": module.bias},
                                      strict=False)
        assert sorted(result.missing_keys) == ["calls", "scale"]
        x = torch.randn(4, 3)
        torch.testing.assert_close(step.eval("predict", x)["y"], module(x))
        y = torch.randn(4, 1)
        torch.testing.assert_close(torch.tensor(step(x, y=y).loss), torch.nn.functional.mse_loss(module(x), y).detach())
        with refused(trainc.MismatchError, "(3, 1)", "(1, 3)", "calls: missing"):
            step.load_state_dict(module.state_dict())


def all_types(path):
    rows = torch.arange(6).reshape(2, 3)
    inputs = {name: rows.to(getattr(torch, name)) for name in trainc._arrays.DTYPES if name != "uint8"}
    with trainc.load(path, threads=1) as step:
        for name, value in step.eval("types", **inputs).items():
            wanted = ~inputs[name] if name == "bool" else -inputs[name] if "float" in name else 2 * inputs[name]
            assert value.dtype == inputs[name].dtype and torch.equal(value, wanted), name
        with refused(trainc.InvalidArgumentError, "expected int32", "got int64"):
            step(torch.tensor([1, 2, 3]))


with tempfile.TemporaryDirectory() as folder:
    lent(linear(folder))
    all_types(types(folder))
    # A square tensor that is transposed in place keeps address and shape.
    square = """\
train.optimizer @sgd = sgd<lr = 0.1>
train.param @w : tensor<2xf32> init(ones) optimizer(@sgd)
train.step @step(%x: tensor<2x2xf32>) {
  %0 = train.read @w : tensor<2xf32>
  %1 = nn.mul %x, %0 : tensor<2x2xf32>, tensor<2xf32>
  %2 = nn.reduce sum %1 dims [0, 1] : tensor<2x2xf32>
  train.yield loss(%2) : tensor<f32>
}
train.eval @same(%x: tensor<2x2xf32>) -> ("x") {
  %0 = nn.neg %x : tensor<2x2xf32>
  train.yield %0 : tensor<2x2xf32>
}
"""
    with trainc.load(trainc.compile(square, os.path.join(folder, "square.so")), threads=1) as square_step:
        t = torch.randn(2, 2)
        assert torch.equal(square_step.eval("same", t)["x"], -t)
        t.t_()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert torch.equal(square_step.eval("same", t)["x"], -t) and len(caught) == 1
