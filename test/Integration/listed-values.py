# REQUIRES: ml_dtypes, numpy
# RUN: %python %s
"""Constants and initial values that list their elements, as `dense`, `sparse` or `dense_resource`, of every type of elements."""
import os
import sys
import tempfile

import ml_dtypes
import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

TYPES = dict(f64=np.float64, f32=np.float32, bf16=ml_dtypes.bfloat16, f16=np.float16, i64=np.int64, i32=np.int32, i16=np.int16,
             i8=np.int8, i1=np.bool_)
VALUES = [0, 3, -2, 0, 1, 0, 0, 0, 0, 7, 1]
ALIKE = [1] * len(VALUES)


def number(value, kind):
    return str(bool(value)).lower() if kind == "i1" else f"{value}.0" if "f" in kind else str(value)


def spellings(values, kind):
    """The list of values as attributes, and the bytes of the resource that one of them names."""
    listed = np.array(values).astype(TYPES[kind])
    places = [i for i, value in enumerate(values) if value]
    name = f"{kind}_{'alike' if values is ALIKE else 'values'}"
    return {"dense": f"dense<[{', '.join(number(value, kind) for value in values)}]>",
            "sparse": f"sparse<{[[i] for i in places]}, [{', '.join(number(values[i], kind) for i in places)}]>",
            "dense_resource": f"dense_resource<{name}>"}, f'{name}: "0x08000000{listed.tobytes().hex()}"'


def module():
    """An eval yields each constant and buffer as f64; their names and what they should be, the text."""
    lines, outputs, declared, resources, expected = [], [], [], [], {}
    for kind, numpy in TYPES.items():
        for values in (VALUES, ALIKE):
            ways, resource = spellings(values, kind)
            resources.append(resource)
            type_ = f"tensor<{len(values)}x{kind}>"
            for way, attribute in ways.items():
                n = len(declared)
                declared.append(f"train.buffer @b{n} : {type_} init({attribute} : {type_})")
                lines += [f"%c{n} = nn.constant {attribute} : {type_}", f"%b{n} = train.read @b{n} : {type_}"]
                for value in (f"c{n}", f"b{n}"):
                    lines.append(f"%{value}_f = nn.cast %{value} to f64 : {type_}")
                    outputs.append(value)
                    expected[value] = f"{kind} {way}", np.array(values).astype(numpy).astype(np.float64)
    kind = f"tensor<{len(VALUES)}xf64>"
    names, results = ", ".join(f'"{value}"' for value in outputs), ", ".join(f"%{value}_f" for value in outputs)
    text = [*declared, "train.optimizer @o = sgd<lr = 0.1>",
            f"train.param @w : {kind} init(dense_resource<f64_values> : {kind}) optimizer(@o)",
            f"train.step @step(%x: {kind}) {{", f"  %w = train.read @w : {kind}", f"  %y = nn.mul %x, %w : {kind}, {kind}",
            f"  %s = nn.reduce sum %y dims [0] : {kind}", "  train.yield loss(%s) : tensor<f64>", "}",
            f"train.eval @values() -> ({names}) {{", *("  " + line for line in lines),
            f"  train.yield {results} : {', '.join([kind] * len(outputs))}", "}",
            "{-# dialect_resources: { builtin: {", ",\n".join(resources), "} } #-}", ""]
    return "\n".join(text), expected


def main():
    bad, (text, expected) = 0, module()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(Runtime(RUNTIME_LIBRARY), compile_module(text, os.path.join(folder, "listed.so")), threads=1)
        found = trainer.eval("values")
        for value, (what, wanted) in expected.items():
            bad += check(f"{'constant' if value[0] == 'c' else 'buffer'} {what}", np.array_equal(found[value], wanted), found[value])
        bad += check("parameter", np.array_equal(trainer.read("w"), VALUES))
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
