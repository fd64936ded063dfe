"""Causal attention in PyTorch, forward and backward: scaled_dot_product_attention in f32 or bf16, each tensor laid out as it
likes best. What it reports as losses are the norms of the gradients of q, k and v."""
import time

import measure
from workloads import ATTENTION, CHECKED_STEPS, attention_inputs

a = measure.arguments(mode=["eager", "compile"])
if a.workload not in ATTENTION:
    raise SystemExit(f"attention_peer.py: expects one of {', '.join(ATTENTION)}")

import torch  # noqa: E402  (after the threads are pinned)
from torch.nn import functional as F  # noqa: E402

torch.set_num_threads(a.threads)
kind = torch.bfloat16 if a.bf16 else torch.float32
q, k, v, g = (torch.from_numpy(x).transpose(1, 2).contiguous().to(kind)
              for x in attention_inputs(ATTENTION[a.workload]).values())
inputs = [x.requires_grad_() for x in (q, k, v)]


def attention(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


forward = torch.compile(attention) if a.mode == "compile" else attention


def step():
    for x in inputs:
        x.grad = None
    forward(*inputs).backward(g)


def timed():
    start = time.perf_counter()
    step()
    return time.perf_counter() - start


first = [timed() for _ in range(CHECKED_STEPS)]
norms = [x.grad.double().norm().item() for x in inputs]
if a.serve:
    measure.serve(f"torch-sdpa-{a.mode}", a, norms, step,
                  settings=f"torch {torch.__version__}, scaled_dot_product_attention, {a.mode}")
measure.step_peak_rss_mb(reset=True)
foreign = measure.Foreign()
times = [timed() for _ in range(a.steps)]
measure.report(f"torch-sdpa-{a.mode}", a, times, None, first[0] - min(times), norms, foreign.cores(),
               measure.step_peak_rss_mb())
