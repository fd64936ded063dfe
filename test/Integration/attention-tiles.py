# REQUIRES: jax, amx
# RUN: %python %s
"""Attention in bf16 and f32 and its gradient by tile registers, against JAX in f64 and on several threads.

Sizes are just above or below a panel, a block and a tile of queries; heads are of one to five tiles, whole or not. Errors are
those of gradients.py, in bf16 with its bar. In f32 each is at most twice that of the kernels without tile registers.
"""
import os
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs"), os.path.dirname(__file__)]

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from gradient_cases import Case, attend, attend_packed, normal, some, types  # noqa: E402
from gradients import BARS, check, errors_of, module, prepare, prepare_all, read_gradients  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

SIZES = {"bf16": ((2, 16, 20, 2, 1, 32), (2, 33, 47, 2, 1, 16), (1, 96, 160, 4, 2, 80), (1, 130, 70, 2, 1, 128), (1, 290, 290, 2, 2, 24)),
         "f32": ((1, 290, 270, 2, 1, 40), (2, 130, 200, 4, 2, 65))}
PACKED = {"bf16": ((2, 40, 3, 1, 64), (1, 65, 2, 2, 33)), "f32": ((1, 257, 2, 2, 33),)}


def cases(element):
    for i, (B, Tq, Tk, H, Hk, D) in enumerate(SIZES[element]):
        q, k, v = normal((B, Tq, H, D)), normal((B, Tk, Hk, D)), normal((B, Tk, Hk, D))
        op = "nn.attention {0}, {1}, {2}"
        for causal, word in ((False, ""), (True, " causal")):
            yield Case("attention", f"{op}{word} : {types(2)}", [q, k, v], lambda *a, c=causal: attend(*a, causal=c), 2)
            mask = normal((H, 1, Tk)) if (i + causal) % 2 else some((Tq, Tk))
            yield Case("attention", f"{op} mask {{3}}{word} scale 0.2 : {{t0}}, {{t1}}, {{t3}}", [q, k, v, mask],
                       lambda *a, c=causal: attend(*a, causal=c, scale=0.2), 2)
    yield Case("attention", f"{op} scale -0.2 : {types(2)}", [q, k, v], lambda *a: attend(*a, scale=-0.2), 2)
    # Scores that rise and fall by far more than the slack of a shift.
    yield Case("attention", f"{op} scale 1.0 : {types(2)}", [q, k, v], lambda *a: attend(*a, scale=1.0), 2)
    for B, T, H, Hk, D in PACKED[element]:
        x = normal((B, T, (H + 2 * Hk) * D))
        heads, settings = f"heads {H}" + (f" kv_heads {Hk}" if Hk != H else ""), dict(heads=H, kv_heads=Hk)
        for causal, word in ((False, ""), (True, " causal")):
            yield Case("packed_attention", f"nn.packed_attention {{0}} {heads}{word} : {{t0}}", [x],
                       lambda x, c=causal, s=settings: attend_packed(x, causal=c, **s), 2)


def results(library, prepared, threads):
    """Bytes of results and gradients."""
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=threads) as trainer:
        for p in prepared:
            prepare(trainer, p)
        trainer.step()
        return b"".join(trainer.eval(f"f{p.number}")["r"].tobytes() for p in prepared) + b"".join(
            np.asarray(trainer.read(name, "gradient")).tobytes() for p in prepared for name in p.parameters)


def keeps_nan(library, p):
    """Whether a query that is no number makes its own result none, and no other."""
    name, value = next((name, np.array(p.operands[i])) for name, i in p.parameters.items())
    value[0, 1, 0, 0] = np.nan
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        for other, i in p.parameters.items():
            trainer.write(other, value if other == name else p.operands[i])
        trainer.bind(f"f{p.number}", **p.inputs)
        found = np.isnan(trainer.eval(f"f{p.number}")["r"])
    return found[0, 1, 0].all() and found.sum() == found.shape[-1]


def errors_by(library, p):
    """Of the result and of each gradient."""
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        prepare(trainer, p)
        for _ in range(2):
            trainer.step()
        return errors_of(trainer, p, read_gradients(trainer, p))


def uses_tiles(library):
    return "tdpbf16ps" in subprocess.run(["llvm-objdump", "-d", library], check=True, capture_output=True, text=True).stdout


def compare(cases, folder):
    """{case name: largest error in f32 by tile registers, relative to that without}."""
    ratios = {}
    for case in cases:
        p, = prepare_all([case], "f32")
        tiles, plain = (errors_by(compile_module(module([p]), os.path.join(folder, "one.so"), *options), p)
                        for options in ((), ("--target-cpu=x86-64-v4",)))
        ratios[case.name] = float(np.max(np.array(tiles) / plain))
    return ratios


def failures(of_op, op, element, folder):
    """Texts."""
    errors, bar = check(of_op, element, folder), BARS[element]
    if element == "f32":
        errors, bar = compare(of_op, folder), 2.0
    for name, error in errors.items():
        print(f"{error:.1e}  {name}")
        if not error < bar:  # NaN is bad
            yield f"{name}: {error:.1e} is too large"
    library = os.path.join(folder, "op.so")
    if not uses_tiles(library):
        yield f"{op}: not by tile registers"
    prepared = prepare_all(of_op, element)
    if op == "attention" and not keeps_nan(library, prepared[0]):
        yield "a query that is no number changes other results, or not its own"
    one = results(library, prepared, 1)
    for threads in (2, 3):
        if results(library, prepared, threads) != one:
            yield f"{op}: {threads} threads give other bits"


def main():
    bad = []
    for element in SIZES:
        chosen = list(cases(element))
        for op in ("attention", "packed_attention"):
            with tempfile.TemporaryDirectory() as folder:
                bad += failures([case for case in chosen if case.op == op], op, element, folder)
    print("\n".join(bad))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
