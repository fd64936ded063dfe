# REQUIRES: numpy
# RUN: %python %s
"""trainc.load and Step: calls, results, evals, state dicts, scalars, checkpoints, reports, and every error of them."""
import json
import locale
import os
import signal
import struct
import subprocess
import sys
import tempfile
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import linear, refused, trainc  # noqa: E402

warnings.simplefilter("error")
RNG = np.random.default_rng(1)
X, Y = RNG.standard_normal((4, 3)).astype("f"), RNG.standard_normal((4, 1)).astype("f")
NAMES = ["weight", "bias", "calls", "scale"]


def same(a, b):
    assert sorted(a) == sorted(b)
    return all(np.array_equal(a[name], b[name]) for name in a)


def calls(path):
    with trainc.load(path, threads=2, seed=5) as step:
        assert step.threads == 2 and step.device == "cpu" and (step.rank, step.ranks) == (0, 1)
        state = step.state_dict()
        # The first loss and norm, by hand; positional and by name.
        error = X @ state["weight"] + state["bias"] - Y
        result = step(X, y=Y)
        assert np.isclose(result.loss, np.mean(error**2), rtol=1e-5) and result.weight == 4
        gradients = 2 * X.T @ error / 4, 2 * error.sum(0) / 4
        assert np.isclose(result.grad_norm, np.sqrt(sum(np.sum(g**2) for g in gradients)), rtol=1e-5)
        assert (result.update, result.skipped, result.micro_step, result.stop) == (1, 0, 0, 0)
        assert result.closed is result.updated is result.finite is True and result.clip_factor == 1
        assert result.window_loss == result.loss and result.window_weight == 4 and result.loss_scale == 1
        assert "loss=" in repr(result) and "step(x: float32[4, 3], y: float32[4, 1])" in repr(step)
        assert np.allclose(step.read("weight"), state["weight"] - 0.1 * gradients[0], rtol=1e-5)
        # Results are of their own calls.
        losses = [step(y=Y, x=X) for _ in range(3)]
        assert losses[0].loss > losses[1].loss > losses[2].loss and [r.update for r in losses] == [2, 3, 4]
        assert step.read("calls") == 4
        # An eval: the same numbers, memory of its own.
        first = step.eval("predict", X)["y"]
        second = step.eval("predict", x=X + 1)["y"]
        state = step.state_dict()
        assert np.allclose(first, X @ state["weight"] + state["bias"], rtol=1e-5) and not np.array_equal(first, second)
        # A NaN: no error, the update is skipped.
        result = step(np.full_like(X, np.nan), Y)
        assert not result.finite and not result.updated and result.skipped == 1 and result.closed
        assert np.array_equal(step.read("weight"), state["weight"])
        report = step.report()
        for text in (path, "on cpu, 2 threads", "step(x: float32[4, 3]", "predict(x", "parameters", "in all",
                     "trained by slow: 1 parameter of 3 elements in float32; lr = 0.1\n",
                     "trained by fast: 1 parameter of 1 element in float32, states m, v in float32; lr = 0.2; ",
                     "frozen: 1 parameter of 1 element in float32\n", "not trained: 1 buffer of 1 element in float32\n"):
            assert text in report, report


def wrong_inputs(path):
    bad = trainc.InvalidArgumentError
    with trainc.load(path, threads=1) as step:
        before = step.state_dict()
        with refused(bad, "y is missing", "x, y"):
            step(X)
        for batch, words in (([X, Y], "one list: expected *batch"), ({"x": X}, "one dict: expected **batch")):
            with refused(bad, "step takes x, y, got", words):
                step(batch)
        with refused(bad, "2 inputs (x, y)", "got 3"):
            step(X, Y, Y)
        with refused(bad, "no input labels", "x, y"):
            step(X, Y, labels=Y)
        with refused(bad, "input x by position and by name"):
            step(X, x=X)
        with refused(bad, "input x of step", "float32 of shape (4, 3)", "float64 of shape (4, 3)"):
            step(X.astype("d"), Y)
        with refused(bad, "input y of step", "float32 of shape (4, 1)", "float32 of shape (4,)"):
            step(X, Y[:, 0])
        with refused(bad, "shape (4, 3)", "shape (3, 4)"):
            step(X.T, Y)
        for value in ([[0.0]], 1.0, None, "text", {"x": X}):
            with refused(bad, "input x of step", "expected a NumPy array", type(value).__name__):
                step(value, Y)
        with refused(bad, "mask"):
            step(np.ma.masked_array(X, X > 0), Y)
        with refused(bad, "input x of predict"):
            step.eval("predict", X[:2])
        with refused(trainc.NotFoundError, "no eval logits", "predict"):
            step.eval("logits", X)
        assert same(before, step.state_dict())
        # What was bound before an error was: the next call has its own inputs.
        loss = step(X, Y).loss
        with refused(bad):
            step(X + 1, Y.astype("d"))
        step.load_state_dict(before)
        assert step(X, Y).loss == loss


def written(arrays, folder):
    """The path of a safetensors file."""
    kinds, path = {"float16": "F16", "float32": "F32", "float64": "F64"}, os.path.join(folder, "given.safetensors")
    data = b"".join(array.tobytes() for array in arrays.values())
    ends = np.cumsum([array.nbytes for array in arrays.values()]).tolist()
    header = json.dumps({name: dict(dtype=kinds[array.dtype.name], shape=array.shape, data_offsets=[end - array.nbytes, end])
                         for (name, array), end in zip(arrays.items(), ends)}).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + data)
    return path


def states(path, folder):
    with trainc.load(path, threads=1, seed=1) as a, trainc.load(path, threads=1, seed=2) as b:
        state = a.state_dict()
        assert sorted(state) == sorted(NAMES) and state["weight"].dtype == np.float32 and state["calls"].shape == ()
        assert not np.array_equal(state["weight"], b.state_dict()["weight"])
        result = b.load_state_dict(state)
        assert result.missing_keys == result.unexpected_keys == [] and same(state, b.state_dict())
        assert b(X, Y).loss == a(X, Y).loss
        # A copy: the step does not see later changes, nor these the step.
        copy = a.state_dict()
        copy["weight"][:] = 7
        assert not np.any(a.read("weight") == 7)
        # Floating types convert; a frozen parameter and a buffer can be written.
        a.load_state_dict({**copy, "weight": np.full((3, 1), 0.1), "calls": np.array(9, "f"),
                           "scale": np.array([2], "f2")})
        assert np.all(a.read("weight") == np.float32(0.1)) and a.read("calls") == 9 and a.read("scale") == 2
        before = a.state_dict()
        wrong = {"weight": copy["weight"].T, "bias": np.array([1]), "extra": Y, "scale": "text"}
        with refused(trainc.MismatchError, "weight: expected float32 of shape (3, 1), got float32 of shape (1, 3)",
                     "bias: expected float32 of shape (1,), got int64", "calls: missing", "extra: unexpected",
                     "scale: expected a NumPy array"):
            a.load_state_dict(wrong)
        with refused(trainc.MismatchError, "bias"):
            a.load_state_dict({"weight": copy["weight"], "bias": np.array([1])}, strict=False)
        # A NaN is refused in what is loaded, of each type; infinity is a number. In a file, too, and all else of it is.
        for kind in "f2", "f4", "f8":
            for value in np.nan, -np.nan, np.inf, -np.inf:
                given = {"bias": np.array([0], kind), "scale": np.array([1], kind), "weight": np.array([[0], [1], [value]], kind)}
                for loads in (lambda given: a.load_state_dict(given, strict=False), lambda given: a.load_weights(written(given, folder))):
                    a.load_state_dict(before)
                    if np.isnan(value):
                        with refused(trainc.MismatchError, "weight", "holds NaN, expected numbers"):
                            loads(given)
                        assert same(before, a.state_dict())
                    else:
                        loads(given)
                        assert a.read("weight")[2] == value
        with refused(trainc.MismatchError, "weight: holds NaN"):
            trainc.load(path, weights={**copy, "weight": np.full((3, 1), np.nan)})
        with refused(trainc.MismatchError, "weight holds NaN"):
            trainc.load(path, weights=written({"weight": np.full((3, 1), np.nan, "f")}, folder))
        a.load_state_dict(before)
        assert same(before, a.state_dict())
        result = a.load_state_dict({"bias": np.array([3], "f"), "extra": Y}, strict=False)
        assert sorted(result.missing_keys) == ["calls", "scale", "weight"] and result.unexpected_keys == ["extra"]
        assert a.read("bias") == 3 and np.array_equal(a.read("weight"), before["weight"])
        # One tensor, and optimizer states.
        a.write("bias", np.array([4], "d"))
        assert a.read("bias") == 4
        a.write("bias", np.array([0.5], "f"), state="m")
        assert a.read("bias", state="m") == 0.5
        with refused(trainc.InvalidArgumentError, "bias: expected float32 of shape (1,)", "(2,)"):
            a.write("bias", np.zeros(2, "f"))
        with refused(trainc.NotFoundError, "no parameter or buffer nothing"):
            a.read("nothing")
        with refused(trainc.NotFoundError, "weight m"):
            a.read("weight", state="m")

        # Checkpoints: saved, loaded and stepped is stepped.
        a.set_metadata("position", "17")
        a.save(os.path.join(folder, "a.safetensors"))
        b.load(os.path.join(folder, "a.safetensors"))
        assert b.get_metadata("position") == "17" and same(a.state_dict(), b.state_dict())
        assert (a(X, Y).loss, a(X, Y).grad_norm) == (b(X, Y).loss, b(X, Y).grad_norm)
        assert same(a.state_dict(), b.state_dict())
        for keep in (-1, 2**32 + 1, 1.5, None):
            with refused(trainc.InvalidArgumentError, "keep: expected an integer from 0 to 2**32 - 1", f"got {keep!r}"):
                a.save_checkpoint(os.path.join(folder, "run"), keep)
        saved = a.save_checkpoint(os.path.join(folder, "run"), keep=1)
        assert os.path.exists(saved)
        b.load(os.path.join(folder, "run"))
        assert b.get("update") == a.get("update")
        # C would read such texts up to the zero.
        for use in (lambda: a.set_metadata("position", "1\0" "7"), lambda: a.set_metadata("\0", "17"), lambda: a.get_metadata("position\0"),
                    lambda: a.save(os.path.join(folder, "cut\0x")), lambda: a.save_checkpoint(folder + "\0"), lambda: a.load(saved + "\0"),
                    lambda: a.load_weights(saved + "\0")):
            with refused(trainc.InvalidArgumentError, "expected text without zero bytes, got one at byte"):
                use()
        assert a.get_metadata("position") == "17" and not os.path.exists(os.path.join(folder, "cut"))
        b.set_metadata("position", None)
        with refused(trainc.NotFoundError, "position"):
            b.get_metadata("position")
        with trainc.load(path, weights=saved) as c, trainc.load(path, weights=a.state_dict()) as d:
            assert same(a.state_dict(), c.state_dict()) and same(c.state_dict(), d.state_dict())
            assert c.get("update") == 0
            c.load_weights(os.path.join(folder, "a.safetensors"))
        for wrong in (b"", b"[]", b"\2" + b"\0" * 7 + b"[]", b"\1" * 64):
            with open(os.path.join(folder, "cut"), "wb") as file:
                file.write(wrong)
            with refused(trainc.Error, "cut"):
                b.load_weights(os.path.join(folder, "cut"))
        with open(os.path.join(folder, "cut"), "wb") as file:
            file.write(b"not a checkpoint")
        with refused(trainc.Error, "cut"):
            b.load(os.path.join(folder, "cut"))
        with refused(trainc.NotFoundError, "none"):
            b.load(os.path.join(folder, "none"))
        with refused(trainc.NotFoundError, "/nowhere/a"):
            a.save("/nowhere/a")
        os.environ["TRAINC_FAULT"] = "write:1:fail"  # as a full disk
        try:
            a.save(os.path.join(folder, "a.safetensors"))
        except trainc.Error as error:
            assert type(error) is trainc.Error and error.status == "TRAINC_IO_ERROR", error
        else:
            raise AssertionError("a save to a full disk succeeded")
        del os.environ["TRAINC_FAULT"]


def scalars(path):
    with trainc.load(path, threads=1) as step:
        assert step.get("slow.lr") == 0.1 and step.get("update") == 0 and step.get("weight_decay") == 0
        with refused(trainc.InvalidArgumentError, "lr differs between groups", "slow.lr = 0.1", "fast.lr = 0.2"):
            step.get("lr")
        with refused(trainc.InvalidArgumentError, "lr differs between groups", "expected the full name of one"):
            step.set("lr", 0.0)
        for name in ("slow.lr", "fast.lr"):
            step.set(name, 0.1)
        step.set("lr", 0.0)
        assert step.get("lr") == step.get("slow.lr") == 0
        before = step.read("weight")
        step(X, Y)
        assert np.array_equal(before, step.read("weight"))
        step.set("slow.lr", 0.5)
        step(X, Y)
        assert not np.array_equal(before, step.read("weight")) and step.get("fast.lr") == 0
        with refused(trainc.NotFoundError, "no scalar momentum", "slow.lr"):
            step.set("momentum", 0.9)
        with refused(trainc.InvalidArgumentError, "update cannot be set", "slow.lr"):
            step.set("update", 3)
        with refused(trainc.InvalidArgumentError, "finite"):
            step.set("fast.lr", float("nan"))
        for wrong in ("0.1", None, np.zeros(2), 10**400):
            with refused(trainc.InvalidArgumentError, "fast.lr: expected a number, got"):
                step.set("fast.lr", wrong)
        step.set("fast.lr", np.array(0.25))
        assert step.get("fast.lr") == 0.25


def windows(path):
    with trainc.load(path, threads=1) as step:
        result = step(X, Y)
        assert not result.closed and not result.updated and result.micro_step == 1 and result.update == 0
        closing = step.flush()
        assert closing.closed and closing.updated and closing.update == 1 and closing.window_loss == result.loss
        assert not step.flush().closed
        step(X, Y)
        step.request_stop()
        result = step(X, Y)
        assert result.closed and result.update == 2 and result.stop == 1 and result.window_weight == 8
        assert [step(X, Y).stop for _ in range(4)] == [0] * 4


def loading(path, folder):
    with refused(trainc.NotFoundError, "none.so"):
        trainc.load("none.so")
    with open(os.path.join(folder, "text.so"), "w", encoding="utf-8") as file:
        file.write("no library")
    with refused(trainc.Error, "text.so"):
        trainc.load(os.path.join(folder, "text.so"))
    with refused(trainc.OutOfMemoryError, "memory"):
        trainc.load(path, memory_limit="1K")
    for limit in ("many", -1, 0, "1T", "17179869185G", "17179869184G", 2**64, "9" * 5000):
        with refused(trainc.InvalidArgumentError, "memory_limit", repr(limit)):
            trainc.load(path, memory_limit=limit)
    for name, most, wrongs in (("seed", "2**53 - 1", (2**53, 2**64 + 1, -1, 0.5)), ("threads", "2**32 - 1", (2**32 + 1, -1, "2"))):
        for wrong in wrongs:
            with refused(trainc.InvalidArgumentError, f"{name}: expected an integer from 0 to {most}, got {wrong!r}"):
                trainc.load(path, **{name: wrong})
    assert trainc.load(path, seed=np.int64(2**53 - 1), threads=np.uint8(1)).get("seed") == 2**53 - 1
    with refused(trainc.InvalidArgumentError, "device: expected text without zero bytes, got one at byte 3"):
        trainc.load(path, device="cpu\0")
    for device in ("tpu", "cuda"):
        try:
            trainc.load(path, device=device)
        except trainc.Error as error:
            assert error.status in ("TRAINC_INVALID_ARGUMENT", "TRAINC_UNSUPPORTED"), error.status
        else:
            raise AssertionError(device)
    with refused(trainc.MismatchError, "bias: missing"):
        trainc.load(path, weights={"weight": np.zeros((3, 1), "f")})
    assert trainc.load(path, memory_limit="1G", device="cpu", pin_threads=True).get("seed") == 0
    os.environ["WORLD_SIZE"] = "2"
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trainc.load(path).close()
    del os.environ["WORLD_SIZE"]
    assert len(said) == 1 and "one rank" in str(said[0].message), said


def interrupted(path):
    """After Ctrl-C, when an input was bound but not yet noted, the batch before is bound anew."""
    with trainc.load(path, threads=1) as step:
        batches = [X, 2 * X]
        wanted = [step.eval("predict", batch)["y"] for batch in batches]
        entry, wrong = step._evals["predict"], np.full((4, 3), 9, "f")
        bind, before = entry._bind_input, signal.signal(signal.SIGINT, signal.default_int_handler)

        def late(*arguments):
            status = bind(*arguments)
            os.kill(os.getpid(), signal.SIGINT)
            return status

        for i, batch in enumerate(batches):
            step.eval("predict", batch)
            entry._bind_input = late
            try:
                step.eval("predict", wrong)
                raise AssertionError("Ctrl-C came to nothing")
            except KeyboardInterrupt:
                entry._bind_input = bind
            assert all(any(kept is array for kept in entry.inputs[0].held) for array in (batch, wrong))
            assert np.array_equal(step.eval("predict", batch)["y"], wanted[i])
        signal.signal(signal.SIGINT, before)


def with_comma(path, folder):
    """A checkpoint's numbers have a point, also where the program's have a comma; where there is no such locale nothing is tested."""
    made = subprocess.run(["localedef", "-i", "de_DE", "-f", "UTF-8", os.path.join(folder, "comma")], capture_output=True, check=False)
    if made.returncode:
        return
    os.environ["LOCPATH"] = folder
    before, saved = locale.setlocale(locale.LC_NUMERIC), os.path.join(folder, "comma.safetensors")
    with trainc.load(path, threads=1) as step:
        locale.setlocale(locale.LC_NUMERIC, "comma")
        try:
            assert locale.localeconv()["decimal_point"] == ","
            step.save(saved)
            step.load(saved)  # nothing to warn of
        finally:
            locale.setlocale(locale.LC_NUMERIC, before)
        step.load(saved)
    with open(saved, "rb") as file:
        assert b'"trainc.source.slow.lr":"0.1' in file.read()


AVERAGED = """train.optimizer @o = sgd<lr = 0.5> ema(0.75)
train.param @w : tensor<3xf32> init(normal<0.5>) optimizer(@o)
train.param @rest : tensor<2xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<3xf32>) {
  %w = train.read @w : tensor<3xf32>
  %rest = train.read @rest : tensor<2xf32>
  %m = nn.mul %w, %x : tensor<3xf32>, tensor<3xf32>
  %s = nn.reduce sum %m dims [0] : tensor<3xf32>
  %r = nn.reduce sum %rest dims [0] : tensor<2xf32>
  %zero = nn.mul %r, %s : tensor<f32>, tensor<f32>
  %l = nn.add %s, %zero : tensor<f32>, tensor<f32>
  train.yield loss(%l) : tensor<f32>
}
"""


def averages(folder):
    """They begin at what is loaded before the first update, and go on behind it."""
    path, weights = os.path.join(folder, "averaged.so"), os.path.join(folder, "averaged.safetensors")
    with open(path[:-3] + ".mlir", "w") as f:
        f.write(AVERAGED)
    trainc.compile(path[:-3] + ".mlir", path)
    values, x = np.array([1, 2, 3], "f"), np.zeros(3, "f")
    with trainc.load(path, threads=1, seed=3) as step:
        assert np.array_equal(step.read("w", "ema"), step.read("w")) and np.array_equal(step.read("rest", "ema"), step.read("rest"))
        step.write("w", values)
        step.save(weights)
    for how in ("file", "dict", "parts"):
        with trainc.load(path, {"file": weights, "dict": {"w": values, "rest": x[:2]}, "parts": None}[how], threads=1, seed=4) as step:
            if how == "parts":
                drawn = step.read("rest")
                step.load_state_dict({"w": values}, strict=False)
                assert np.array_equal(step.read("rest", "ema"), drawn)
            assert np.array_equal(step.read("w", "ema"), values), (how, step.read("w", "ema"))
            step(x)
            assert np.array_equal(step.read("w", "ema"), values)
            before = step.read("rest", "ema")
            step.load_weights(weights)
            step.load_state_dict({"rest": x[:2]}, strict=False)
            assert np.array_equal(step.read("rest", "ema"), before) and not step.read("rest").any()


def closing(path):
    step = trainc.load(path, threads=1)
    result = step(X, Y)
    state = step.state_dict()
    step.close()
    step.close()
    assert result.loss > 0 and "closed" in repr(step)
    for use in (lambda: step(X, Y), lambda: step.eval("predict", X), step.state_dict, step.flush, step.report,
                lambda: step.load_state_dict(state), lambda: step.get("lr"), lambda: step.set("slow.lr", 1.0),
                lambda: step.save("x"), lambda: step.load("x"), lambda: step.load_weights("x"), step.request_stop,
                lambda: step.read("bias"), lambda: step.write("bias", state["bias"]), lambda: step.threads,
                lambda: step.device, lambda: step.get_metadata("x"), lambda: step.set_metadata("x", "y"),
                lambda: step.save_checkpoint("x"), step.check_finite().__enter__, step.profile().__enter__):
        with refused(trainc.InvalidArgumentError, "closed"):
            use()


with tempfile.TemporaryDirectory() as temporary:
    library = linear(temporary)
    calls(library)
    wrong_inputs(library)
    states(library, temporary)
    scalars(library)
    windows(linear(temporary, accumulate=2))
    loading(library, temporary)
    interrupted(library)
    with_comma(library, temporary)
    averages(temporary)
    closing(library)
