"""The corpus of models for the JAX export: a builder for each, small, of flax.linen, flax.nnx, equinox and plain JAX.

    example = jax_models.build("linen-gpt")
    loss = example.loss(example.params, *example.batch)     # with a state: (params, state, *batch) -> (loss, state)

Batches and parameters are drawn by NumPy, so they are the same on every machine. Nothing is drawn in a loss: rates of dropout are 0.
"""
import importlib
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

FILES = ("linen", "nnx", "equinox_", "plain", "science")


class Example(NamedTuple):
    """A loss, the pytrees of its parameters and state (None: without), and the arguments behind them."""

    loss: Callable[..., Any]
    params: Any
    batch: tuple
    state: Any = None


class Draw:
    """Draws of the frozen stream of NumPy's RandomState."""

    def __init__(self, name: str, dtype: Any) -> None:
        self._state, self.dtype = np.random.RandomState(zlib.crc32(name.encode())), dtype

    def normal(self, *shape: int, scale: float = 1.0) -> np.ndarray:
        return (self._state.randn(*shape) * scale).astype(self.dtype)

    def uniform(self, *shape: int) -> np.ndarray:
        return self._state.random_sample(shape).astype(self.dtype)

    def integers(self, high: int, *shape: int) -> np.ndarray:
        return self._state.randint(0, high, shape).astype(np.int32)

    def weights(self, *shape: int) -> np.ndarray:
        """A matrix, or several, that keeps the size of what it multiplies."""
        return self.normal(*shape, scale=shape[-2] ** -0.5)

    def again(self, tree: Any) -> Any:
        """A tree of parameters with each array of floats drawn by NumPy, of the same mean and deviation."""
        def one(x: Any) -> Any:
            if not isinstance(x, jax.Array | np.ndarray) or not jnp.issubdtype(x.dtype, jnp.floating):
                return x
            x = np.asarray(x, np.float64)
            spread = x.std()
            return (x.mean() + self.normal(*x.shape) * spread if spread > 0 else x).astype(self.dtype)

        return jax.tree_util.tree_map(one, tree)


_builders: dict[str, Callable[[Draw], Example]] = {}


def model(name: str) -> Callable[[Callable[[Draw], Example]], Callable[[Draw], Example]]:
    def register(builder: Callable[[Draw], Example]) -> Callable[[Draw], Example]:
        if name in _builders:
            raise ValueError(f"two models are called {name}")
        _builders[name] = builder
        return builder

    return register


def names() -> list[str]:
    for file in FILES:
        importlib.import_module(f"jax_models.{file}")
    return list(_builders)


def build(name: str) -> Example:
    """In float64; with jax_enable_x64."""
    names()
    return _builders[name](Draw(name, np.float64))


def cast(example: Example, dtype: Any) -> Example:
    """All floats in `dtype`."""
    def one(x: Any) -> Any:
        is_float = isinstance(x, jax.Array | np.ndarray) and jnp.issubdtype(x.dtype, jnp.floating)
        return np.asarray(x, dtype) if is_float else x

    return Example(example.loss, *jax.tree_util.tree_map(one, example[1:]))


def cross_entropy(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1))
