"""Trains a workload of the peers in JAX or PyTorch: updates.py WORKLOAD SEED KIND UPDATES OUT.npz.

Writes the parameters after the updates, and as `loss` and `gradient_norm` those of each update. KIND is jax-f64, jax-f32, or
PEER-bf16-RESIDUAL, with PEER jax or torch: matrix products in bf16 (of PyTorch by autocast) on f32 parameters, and the residual
stream between layers in RESIDUAL, bf16 or f32. jax-bf16-bf16 is what the JAX peer times, torch-bf16-f32 what the PyTorch peer times.
"""
import sys
from dataclasses import replace

import numpy as np

from common import PEERS  # noqa: F401  (finds the peers)
from workloads import OPTIMIZER, WORKLOADS, batches


def by_jax(w, compute, residual, updates):
    import jax
    import jax.numpy as jnp
    from jax_models import first_steps
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_default_matmul_precision", "highest")
    types = dict(f64=jnp.float64, f32=jnp.float32, bf16=jnp.bfloat16)
    rows, p = first_steps(w, jnp.float64 if compute == "f64" else jnp.float32, types[compute], updates, types[residual])
    losses, norms, _ = zip(*rows)
    return losses, norms, {name: np.asarray(value) for name, value in p.items()}


def by_torch(w, residual, updates):
    import torch
    from torch_models import build, loss_of
    model = build(w, dict(bf16=torch.bfloat16, f32=torch.float32)[residual])
    params, o = list(model.parameters()), OPTIMIZER
    optimizer = torch.optim.AdamW(params, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                                  weight_decay=o["weight_decay"], fused=True)
    data = [(torch.from_numpy(x), torch.from_numpy(y).long()) for x, y in batches(w)]
    losses, norms = [], []
    for _ in range(updates):
        total = 0.0
        for x, y in data:
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model, x, y)
            (loss / len(data)).backward()
            total += loss.item() / len(data)
        losses.append(total)
        norms.append(sum(p.grad.double().square().sum().item() for p in params) ** 0.5)
        torch.nn.utils.clip_grad_norm_(params, o["clip_norm"], foreach=True)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    values = {}
    for name, p in model.named_parameters():
        value = p.detach().numpy()
        is_linear = isinstance(model.get_submodule(name.rsplit(".", 1)[0]), torch.nn.Linear) and name.endswith(".weight")
        values[name] = value.T if is_linear else value  # PyTorch's (out, in) -> (in, out)
    return losses, norms, values


def main():
    workload, seed, kind, updates, path = sys.argv[1:]
    w = replace(WORKLOADS[workload], seed=int(seed))
    peer, compute, *rest = kind.split("-")
    residual = rest[0] if rest else compute
    if peer == "torch":
        losses, norms, values = by_torch(w, residual, int(updates))
    else:
        losses, norms, values = by_jax(w, compute, residual, int(updates))
    np.savez(path, loss=losses, gradient_norm=norms, **values)


if __name__ == "__main__":
    main()
