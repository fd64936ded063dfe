"""A worker of fuzz.py that runs artifacts. Each line of standard input names a JSON file

  {"variants": {"default": LIBRARY, ...}, "inputs": {ENTRY: {NAME: [SHAPE, TYPE, BOUND]}}, "seed": S,
   "tolerance": T, "rounding": R}

and is answered by `equal`, `differs<TAB>where`, or `failed<TAB>message`. Three updates on random inputs must give the same
results and tensors, bit for bit; the first on 2 threads, the others on 1, or each on one of "threads". If the tolerance is
not null, the variants `reference` and `cuda`, which runs on the emulated GPU of tests, may be off by it, after one update: further
ones of a random model enlarge any difference. Where one is off by more, the module may be ill-conditioned: it may then be off by
twice (each of the two sums has its own roundings) the most that it moves itself when inputs and parameters are multiplied by 1 + R
or 1 - R at random, NUDGES times.
"""
import json
import os
import sys
import threading

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

UPDATES, NUDGES = 3, 4
TYPES = {"f32": np.float32, "f64": np.float64, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64}
SCALARS = ("loss", "weight", "window_loss", "window_weight", "grad_norm", "clip_factor", "finite", "updated")


def draw(rng, spec, nudge):
    return {name: rng.integers(0, bound, shape) if bound else rng.integers(0, 2, shape).astype(bool) if kind == "i1"
            else nudge(rng.standard_normal(shape)) for name, (shape, kind, bound) in spec.items()}


def as_it_is(array):
    return array


def run(runtime, library, inputs, seed, threads, updates=UPDATES, device=b"cpu", nudge=as_it_is):
    """{what: array} of everything that can be read."""
    rng, seen = np.random.default_rng(seed), {}
    with Trainer(runtime, library, threads=threads, seed=seed, device=device) as trainer:
        for role, name, _ in trainer.tensors:
            if role == "parameter" and nudge is not as_it_is:
                trainer.write(name, nudge(trainer.read(name)))
        entry = trainer.descriptor.entries[trainer.entries["step"]]
        for i in range(updates * entry.accumulate):
            result = trainer.step(**draw(rng, inputs["step"], nudge))
            for name in SCALARS:
                seen[f"{name} of call {i}", "result"] = np.float64(getattr(result, name))
            for name, value in trainer.outputs().items():
                seen[f"output {name} of call {i}", "step output"] = value
        for role, name, state in trainer.tensors:
            if role in ("parameter", "gradient", "state", "buffer"):
                seen[" ".join(filter(None, (role, name, state))), role] = trainer.read(name, role, state)
        if "eval" in inputs:
            for name, value in trainer.eval("eval", **draw(rng, inputs["eval"], nudge)).items():
                seen[f"output {name}", "output"] = value
    return seen


def distance(a, b):
    return float(np.linalg.norm(np.float64(a) - np.float64(b)))


def moved(want, job, *arguments):
    """{what: the most that it moves} when all that is given is off by a rounding."""
    most = dict.fromkeys(want, 0.0)
    for i in range(NUDGES):
        rng = np.random.default_rng([job["seed"], i])
        seen = run(*arguments, nudge=lambda array: array * (1 + job["rounding"] * rng.choice([-1.0, 1.0], array.shape)))
        most = {key: max(most[key], distance(seen[key], w)) for key, w in want.items()}
    return most


def different(got, want, tolerance, allowed=None):
    """What is not equal, or an empty string."""
    scale = {}
    for (_, role), w in want.items():
        scale[role] = max(scale.get(role, 0.0), float(np.linalg.norm(np.nan_to_num(np.float64(w)))))
    for key, w in want.items():
        g = got[key]
        if np.array_equal(g, w, equal_nan=w.dtype.kind == "f"):
            continue
        off = distance(g, w)
        if allowed and off <= 2 * allowed[key]:
            continue
        if tolerance is not None and (off <= tolerance * (scale[key[1]] + 1e-3) or not np.isfinite(off)):
            continue
        return f"{key[0]}: off by {off:.3g} of {float(np.linalg.norm(np.float64(w))):.3g}"
    return ""


def answer(runtime, path):
    with open(path) as f:
        job = json.load(f)
    default, want, allowed = next(iter(job["variants"].values())), None, None
    threads = job.get("threads") or [2] + [1] * len(job["variants"])
    for i, (variant, library) in enumerate(job["variants"].items()):
        tolerance = job["tolerance"] if variant in ("reference", "cuda") else None
        updates = UPDATES if tolerance is None else 1
        try:
            arguments = runtime, library, job["inputs"], job["seed"], threads[i], updates, b"cuda" if variant == "cuda" else b"cpu"
            seen = run(*arguments)
            if tolerance is not None:
                want = run(runtime, default, job["inputs"], job["seed"], 2, updates)
                if different(seen, want, tolerance):
                    allowed = moved(seen, job, *arguments)
        except Error as error:
            return f"failed\t{variant}: {error}"
        if want is None:
            want = seen
        elif where := different(seen, want, tolerance, allowed):
            return f"differs\t{variant}: {where}"
    return "equal\t"


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    for line in sys.stdin:
        print(answer(runtime, line.strip()), flush=True)


if __name__ == "__main__":
    threading.stack_size(1 << 18)  # kernels are not to need much
    thread = threading.Thread(target=main)
    thread.start()
    thread.join()
