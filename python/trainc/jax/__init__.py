"""Compiles training steps of JAX: a loss function of pytrees, an optimizer with optax's names, a batch."""
from .export import Exported, export
from .optim import *  # noqa: F403
from .schedules import *  # noqa: F403
