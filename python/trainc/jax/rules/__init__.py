"""The rules of primitives."""
from . import elementwise, indexing, products, random, reductions, shapes  # noqa: F401, registers them
