# REQUIRES: numpy
# RUN: %python %s
"""NaN between the tensors of all arenas changes no norm, no clip, no update, and stays there."""
import ctypes
import os
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import UNFUSED, gaps, module, stored, trainer  # noqa: E402

OPTIMIZERS = """train.optimizer @o = adamw<lr = 0.01, weight_decay = 0.1> ema(0.9)
train.optimizer @layer = lamb<lr = 0.01, weight_decay = 0.02>
"""
PARAMETERS = [("a", (7, 5), "f32", "o"), ("b", (1,), "f32", "layer"), ("c", (4097,), "f32", "layer"),
              ("d", (33,), "f32", "frozen"), ("e", (65,), "bf16", "o"), ("f", (31,), "bf16", "layer"),
              ("g", (3,), "f64", "free"), ("h", (19,), "f32", "o")]
FREE = "train.optimizer @free = sgd<lr = 0.1, momentum = 0.9>"
UPDATES, NAN = 4, 0xFF  # every float of bytes 0xFF is NaN


def run(text, options, spoil):
    """Reports, and all that is stored; the bytes of padding that were written."""
    rng = np.random.default_rng(5)
    seen, bytes_ = [], 0
    with trainer(text, *options) as t:
        padding = gaps(t) if spoil else []
        for address, size in padding:
            ctypes.memset(address, NAN, size)
            bytes_ += size
        for _ in range(UPDATES):
            for _ in range(2):
                result = t.step(**{f"g{n}": rng.standard_normal(s) * 0.1 for n, s, *_ in PARAMETERS})
            seen.append((result.loss, result.grad_norm, result.clip_factor, result.updated))
        for address, size in padding:
            if ctypes.string_at(address, size) != bytes([NAN]) * size:
                sys.exit(f"{options}: an update wrote into the padding")
        return (seen, stored(t)), bytes_


def main():
    for clip in ("", "clip(global_norm<1.0>)", "clip(param_norm<0.5>)", "clip(value<0.05>)"):
        text = module(OPTIMIZERS + FREE, PARAMETERS, f"accumulate(2) {clip}")
        want, _ = run(text, (), spoil=False)
        if not all(np.isfinite(want[0]).ravel()):
            sys.exit("the run itself is not finite")
        for options in ((), (UNFUSED,), ("--align-size=8",)):
            got, bytes_ = run(text, options, spoil=True)
            if not bytes_:
                sys.exit(f"{options}: there is no padding")
            if got != want:
                sys.exit(f"{clip} {options}: NaN in {bytes_} bytes of padding changes the result")
            print(f"{clip or 'no clip'} {' '.join(options)}: {bytes_} bytes of NaN change nothing", flush=True)


if __name__ == "__main__":
    main()
