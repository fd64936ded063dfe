#!/usr/bin/env python3
"""One training step of a model of models/full.py: by trainc, or by PyTorch with its fused AdamW, eager or compiled.

usage: model_step.py MODEL trainc|eager|compile|max-autotune [--threads N] [--bf16] [--target-cpu CPU] (--serve | --memory | --work)

--serve times N steps for each line N of standard input, as the peers do. --memory prints a line of JSON: the peak of the
resident set in MB over three steps, that after the imports, the parameters, and the losses; of trainc also the peak of a process that loads the
artifact and has no PyTorch (load_step.py). --work prints trainc's report of what the step has to compute and move.
Runs in .venv-torch.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from types import SimpleNamespace

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, folder) for folder in ("python", "bench", os.path.join("bench", "peers"))]

import measure  # noqa: E402
from common import BUILD, tool  # noqa: E402

os.environ["TRAINC_BUILD"] = BUILD

LEARNING_RATE, STEPS = 1e-4, 3
MODES = {"compile": None, "max-autotune": "max-autotune-no-cudagraphs"}


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("by", choices=["trainc", "eager", *MODES])
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--target-cpu", help="of trainc's code")
    p.add_argument("--serve", action="store_true")
    p.add_argument("--work", action="store_true")
    p.add_argument("--memory", action="store_true")
    a = p.parse_args()
    measure.refuse_slow_openblas()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:a.threads])
    return a


a = arguments()
cache = tempfile.TemporaryDirectory()
os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache.name  # compilation is cold

import torch  # noqa: E402  (after the threads are pinned)

from models import full, loss_of  # noqa: E402

torch.set_num_threads(a.threads)
imports_mb = measure.step_peak_rss_mb()


def by_trainc(example):
    import trainc.torch
    optimizer = torch.optim.AdamW(example.model.parameters(), LEARNING_RATE)
    exported = trainc.torch.export(example.model, example.batch, example.loss, optimizer, precision="bf16" if a.bf16 else None)
    if a.work:
        done = subprocess.run([tool("trainc"), "--work-report=json", "-"], input=exported.text, text=True, check=True)
        sys.exit(done.returncode)
    batch = example.batch
    with tempfile.TemporaryDirectory() as folder:
        library = trainc.compile(exported, os.path.join(folder, "step.so"), target_cpu=a.target_cpu)
        apart = alone(exported, batch, folder) if a.memory else {}
        step = exported.load(library, threads=a.threads)
    # The model's own memory and the exporter's goes: what is measured is a process that trains.
    for tensor in [*example.model.parameters(), *example.model.buffers()]:
        tensor.data = torch.empty(0, dtype=tensor.dtype)
    del exported, optimizer
    run = (lambda: step(**batch)) if isinstance(batch, dict) else (lambda: step(*batch))
    settings = f"trainc {trainc.__version__} from torch {torch.__version__}" + (f", --target-cpu={a.target_cpu}" if a.target_cpu else "")
    return lambda: run().loss, settings, apart


def alone(exported, batch, folder):
    """The peak of a process without PyTorch that trains what was exported, and compiled into `folder`."""
    import numpy as np
    (entry, inputs), = exported.inputs.items()
    given = batch if isinstance(batch, dict) else dict(zip(exported.batches[entry], batch))
    exported.save_weights(os.path.join(folder, "weights.safetensors"))
    for name in inputs:
        np.save(os.path.join(folder, f"{name}.npy"), given[name].numpy())
    with open(os.path.join(folder, "batch.json"), "w") as f:
        json.dump(list(inputs), f)
    done = subprocess.run([sys.executable, os.path.join(ROOT, "bench", "load_step.py"), folder, str(a.threads)], check=True,
                          capture_output=True, text=True)
    return {f"alone_{key}": value for key, value in json.loads(done.stdout).items()}


def by_torch(example):
    optimizer = torch.optim.AdamW(example.model.parameters(), LEARNING_RATE, fused=True)
    forward = torch.compile(loss_of, dynamic=False, mode=MODES[a.by]) if a.by in MODES else loss_of
    autocast = torch.autocast("cpu", torch.bfloat16) if a.bf16 else nullcontext()

    def step():
        with autocast:
            loss = forward(example)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()
    return step, f"torch {torch.__version__}, {a.by}, fused AdamW, ATen {torch.backends.cpu.get_cpu_capability()}", {}


def main():
    example, what = full.build(a.model)
    parameters = sum(p.numel() for p in example.model.parameters())
    begin = time.perf_counter()
    step, settings, apart = (by_trainc if a.by == "trainc" else by_torch)(example)
    losses = [step() for _ in range(STEPS)]
    settings += f", ready after {time.perf_counter() - begin:.0f} s"
    if a.serve:
        measure.serve(a.by, SimpleNamespace(workload=a.model, bf16=a.bf16, threads=a.threads), losses, step, settings=settings,
                      precision="bf16 by autocast" if a.bf16 and a.by != "trainc" else None, data=what)
    measure.step_peak_rss_mb(reset=True)
    for _ in range(STEPS):
        losses.append(step())
    print(json.dumps(dict(peak_mb=measure.step_peak_rss_mb(), imports_mb=imports_mb, parameters=parameters, loss=losses,
                          settings=settings, **apart)))


if __name__ == "__main__":
    main()
