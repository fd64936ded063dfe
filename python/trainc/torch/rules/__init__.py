"""Rules by family; importing this package registers all of them."""
from . import elementwise, functions, images, indexing, layers, losses, random, reductions, shapes  # noqa: F401
