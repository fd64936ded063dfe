# REQUIRES: numpy
# RUN: %python %s
"""Gradients that are finite in f32, but not their squares (above 1.8e19) or those of one alone (below 1e-23): the norm is
that of f64, the clip is by it, and no update is skipped, in every way to compile; infinity and NaN still skip, as do gradients
that are infinite once they are averaged."""
import os
import re
import sys

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "Inputs"))
from updates import WAYS, equal, module, parameters_of, trainer  # noqa: E402

OPTIMIZER = "train.optimizer @o = sgd<lr = 0.5>"
LAMB = "train.optimizer @o = lamb<lr = 0.5>"
PARAMETERS = [("a", (9001,), "f32", "o"), ("b", (33, 5), "f32", "o"), ("c", (70,), "bf16", "o")]
CLIPS = ["clip(global_norm<1.0>)", "clip(param_norm<1.0>)"]


def norm(values):
    return float(np.sqrt(np.sum(values.astype(np.float64)**2)))


def factors(clip, gradients):
    total = np.sqrt(sum(norm(g)**2 for g in gradients.values()))
    return {n: 1 / max(1, total if "global" in clip else norm(g)) for n, g in gradients.items()}, total


def main():
    rng = np.random.default_rng(3)
    for clip in CLIPS:
        for size in 1e25, 1e35, 1e-25:
            gradients = {n: (rng.standard_normal(s) * size).astype(np.float32) for n, s, *_ in PARAMETERS}
            gradients["a"][5] *= 3
            gradients["c"] = (gradients["c"].view("u4") & 0xFFFF0000).view("f4")  # its type has no more bits
            scale, total = factors(clip, gradients)
            first = None
            for options in WAYS:
                with trainer(module(OPTIMIZER, PARAMETERS, clip), *options) as t:
                    for n, s, *_ in PARAMETERS:
                        t.write(n, np.zeros(s))
                    result = t.step(**{f"g{n}": g for n, g in gradients.items()})
                    found = parameters_of(t)
                    if not result.updated or not abs(result.grad_norm / total - 1) < 1e-6:
                        sys.exit(f"{clip}, {size}, {options}: updated {result.updated}, norm {result.grad_norm} of {total}")
                    for n, g in gradients.items():
                        want = -0.5 * scale[n] * g.astype(np.float64)
                        error = norm(found[n] - want) / norm(want)
                        if not error < (4e-3 if n == "c" else 1e-6):
                            sys.exit(f"{clip}, {size}, {options}: {n} is off by {error}")
                    first = first or found
                    if not equal(first, found):
                        sys.exit(f"{clip}, {size}: {options} changes bits")
                    for bad in np.inf, -np.inf, np.nan:
                        before = parameters_of(t)
                        spoilt = {n: g.copy() for n, g in gradients.items()}
                        spoilt["b"][7, 2] = bad
                        result = t.step(**{f"g{n}": g for n, g in spoilt.items()})
                        if result.finite or result.updated or not equal(before, parameters_of(t)):
                            sys.exit(f"{clip}, {size}, {options}: {bad} was not seen")
            print(f"{clip}, {size}: norm {total:.6g}")
    # Norms of parameters, by which lamb scales.
    for options in WAYS:
        with trainer(module(LAMB, PARAMETERS[:1], ""), *options) as t:
            start = rng.standard_normal(9001).astype(np.float32) * np.float32(1e21)
            t.write("a", start)
            t.step(ga=rng.standard_normal(9001))
            moved = norm(parameters_of(t)["a"] - start) / norm(start)
            if not abs(moved - 0.5) < 1e-3:
                sys.exit(f"lamb, {options}: moved by {moved} of the parameter's norm")
    # Over a weight so small an average is no number of its type; what a clip makes of it is.
    gradient = np.full(9001, 1e30, np.float32)
    gradient[::2] = 0
    for clip, weight, updated in (("", 1e-10, False), ("", 1e-40, False), (CLIPS[0], 1e-10, True), (CLIPS[1], 1e-10, True),
                                  ("clip(value<1.0>)", 1e-10, True), ("", 1e-5, True)):
        text = re.sub(r"(@step\(.*?)\)", r"\1, %n: tensor<f64>)", module(OPTIMIZER, PARAMETERS[:1], clip))
        text = re.sub(r"(loss\(.*\)) : tensor<f64>", r"\1 weight(%n) : tensor<f64>, tensor<f64>", text)
        for options in WAYS:
            with trainer(text, *options) as t:
                t.write("a", np.zeros(9001))
                result = t.step(ga=gradient, n=weight)
                found = parameters_of(t)["a"]
                if bool(result.updated) != updated or not np.isfinite(found).all() or found.any() != updated:
                    sys.exit(f"{clip}, weight {weight}, {options}: updated {result.updated}, {found[:4]}")


if __name__ == "__main__":
    main()
