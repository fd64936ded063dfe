"""One training step in PyTorch: eager or torch.compile, fused or foreach AdamW, f32 or autocast to bf16, on the CPU or a GPU.

On a GPU --mode reduce-overhead is torch.compile's own CUDA graphs; graph is one graph of the compiled step and its update (of
optimizer workloads: of the update), and max-autotune the same of a step compiled in the mode max-autotune-no-cudagraphs.
"""
import os
import tempfile
import time
from contextlib import nullcontext

import measure
from workloads import ALL_WORKLOADS, CHECKED_STEPS, OPTIMIZER, batches, gradients, initial_values

COMPILED = dict(compile=None, graph=None, **{"reduce-overhead": "reduce-overhead", "max-autotune": "max-autotune-no-cudagraphs"})
CAPTURED = ["graph", "max-autotune"]

a = measure.arguments(mode=["eager", *COMPILED], optimizer=["fused", "foreach", "compiled"], device=["cpu", "cuda"],
                      precision=["highest", "high"])  # of products in f32; high is TF32
cache = tempfile.TemporaryDirectory()
if a.device == "cpu":
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name  # compile_s is a cold compilation

import torch  # noqa: E402  (after the threads are pinned)
from torch import nn  # noqa: E402

from torch_models import build, loss_of  # noqa: E402

torch.set_num_threads(a.threads)
torch.set_float32_matmul_precision(a.precision)
w = ALL_WORKLOADS[a.workload]
NAME = f"torch-{a.mode}-{a.optimizer}"
SETTINGS = (f"torch {torch.__version__}, {a.mode}, {a.optimizer} AdamW, foreach clip_grad_norm_, float32_matmul_precision {a.precision},"
            f" ATen {torch.backends.cpu.get_cpu_capability() if a.device == 'cpu' else torch.cuda.get_device_name()}")
PRECISION = "bf16 by autocast, residual stream in f32" if a.bf16 and w.kind == "gpt" else None
wait = torch.cuda.synchronize if a.device == "cuda" else None


def now():
    if wait:
        wait()
    return time.perf_counter()


def make_optimizer(params):
    o = OPTIMIZER
    return torch.optim.AdamW(params, lr=o["lr"], betas=(o["beta1"], o["beta2"]), eps=o["eps"],
                             weight_decay=o["weight_decay"], fused=a.optimizer == "fused",
                             foreach=a.optimizer != "fused", capturable=a.mode in CAPTURED)


def update(params, optimizer):
    nn.utils.clip_grad_norm_(params, OPTIMIZER["clip_norm"], foreach=True)
    optimizer.step()


def served(step):
    """The step, or what launches it as one graph."""
    if a.mode not in CAPTURED:
        return step
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def time_training():
    model = build(w).to(a.device)
    params = list(model.parameters())
    optimizer = make_optimizer(params)
    data = [(torch.from_numpy(x).to(a.device), torch.from_numpy(y).long().to(a.device)) for x, y in batches(w)]
    forward = torch.compile(loss_of, dynamic=False, mode=COMPILED[a.mode]) if a.mode in COMPILED else loss_of
    apply = torch.compile(update) if a.optimizer == "compiled" else update
    autocast = torch.autocast(a.device, dtype=torch.bfloat16) if a.bf16 else nullcontext()

    def step():
        total = 0.0
        if a.mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        for x, y in data:
            with autocast:
                loss = forward(model, x, y)
            (loss / len(data) if len(data) > 1 else loss).backward()
            total += loss.detach()
        return total

    def finish():
        apply(params, optimizer)
        optimizer.zero_grad(set_to_none=True)

    losses, first = [], []
    for _ in range(CHECKED_STEPS):
        t = time.perf_counter()
        losses.append(step().item() / len(data))
        finish()
        first.append(now() - t)
    if a.serve:
        measure.serve(NAME, a, losses, served(lambda: (step(), finish())), wait, settings=SETTINGS, precision=PRECISION)
    measure.step_peak_rss_mb(reset=True)
    foreign, times, opt = measure.Foreign(), [], []
    for _ in range(a.steps):
        t = time.perf_counter()
        step()
        middle = now()
        finish()
        end = now()
        times.append(end - t)
        opt.append(end - middle)
    return times, opt, first[0] - min(times), losses, foreign.cores()


def time_optimizer():
    params = [nn.Parameter(torch.from_numpy(v).to(a.device)) for _, v in initial_values(w)]
    for p, (_, g) in zip(params, gradients(w)):
        p.grad = torch.from_numpy(g).to(a.device)
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
            first.append(now() - t)
            norms.append(sum(p.double().square().sum().item() for p in params) ** 0.5)
        if a.serve:
            measure.serve(NAME, a, norms, served(lambda: apply(params, optimizer)), wait, settings=SETTINGS)
        measure.step_peak_rss_mb(reset=True)
        foreign, times = measure.Foreign(), []
        for _ in range(a.steps):
            t = time.perf_counter()
            apply(params, optimizer)
            times.append(now() - t)
    return times, times, first[0] - min(times), norms, foreign.cores()


times, opt, compile_s, losses, foreign = (time_optimizer if w.kind == "optimizer" else time_training)()
measure.report(NAME, a, times, opt, compile_s, losses, foreign, measure.step_peak_rss_mb(), settings=SETTINGS)
