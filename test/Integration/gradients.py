# REQUIRES: jax
# RUN: %python %s --quick
# RUN: %python %s --quick --type bf16 packed_attention
# RUN: %python %s --quick --type f16 packed_attention
"""Compares the gradient of every op with JAX and with finite differences, in f64.

usage: gradients.py [--json FILE] [--type f64|f32|bf16|f16] [--quick] [OP ...]

Per op one module: its loss is the sum over the op's cases (Inputs/gradient_cases.py) of random weights times the results; two
equal micro-steps make a window, after which the gradients are read. The error of a case is the largest of: results
against JAX, gradients against JAX, gradients against central differences of the compiled op itself; each the norm of the
difference over the norm. Exits 1 if one is 1e-6 or more, or if an op has no case. --quick leaves large cases out.

In other types there are no differences: the op, given operands that the type holds, is compared with JAX in f64. In bf16
and f16 parameters and results are f32, cast before and after the op.
"""
import argparse
import glob
import json
import os
import re
import sys
import tempfile

import jax
import ml_dtypes
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_most_optimizations", True)  # each function is compiled for one call

from common import RUNTIME_LIBRARY, Failed, compile_module, largest  # noqa: E402
from gradient_cases import Fixed, all_cases  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

BARS = {"f64": 1e-6, "f32": 1e-4, "bf16": 2**-7, "f16": 2**-10}
NUMPY = {"f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}
# Their results are f32 at least.
LOSSES = {"cross_entropy", "linear_cross_entropy", "bce_with_logits", "mse"}
SMALL = 1500
STEP = 1e-3  # of the differences; their error is of fourth order
# Ops without a gradient, those that only gradients themselves are made of, and those that draw (dropout.py, draws.py).
NOT_DIFFERENTIABLE = {"and", "or", "not", "compare", "argmax", "constant", "iota", "map", "yield", "im2col",
                      "col2im", "conv2d_weight_parts", "rotate_pairs", "dropout", "random"}


def is_parameter(operand):
    return operand.dtype.kind == "f" and not isinstance(operand, Fixed)


def rounded(array, element):
    """With values that the element type holds."""
    return np.asarray(array).astype(NUMPY[element]).astype(np.float64) if np.asarray(array).dtype.kind == "f" else array


def tensor(array, element):
    element = {"f": element, "i": "i32", "b": "i1"}[array.dtype.kind]
    return f"tensor<{'x'.join([*map(str, array.shape), element])}>"


class Prepared:
    """A case in a module: its texts, its inputs, and what JAX says (`prepare_all`)."""

    def __init__(self, number, case, element):
        self.case, self.number, self.element = case, number, element
        self.outer = "f32" if element in ("bf16", "f16") else element  # of parameters, inputs and what is read
        self.result_element = self.outer if case.op in LOSSES else element
        operands = self.operands = [np.asarray(rounded(o, element)) for o in case.operands]
        self.parameters = {f"p{number}_{i}": i for i, o in enumerate(case.operands) if is_parameter(o)}
        self.inputs = {f"i{number}_{i}": o for i, o in enumerate(operands) if f"p{number}_{i}" not in self.parameters}

        self.values = [operands[i] for i in self.parameters.values()]
        shape = jax.eval_shape(self.define, *self.values).shape
        self.weights = rounded(np.random.default_rng(number).standard_normal(shape), element)

    def define(self, *values):
        full = list(self.operands)
        for i, v in zip(self.parameters.values(), values):
            full[i] = v
        return self.case.define(*full)

    def differentiate(self, values):
        """The result, and the gradients of the parameters, by JAX."""
        result, pull = jax.vjp(self.define, *values)
        return result, pull(jax.numpy.asarray(self.weights))

    def declarations(self):
        for name, i in self.parameters.items():
            yield f"train.param @{name} : {tensor(self.operands[i], self.outer)} init(zeros) optimizer(@none)"

    def arguments(self, weights):
        inputs = self.inputs | ({f"w{self.number}": self.weights} if weights else {})
        return [f"%{name}: {tensor(np.asarray(a), self.outer)}" for name, a in inputs.items()]

    def body(self):
        """(lines that compute the op, name of its result)."""
        n, types, names, lines = self.number, {}, [], []
        for i, operand in enumerate(self.operands):
            types[f"t{i}"], outer = tensor(operand, self.element), tensor(operand, self.outer)
            name = f"%i{n}_{i}"
            if f"p{n}_{i}" in self.parameters:
                name = f"%v{n}_{i}"
                lines.append(f"{name} = train.read @p{n}_{i} : {outer}")
            if types[f"t{i}"] != outer:
                lines.append(f"%c{n}_{i} = nn.cast {name} to {self.element} : {outer}")
                name = f"%c{n}_{i}"
            names.append(name)
        out = f"%r{n}"
        text = self.case.text.format(*names, **types, e=self.result_element, out=out, tmp=f"%m{n}")
        if "\n" not in text:
            text = out + (f":{self.case.results}" if self.case.results > 1 else "") + f" = {text}"
        lines += text.split("\n")
        out += "#0" if self.case.results > 1 else ""
        if self.outer == self.result_element:
            return lines, out
        return lines + [f"%o{n} = nn.cast {out} to {self.outer} : {tensor(self.result, self.element)}"], f"%o{n}"

    def weighted(self, result):
        """(lines, name) of the sum of weights times results."""
        n, t = self.number, tensor(self.result, self.outer)
        lines = [f"%x{n} = nn.mul {result}, %w{n} : {t}, {t}"]
        if self.result.ndim:
            lines.append(f"%s{n} = nn.reduce sum %x{n} dims {list(range(self.result.ndim))} : {t}")
        return lines, f"%s{n}" if self.result.ndim else f"%x{n}"


def prepare_all(cases, element):
    """The cases, with what JAX says, by one function: JAX takes its time to compile one."""
    prepared = [Prepared(i, case, element) for i, case in enumerate(cases)]
    found = jax.jit(lambda all_values: [p.differentiate(values) for p, values in zip(prepared, all_values)])([p.values for p in prepared])
    for p, (result, gradients) in zip(prepared, found):
        p.result, p.gradients = np.asarray(result), dict(zip(p.parameters, map(np.asarray, gradients)))
    return prepared


def module(prepared):
    lines, element = ["train.optimizer @none = sgd<lr = 0.0>"], prepared[0].outer
    scalar = f"tensor<{element}>"
    step, total = [], None
    for p in prepared:
        lines += p.declarations()
        body, result = p.body()
        arguments = ", ".join(p.arguments(weights=False))
        lines += [f'train.eval @f{p.number}({arguments}) -> ("r") {{', *body,
                  f"train.yield {result} : {tensor(p.result, element)}", "}"]
        sums, name = p.weighted(result)
        step += body + sums
        if total:
            step.append(f"%l{p.number} = nn.add {total}, {name} : {scalar}, {scalar}")
        total = f"%l{p.number}" if total else name
    arguments = ", ".join(a for p in prepared for a in p.arguments(weights=True))
    return "\n".join([*lines, f"train.step @step({arguments}) accumulate(2) {{", *step,
                      f"train.yield loss({total}) : {scalar}", "}", ""])


def distance(got, want):
    norm = np.linalg.norm(want)
    return float(np.linalg.norm(np.asarray(got, np.float64) - want) / (norm or 1.0))


def difference_error(trainer, p, gradients):
    """Against central differences: along every coordinate of a small case, else along random directions."""
    values = {name: np.array(p.operands[i]) for name, i in p.parameters.items()}
    size = sum(v.size for v in values.values())
    rng = np.random.default_rng(p.number)

    def directions():
        if size > 48:
            for _ in range(4):
                yield {name: rng.standard_normal(v.shape) for name, v in values.items()}
            return
        for name, v in values.items():
            for i in range(v.size):
                unit = {other: np.zeros(w.shape) for other, w in values.items()}
                unit[name].flat[i] = 1
                yield unit

    def result_at(direction, distance):
        for name, v in values.items():
            trainer.write(name, v + distance * direction[name])
        return trainer.eval(f"f{p.number}")["r"].astype(np.float64)

    errors = []
    for d in directions():
        near = result_at(d, STEP) - result_at(d, -STEP)
        far = result_at(d, 2 * STEP) - result_at(d, -2 * STEP)
        slope = np.sum(p.weights * (8 * near - far)) / (12 * STEP)
        errors.append(slope - sum(np.sum(gradients[name] * d[name]) for name in values))
    for name, v in values.items():
        trainer.write(name, v)
    norm = np.sqrt(sum(np.sum(g**2) for g in gradients.values())) or 1.0
    return float((np.linalg.norm(errors) if size <= 48 else np.max(np.abs(errors))) / norm)


def prepare(trainer, p):
    """Sets the parameters and inputs of a case."""
    for name, i in p.parameters.items():
        trainer.write(name, p.operands[i])
    trainer.bind(f"f{p.number}", **p.inputs)
    trainer.bind("step", **p.inputs, **{f"w{p.number}": p.weights})


def read_gradients(trainer, p):
    """{parameter: its gradient} of the steps so far."""
    scale = trainer.scalar("read_scale")
    return {name: trainer.read(name, "gradient").astype(np.float64) * scale for name in p.parameters}


def errors_of(trainer, p, gradients):
    """Of the result and of each gradient; in f32 none where all that is wrong are roundings of the case's largest gradient, of which next
    to nothing is left of another (that of a norm of one element)."""
    errors = [distance(trainer.eval(f"f{p.number}")["r"], p.result)]
    norm = largest([0.0, *(np.linalg.norm(g) for g in p.gradients.values())])
    roundings = 4 * 2.0**-24 * norm if p.element == "f32" else 0.0
    return errors + [distance(g, p.gradients[name]) for name, g in gradients.items()
                     if not np.linalg.norm(g - p.gradients[name]) <= roundings]


def check(cases, element, folder):
    """{case name: error} of the cases of one op."""
    prepared = prepare_all(cases, element)
    library = compile_module(module(prepared), os.path.join(folder, "op.so"))
    errors = {}
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as trainer:
        for p in prepared:
            prepare(trainer, p)
        for _ in range(2):
            trainer.step()
        for p in prepared:
            gradients = read_gradients(trainer, p)
            error = errors_of(trainer, p, gradients)
            if element == "f64" and p.case.smooth:
                error.append(difference_error(trainer, p, gradients))
            name = p.case.name
            errors[name] = largest([errors.get(name, 0.0), *error])
    return errors


def declared_ops():
    names = set()
    for path in glob.glob(os.path.join(ROOT, "include", "trainc", "Dialect", "NN", "*.td")):
        with open(path) as f:
            names |= set(re.findall(r'^def NN_\w+Op\s*:\s*NN_\w+<"(\w+)"', f.read(), re.M))
    return {n for n in names if not n.endswith("_grad")} - NOT_DIFFERENTIABLE


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("ops", nargs="*", metavar="OP")
    p.add_argument("--type", choices=BARS, default="f64")
    p.add_argument("--json", help="write {case: error or text} here")
    p.add_argument("--quick", action="store_true", help=f"only cases of at most {SMALL} elements")
    a = p.parse_args()
    by_op = {}
    for case in all_cases():
        if a.quick and sum(np.size(o) for o in case.operands) > SMALL:
            continue
        by_op.setdefault(case.op, []).append(case)
    results = {op: "has no case" for op in sorted(declared_ops() - by_op.keys()) if not a.ops or op in a.ops}
    for op, cases in by_op.items():
        if a.ops and op not in a.ops:
            continue
        with tempfile.TemporaryDirectory() as folder:
            try:
                errors = check(cases, a.type, folder)
                worst = max(errors, key=errors.get)
                results |= errors
                print(f"{op:22} {len(errors):3} cases  {errors[worst]:.1e}  {worst}", flush=True)
            except (Failed, Error) as e:
                results[op] = str(e)
                print(f"{op:22} {e}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(results, f)
    bad = {k: v for k, v in results.items() if isinstance(v, str) or not v < BARS[a.type]}
    print(f"{len(results)} results, {len(bad)} bad")
    for name, v in bad.items():
        print(f"  {name}: {v}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
