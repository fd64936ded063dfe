# REQUIRES: jax
# RUN: %python %s %runtime_lib/libtrainc_emulator.so --quick
"""Every op and its gradient as GPU kernels: on the emulator against JAX and against the CPU target.

usage: operations.py EMULATOR [--json FILE] [--types TYPE,...] [--small] [--quick] [OP ...]

The cases are those of test/Integration/gradients.py, and so are the modules: per op and type one, with an eval per case and
a step of two micro-steps. The emulator runs their kernels, NumPy their products of matrices. The error of a case is the
norm of the difference from JAX in f64 over the norm, the largest of results and gradients. It is to be less than the bar
of the type or, where the CPU target is not within it either, less than 1.5 times the CPU target's.
"""
import argparse
import json
import os
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(HERE))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration"),
                os.path.join(ROOT, "test", "Target", "GPU", "Inputs"), os.path.join(HERE, "Inputs")]

from common import RUNTIME_LIBRARY, Failed, compile_module  # noqa: E402
from emulator import Fault  # noqa: E402
from gradients import BARS, all_cases, distance, module, prepare_all  # noqa: E402
from lists import Lists  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

SMALL = 400
WORSE = 1.5
# Ops whose kernels are unlike those of others: what --quick takes, in one type each.
QUICK = {"f32": ["part", "scatter_add", "batch_norm", "conv2d", "max_pool2d"],
         "bf16": ["gather", "cross_entropy", "embedding", "conv2d"], "f16": ["softmax", "avg_pool2d"]}


def errors_of(p, result, gradients):
    return float(np.max([distance(result, p.result)] + [distance(g, p.gradients[name]) for name, g in gradients.items()]))


def on_cpu(prepared, text, folder, lists):
    """{case number: error}; sets the scalars of the lists, and the scale of gradients with them."""
    library = compile_module(text, os.path.join(folder, "op.so"))
    errors = {}
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        for p in prepared:
            for name, i in p.parameters.items():
                trainer.write(name, p.operands[i])
            trainer.bind(f"f{p.number}", **p.inputs)
            trainer.bind("step", **p.inputs, **{f"w{p.number}": p.weights})
        for name, memory in lists.scalars.items():
            memory[...] = trainer.scalar(name)
        for _ in range(2):
            trainer.step()
        scale = trainer.scalar("read_scale")
        for p in prepared:
            gradients = {name: trainer.read(name, "gradient").astype(np.float64) * scale for name in p.parameters}
            errors[p.number] = errors_of(p, trainer.eval(f"f{p.number}")["r"], gradients)
    return errors, scale


def on_emulator(prepared, lists, scale):
    """{case number: error}"""
    inputs = []
    for p in prepared:
        for name, i in p.parameters.items():
            lists.set(name, p.operands[i], "master")
        inputs += [*p.inputs.values(), p.weights]
    for name in ("step.first", "step.next"):
        lists.run(name, inputs)
    errors = {}
    for p in prepared:
        result, = lists.run(f"f{p.number}.first", p.inputs.values())
        gradients = {name: lists.get(name, "grad").astype(np.float64) * scale for name in p.parameters}
        errors[p.number] = errors_of(p, result.reshape(p.result.shape), gradients)
    return errors


def check(cases, element, emulator):
    """{case name: (error, CPU target's error)}, launches"""
    prepared = prepare_all(cases, element)
    text = module(prepared)
    with tempfile.TemporaryDirectory() as folder:
        lists = Lists(text, emulator, folder, "--disable-pass=train-hoist-casts")
        cpu, scale = on_cpu(prepared, text, folder, lists)
        gpu = on_emulator(prepared, lists, scale)
        lists.close()
    return {f"{p.case.name} {element}": (gpu[p.number], cpu[p.number]) for p in prepared}, lists.launches


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("emulator", metavar="EMULATOR")
    p.add_argument("ops", nargs="*", metavar="OP")
    p.add_argument("--types", default="f32,bf16,f16")
    p.add_argument("--json", help="write {case: [error, the CPU target's] or text} here")
    p.add_argument("--small", action="store_true", help=f"only cases of at most {SMALL} elements")
    p.add_argument("--quick", action="store_true", help="some ops, small cases")
    a = p.parse_intermixed_args()
    by_op = {}
    for case in all_cases():
        if not ((a.small or a.quick) and sum(np.size(o) for o in case.operands) > SMALL):
            by_op.setdefault(case.op, []).append(case)
    results, bad = {}, []
    for element in a.types.split(","):
        for op, cases in by_op.items():
            if op not in (a.ops or (QUICK[element] if a.quick else by_op)):
                continue
            try:
                errors, launches = check(cases, element, a.emulator)
            except (Failed, Error, Fault, NotImplementedError, AssertionError) as e:
                results[f"{op} {element}"] = str(e)
                print(f"{op:22} {element:4} {e}", flush=True)
                continue
            results |= errors
            worst = max(errors, key=lambda name: errors[name][0])
            alone = sorted(k for k, l in launches.items() if l["workgroups"] == 1 and l["threads"] == 1024 and k != "k_sum_norm")
            print(f"{op:22} {element:4} {len(errors):3} cases  {errors[worst][0]:.1e}, CPU {errors[worst][1]:.1e}  {worst}"
                  + f"  (of one block: {' '.join(alone)})" * bool(alone), flush=True)
            bad += [f"{k}: {e:.1e}, CPU {c:.1e}" for k, (e, c) in errors.items() if not e < max(BARS[element], WORSE * c)]
    bad += [f"{k}: {v}" for k, v in results.items() if isinstance(v, str)]
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    print(f"{len(results)} results, {len(bad)} bad")
    for text in bad:
        print(f"  {text}")
    return not results or bool(bad)


if __name__ == "__main__":
    sys.exit(main())
