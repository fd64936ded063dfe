"""One training step in tinygrad (TinyJit, CPU device): mlp-tiny and digits-cnn in f32. Install tinygrad==0.14.0 first."""
import os
import tempfile
import time
from importlib import metadata

import measure
from workloads import CHECKED_STEPS, OPTIMIZER, WORKLOADS, batches, initial_values

a = measure.arguments()
w = WORKLOADS[a.workload]
if w.kind not in ("mlp", "cnn") or a.bf16:
    raise SystemExit("tinygrad_peer.py: mlp-tiny and digits-cnn in f32 only")
cache = tempfile.TemporaryDirectory()
os.environ.update(DEV="CPU", XDG_CACHE_HOME=cache.name)  # a cold compilation

from tinygrad import Context, Tensor, TinyJit  # noqa: E402
from tinygrad.nn.optim import AdamW  # noqa: E402

p = {name: Tensor(v).realize() for name, v in initial_values(w)}
(x, y), = batches(w)
x, y = Tensor(x).is_param_(False).realize(), Tensor(y).is_param_(False).realize()
o = OPTIMIZER
optimizer = AdamW(list(p.values()), o["lr"], o["beta1"], o["beta2"], o["eps"], o["weight_decay"])


def logits():
    if w.kind == "mlp":
        return (x @ p["fc1.weight"] + p["fc1.bias"]).relu() @ p["fc2.weight"] + p["fc2.bias"]
    h = x.conv2d(p["conv1.weight"], p["conv1.bias"], padding=1).relu()
    h = h.conv2d(p["conv2.weight"], p["conv2.bias"], padding=1).relu().max_pool2d(2)
    return h.flatten(1) @ p["fc.weight"] + p["fc.bias"]


@TinyJit
def step():
    optimizer.zero_grad()
    loss = logits().sparse_categorical_crossentropy(y).backward()
    norm = sum(t.grad.square().sum() for t in p.values()).sqrt()
    for t in p.values():
        t.grad = t.grad * (o["clip_norm"] / norm.maximum(o["clip_norm"]))
    return loss.realize(*optimizer.schedule_step())


def timed():
    t = time.perf_counter()
    loss = step().item()
    times.append(time.perf_counter() - t)
    return loss


times = []
with Context(TRAINING=1):
    losses = [timed() for _ in range(CHECKED_STEPS)]  # TinyJit runs, captures, then replays
    first = sum(times[:2])
    if a.serve:
        measure.serve("tinygrad", a, losses, timed, settings=f"tinygrad {metadata.version('tinygrad')}, TinyJit")
    measure.step_peak_rss_mb(reset=True)
    foreign, times = measure.Foreign(), []
    for _ in range(a.steps):
        timed()
measure.report("tinygrad", a, times, None, first - 2 * min(times), losses, foreign.cores(), measure.step_peak_rss_mb())
