"""Trains a workload of the peers in JAX: updates.py WORKLOAD SEED f64|f32|bf16 UPDATES OUT.npz.

Writes the parameters after the updates, and as `loss` and `gradient_norm` those of each update. bf16 is of products alone, on
f32 parameters, as the JAX peer has it.
"""
import sys
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from common import PEERS  # noqa: F401  (finds the peers)
from jax_models import first_steps
from workloads import WORKLOADS

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")
TYPES = dict(f64=(jnp.float64, None), f32=(jnp.float32, None), bf16=(jnp.float32, jnp.bfloat16))


def main():
    workload, seed, kind, updates, path = sys.argv[1:]
    rows, p = first_steps(replace(WORKLOADS[workload], seed=int(seed)), *TYPES[kind], count=int(updates))
    losses, norms, _ = zip(*rows)
    np.savez(path, loss=losses, gradient_norm=norms, **{name: np.asarray(value) for name, value in p.items()})


if __name__ == "__main__":
    main()
