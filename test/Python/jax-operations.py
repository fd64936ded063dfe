# REQUIRES: jax
# RUN: %python %s
"""Every rule of trainc.jax: losses and gradients of the cases in Inputs/jax_cases.py, in f64 to 1e-9 and in f32, against
jax.grad in f64.

usage: jax-operations.py [CASE ...]
"""
import os
import sys
import tempfile
import zlib

os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # compiles faster

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from jax_cases import CASES, REFUSED  # noqa: E402
from tiny import trainc  # noqa: E402

import trainc.jax  # noqa: E402

SIZE = 12  # cases in a module
CACHE = os.path.join(os.environ.get("TRAINC_TEST_CACHE") or tempfile.gettempdir(), "jax")


def weighted(y):
    """A scalar that no element leaves alone."""
    y = jnp.asarray(y)
    return jnp.sum(y * jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape) if jnp.issubdtype(y.dtype, jnp.floating) else y)


def operands(name):
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    return [rng.standard_normal(shape).astype(np.float32).astype(np.float64) for shape in CASES[name][1:]]


def loss_of(names):
    def loss(params, scale):
        return scale[0] * sum(weighted(CASES[name][0](*params[f"p{i}"])).astype(scale.dtype) for i, name in enumerate(names))

    return loss


def check(names):
    """What is wrong in f64, and in f32 with the same operands."""
    params, loss = {f"p{i}": operands(name) for i, name in enumerate(names)}, loss_of(names)
    jax.config.update("jax_enable_x64", True)
    value, gradients = jax.jit(jax.value_and_grad(loss))(params, np.ones(1))
    return [line for dtype, tolerance in ((np.float64, 1e-9), (np.float32, 2e-4))
            for line in compared(names, params, dtype, tolerance, float(value), gradients)]


def compared(names, params, dtype, tolerance, value, gradients):
    jax.config.update("jax_enable_x64", dtype is np.float64)
    params = {name: [x.astype(dtype) for x in some] for name, some in params.items()}
    exported = trainc.jax.export(loss_of(names), params, (np.ones(1, dtype),), optimizer=trainc.jax.sgd(1.0))
    with exported.step(threads=1, cache_dir=CACHE) as step:
        result = step(np.ones(1, dtype))
        after = exported.params(step)
    wrong = [] if abs(result.loss - value) <= tolerance * (1 + abs(value)) else [f"loss {result.loss} in place of {value}"]
    for i, name in enumerate(names):
        for j, (old, new, gradient) in enumerate(zip(params[f"p{i}"], after[f"p{i}"], gradients[f"p{i}"])):
            apart = float(np.abs(old - new - np.asarray(gradient)).max() / (1 + np.abs(gradient).max() + np.abs(old).max()))
            if not apart <= tolerance:
                wrong.append(f"{name} in {dtype.__name__}: gradient {j} is {apart:.1e} apart")
    return wrong


def refused(name):
    function, shapes, expected = REFUSED[name]
    jax.config.update("jax_enable_x64", True)
    params = [np.ones(shape) for shape in shapes]
    try:
        trainc.jax.export(lambda p, s: s[0] * weighted(function(*p)), params, (np.ones(1),), optimizer=trainc.jax.sgd(1.0))
    except trainc.UnsupportedError as error:
        return [] if expected in str(error) and error.findings else [f"{name}: said {error}"]
    return [f"{name}: not refused"]


def main():
    names = sys.argv[1:] or list(CASES)
    wrong = []
    for begin in range(0, len(names), SIZE):
        wrong += check(names[begin:begin + SIZE])
    wrong += [line for name in REFUSED for line in refused(name)] if len(sys.argv) == 1 else []
    assert not wrong, "\n".join(wrong)


if __name__ == "__main__":
    main()
