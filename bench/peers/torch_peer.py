"""One training step in PyTorch: eager or torch.compile, fused or foreach AdamW, f32 or CPU autocast to bf16."""
import os
import tempfile
import time
from contextlib import nullcontext

import measure
from workloads import CHECKED_STEPS, OPTIMIZER, WORKLOADS, batches, gradients, initial_values

a = measure.arguments(mode=["eager", "compile"], optimizer=["fused", "foreach", "compiled"])
cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name  # compile_s is a cold compilation

import torch  # noqa: E402  (after the threads are pinned)
from torch import nn  # noqa: E402

from torch_models import build, loss_of  # noqa: E402

torch.set_num_threads(a.threads)
w = WORKLOADS[a.workload]
NAME = f"torch-{a.mode}-{a.optimizer}"


def make_optimizer(params):
    o = OPTIMIZER
    return torch.optim.AdamW(params, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                             weight_decay=o["weight_decay"], fused=a.optimizer == "fused",
                             foreach=a.optimizer != "fused")


def update(params, optimizer):
    nn.utils.clip_grad_norm_(params, OPTIMIZER["clip_norm"], foreach=True)
    optimizer.step()


def time_training():
    model = build(w)
    params = list(model.parameters())
    optimizer = make_optimizer(params)
    data = [(torch.from_numpy(x), torch.from_numpy(y).long()) for x, y in batches(w)]
    forward = torch.compile(loss_of, dynamic=False) if a.mode == "compile" else loss_of
    apply = torch.compile(update) if a.optimizer == "compiled" else update
    autocast = torch.autocast("cpu", dtype=torch.bfloat16) if a.bf16 else nullcontext()

    def step():
        total = 0.0
        for x, y in data:
            with autocast:
                loss = forward(model, x, y)
            (loss / len(data) if len(data) > 1 else loss).backward()
            total += loss.detach()
        t = time.perf_counter()
        apply(params, optimizer)
        optimizer.zero_grad(set_to_none=True)
        return total, time.perf_counter() - t

    losses, first = [], []
    for _ in range(CHECKED_STEPS):
        t = time.perf_counter()
        losses.append(step()[0].item() / len(data))
        first.append(time.perf_counter() - t)
    if a.serve:
        measure.serve(NAME, a, losses, step)
    measure.step_peak_rss_mb(reset=True)
    foreign, times, opt = measure.Foreign(), [], []
    for _ in range(a.steps):
        t = time.perf_counter()
        opt.append(step()[1])
        times.append(time.perf_counter() - t)
    return times, opt, first[0] - min(times), losses, foreign.cores()


def time_optimizer():
    params = [nn.Parameter(torch.from_numpy(v)) for _, v in initial_values(w)]
    for p, (_, g) in zip(params, gradients(w)):
        p.grad = torch.from_numpy(g)
    optimizer = make_optimizer(params)
    copies = [p.detach().to(torch.bfloat16) for p in params] if a.bf16 else []

    def step(params, optimizer):
        update(params, optimizer)
        if copies:
            torch._foreach_copy_(copies, params)

    apply = torch.compile(step) if a.optimizer == "compiled" else step
    norms, first = [], []
    with torch.no_grad():
        for _ in range(CHECKED_STEPS):
            t = time.perf_counter()
            apply(params, optimizer)
            first.append(time.perf_counter() - t)
            norms.append(sum(p.double().square().sum().item() for p in params) ** 0.5)
        if a.serve:
            measure.serve(NAME, a, norms, lambda: apply(params, optimizer))
        measure.step_peak_rss_mb(reset=True)
        foreign, times = measure.Foreign(), []
        for _ in range(a.steps):
            t = time.perf_counter()
            apply(params, optimizer)
            times.append(time.perf_counter() - t)
    return times, times, first[0] - min(times), norms, foreign.cores()


times, opt, compile_s, losses, foreign = (time_optimizer if w.kind == "optimizer" else time_training)()
measure.report(NAME, a, times, opt, compile_s, losses, foreign, measure.step_peak_rss_mb())
