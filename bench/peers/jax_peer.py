"""One training step in JAX: one jit with donated parameters and state, optax clip_by_global_norm + adamw."""
import os
import time

import measure
from workloads import ALL_WORKLOADS, CHECKED_STEPS, gradients

a = measure.arguments()

import jax  # noqa: E402  (after the threads are pinned)
import jax.numpy as jnp  # noqa: E402
import optax  # noqa: E402

from jax_models import load, load_data, loss_and_gradients, optimizer, update  # noqa: E402

w = ALL_WORKLOADS[a.workload]


def timed(f, n):
    times = []
    for _ in range(n):
        t = time.perf_counter()
        f()
        times.append(time.perf_counter() - t)
    return times


def compiled(f, *args):
    """(f as one executable that donates its first two arguments, seconds); the call goes through jit's fast path."""
    f = jax.jit(f, donate_argnums=(0, 1))
    t = time.perf_counter()
    f.lower(*args).compile()
    return f, time.perf_counter() - t


class Run:
    def __init__(self):
        self.params = load(w)
        self.state = optimizer.init(self.params)

    def train(self):
        data = load_data(w)

        def step(p, state, data):
            loss, grads = loss_and_gradients(w, jnp.bfloat16 if a.bf16 else jnp.float32, p, data)
            return *update(p, state, grads), loss

        step, compile_s = compiled(step, self.params, self.state, data)

        def once():
            self.params, self.state, loss = step(self.params, self.state, data)
            return loss.block_until_ready()

        return once, compile_s

    def optimize(self, grads):
        def apply(p, state, grads):
            p, state = update(p, state, grads)
            return p, state, [v.astype(jnp.bfloat16) for v in p.values()] if a.bf16 and w.kind == "optimizer" else ()

        apply, compile_s = compiled(apply, self.params, self.state, grads)

        def once():
            self.params, self.state, self.copies = apply(self.params, self.state, grads)
            jax.block_until_ready(self.params)

        return once, compile_s

    def norm(self):
        with jax.enable_x64():
            return float(sum(jnp.sum(jnp.square(v.astype(jnp.float64))) for v in self.params.values())) ** 0.5


run = Run()
losses = []
if w.kind == "optimizer":
    once, compile_s = run.optimize({k: jnp.array(g) for k, g in gradients(w)})
    for _ in range(CHECKED_STEPS):
        once()
        losses.append(run.norm())
else:
    once, compile_s = run.train()
    losses = [float(once()) for _ in range(CHECKED_STEPS)]
SETTINGS = f"jax {jax.__version__}, optax {optax.__version__}, one jit, donated state, XLA_FLAGS '{os.environ.get('XLA_FLAGS', '')}'"
if a.serve:
    measure.serve("jax", a, losses, once, settings=SETTINGS,
                  precision="bf16, residual stream in bf16" if a.bf16 and w.kind == "gpt" else None)
measure.step_peak_rss_mb(reset=True)
foreign = measure.Foreign()
times = timed(once, a.steps)
foreign, step_rss = foreign.cores(), measure.step_peak_rss_mb()
peak = measure.peak_rss_mb()  # before the separate optimizer function below
opt = times
if w.kind != "optimizer":
    once, _ = run.optimize(jax.tree.map(lambda v: jnp.full_like(v, 1e-3), run.params))
    timed(once, 3)
    opt = timed(once, min(a.steps, 200))
measure.report("jax", a, times, opt, compile_s, losses, foreign, step_rss, peak, settings=SETTINGS)
