# REQUIRES: jax
# RUN: %python %s
"""Inputs are lent: NumPy, DLPack (jax), __array_interface__; all types; copies are said; what is bound stays alive."""
import ctypes
import gc
import os
import sys
import tempfile
import warnings
import weakref

import jax.numpy as jnp
import ml_dtypes
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import linear, refused, trainc, types  # noqa: E402
from trainc._arrays import holds_nan, view  # noqa: E402

warnings.simplefilter("error")
RNG = np.random.default_rng(1)
Y = RNG.standard_normal((4, 1)).astype("f")


def draw():
    return RNG.standard_normal((4, 3)).astype("f")


class Interface:
    """An array of another library."""

    def __init__(self, array):
        self.array, self.__array_interface__ = array, array.__array_interface__


class Tensor:
    """A tensor of another library: DLPack alone, of another layout or device."""

    def __init__(self, array, device=(1, 0)):
        self.array, self.device = array, device

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.device


def address_of(pointer):
    return pointer if isinstance(pointer, int) else ctypes.addressof(pointer)


def lent(path):
    with trainc.load(path, threads=1) as step:
        state = step.state_dict()

        def predicted(x):
            return np.asarray(x, "f") @ state["weight"] + state["bias"]

        # What changes after it was bound is seen.
        x = draw()
        assert np.allclose(step.eval("predict", x)["y"], predicted(x), rtol=1e-5)
        x += 1
        assert np.allclose(step.eval("predict", x)["y"], predicted(x), rtol=1e-5)
        calls = []
        bind = step._evals["predict"]._bind_input
        step._evals["predict"]._bind_input = lambda *given: calls.append(address_of(given[3])) or bind(*given)
        other = draw()
        for value, address in [(x, None), (other, other.ctypes.data), (other, None), (x, x.ctypes.data),
                               (Interface(other), other.ctypes.data), (Tensor(other), other.ctypes.data),
                               (x[:], x.ctypes.data)]:
            calls.clear()
            array = getattr(value, "array", value)
            assert np.allclose(step.eval("predict", value)["y"], predicted(array), rtol=1e-5)
            assert calls == ([] if address is None else [address]), (calls, address)
        # Read-only arrays and those of jax are inputs, too.
        x.flags.writeable = False
        y = jnp.asarray(x) * 2
        calls.clear()
        assert np.allclose(step.eval("predict", y)["y"], predicted(y), rtol=1e-5)
        assert calls == [y.unsafe_buffer_pointer()]
        assert np.allclose(step.eval("predict", x)["y"], predicted(x), rtol=1e-5)

        # Copies: right, in each call anew, and said once for each input.
        big = np.zeros((4, 6), "f")
        for value in (np.asfortranarray(draw()), big[:, ::2], draw().astype(">f4"),
                      np.frombuffer(b"." + draw().tobytes(), "f", offset=1).reshape(4, 3), Tensor(big[:, 1::2])):
            with trainc.load(path, weights=state, threads=1) as fresh, warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                for _ in range(2):
                    array = getattr(value, "array", value)
                    assert np.allclose(fresh.eval("predict", value)["y"], predicted(array), rtol=1e-5)
                    if array.flags.writeable:
                        array += 1
                assert len(said) == 1 and "input x of predict is copied" in str(said[0].message), list(map(str, said))
                assert said[0].filename == __file__
        with refused(trainc.InvalidArgumentError, "memory of the host", "DLPack device 2:1"):
            step.eval("predict", Tensor(other, (2, 1)))
        with refused(trainc.InvalidArgumentError, "float32 of shape (4, 3)", "bfloat16 of shape (4, 3)"):
            step.eval("predict", y.astype("bfloat16"))

        # An array that changes its type or shape in place is looked at again.
        z = draw()
        step.eval("predict", z)
        z.shape = (3, 4)
        with refused(trainc.InvalidArgumentError, "(4, 3)", "(3, 4)"):
            step.eval("predict", z)


def alive(path):
    """What is bound is kept until something else is, and its memory is not moved."""
    with trainc.load(path, threads=1) as step:
        class Array(np.ndarray):
            pass

        x = draw().view(Array)
        gone = weakref.ref(x)
        step(x, Y)
        base = x.copy().view(np.ndarray)
        del x
        gc.collect()
        assert gone() is not None
        step(base, Y)
        gc.collect()
        assert gone() is None
        for writeable in (True, False):
            array = np.zeros((4, 3), "f")
            array.flags.writeable = writeable
            step(array, Y)
            try:
                array.resize(1 << 20, refcheck=False)
            except ValueError:
                pass
            else:
                raise AssertionError("an array that is bound was moved")
        # DLPack: the capsule is given back when another array is bound.
        tensor = jnp.asarray(draw())
        step(tensor, Y)
        owner = step._entry.inputs[0].held
        assert type(owner).__name__ == "PyCapsule"
        count = sys.getrefcount(owner)
        step(array, Y)
        assert sys.getrefcount(owner) == count - 1


def all_types(path):
    rows = np.arange(6).reshape(2, 3)
    inputs = {name: rows.astype(getattr(ml_dtypes, name, name)) for name in trainc._arrays.DTYPES if name != "uint8"}
    with trainc.load(path, threads=1) as step:
        outputs = step.eval("types", **inputs)
        for name, value in outputs.items():
            assert value.dtype == inputs[name].dtype and value.shape == (2, 3)
            wanted = ~inputs[name] if name == "bool" else -inputs[name] if "float" in name else 2 * inputs[name]
            assert np.array_equal(value, wanted), name
        again = step.eval("types", **{name: jnp.asarray(v) if name not in ("int64", "float64") else v
                                      for name, v in inputs.items()})
        assert all(np.array_equal(outputs[name], again[name]) for name in outputs)
        # No cast is silent: each type in the place of each other.
        for name in inputs:
            for given, value in inputs.items():
                if given != name:
                    with refused(trainc.InvalidArgumentError, f"input {name} of", f"expected {name}", f"got {given}"):
                        step.eval("types", **{**inputs, name: value})
        # Indices out of range: the state is untouched.
        before = step.read("table")
        with refused(trainc.OutOfRangeError, "5"):
            step(np.array([0, 5, 1], np.int32))
        assert np.array_equal(before, step.read("table"))
        with refused(trainc.InvalidArgumentError, "int32", "int64"):
            step(np.array([0, 4, 1]))
        assert step(np.array([0, 4, 1], np.int32)).updated
        # Without ml_dtypes NumPy has no bfloat16: an error that says what helps.
        sys.modules["ml_dtypes"] = None
        try:
            with refused(trainc.UnsupportedError, "bfloat16", "ml_dtypes"):
                step.eval("types", **inputs)
        finally:
            sys.modules["ml_dtypes"] = ml_dtypes


def nans():
    """Whether memory of any type holds a NaN, with NumPy and without."""
    pieces = np.zeros((1 << 16) + 1)
    pieces[-1] = np.nan
    for values, wanted in (([0, -np.inf, np.inf], False), ([1, -np.nan, 2], True), ([1, 2, np.nan], True), ([], False), (pieces, True)):
        for kind in "f2", "f4", "f8", ml_dtypes.bfloat16:
            found = view(np.asarray(values).astype(kind))
            for numpy in np, None:
                sys.modules["numpy"] = numpy
                assert holds_nan(found) is wanted, (values, kind, numpy)
                sys.modules["numpy"] = np
    assert holds_nan(view(jnp.array([1, jnp.nan], jnp.bfloat16))) and not holds_nan(view(np.full(3, -1)))


nans()
with tempfile.TemporaryDirectory() as folder:
    lent(linear(folder))
    alive(linear(folder))
    all_types(types(folder))
