# REQUIRES: numpy
# RUN: %python %s
"""What the step passes refuse: each with a message that says where, what was found and what was expected, and nothing changed."""
import os
import re
import subprocess
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import RUNTIME_LIBRARY, compile_module, tool  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

MODULE = """OPTIMIZER
train.param @w : tensor<4xTYPE> init(ones) optimizer(@GROUP)
train.step @step(%x: tensor<4xTYPE>GIVEN) CLAUSES {
  %w = train.read @w : tensor<4xTYPE>
  %p = nn.mul %w, %x : tensor<4xTYPE>, tensor<4xTYPE>
  %s = nn.reduce sum %p dims [0] : tensor<4xTYPE>
  train.yield loss(%s) : tensor<TYPE>
}
"""
DEFAULTS = dict(OPTIMIZER="train.optimizer @o = adamw<lr = 0.1>", GROUP="o", TYPE="f32", GIVEN="", CLAUSES="")
EFFECT = """train.optimizer @o(%p: f32, %g: f32) {
  %m = memref.alloc() : memref<f32>
  train.yield %p : f32
}"""
ARITY = """train.optimizer @o(%p: f32, %g: f32) state(m = 0.0) {
  train.yield %p, %p : f32, f32
}"""
REFUSED = {
    "k < 1": (dict(CLAUSES="accumulate(0)"), r"expects accumulate from 1 to 2147483647 \(C2\), got 0"),
    "clip of 0": (dict(CLAUSES="clip(global_norm<0.0>)"), r"expects a finite clip > 0 \(C3\), got 0"),
    "clip below 0": (dict(CLAUSES="clip(value<-1.0>)"), r"expects a finite clip > 0 \(C3\), got -1"),
    "unknown group": (dict(GROUP="absent"), r"expects a train.optimizer of the module \(C3\), got @absent"),
    "region with an effect": (dict(OPTIMIZER=EFFECT), r"side-effect-free .* \(C4\), got 'memref.alloc'"),
    "region of wrong arity": (dict(OPTIMIZER=ARITY), r"expects a region with 3 arguments .* \(C2\), got"),
    "f64 and a narrower type": (dict(TYPE="f64", CLAUSES="precision(compute = bf16)"), r"expects f32 .* got"),
    "unknown exception": (dict(CLAUSES="precision(compute = bf16, keep_f32 = [@absent])"), r"keep_f32, got @absent"),
    "stochastic f32": (dict(CLAUSES="precision(compute = bf16, rounding = stochastic)"), r"master of bf16 or f16"),
    "gradient of nothing": (dict(GIVEN=" gradient(@absent)"), r"\(C6\), got @absent"),
    "loss scale of 0": (dict(CLAUSES="loss_scale(0.0)"), r"expects a finite loss scale > 0 \(C5\), got 0"),
    "odd alignment": ("--align-size=48", r"align-size that is a power of two .* got 48"),
    "alignment below an element": ("--align-size=2", r"align-size that is a power of two .* got 2"),
}


def module(**parts):
    text = MODULE
    for name, value in (DEFAULTS | parts).items():
        text = text.replace(name, value)
    return text


def compile_text(text, folder, *options):
    source, output = os.path.join(folder, "refused.mlir"), os.path.join(folder, "refused.so")
    with open(source, "w") as f:
        f.write(text)
    done = subprocess.run([tool("trainc"), source, "-o", output, *options], capture_output=True, text=True, timeout=60)
    made = os.path.exists(output)
    if made:
        os.remove(output)
    return done, made


def stored(trainer):
    return [trainer.read(*key[1::-1], key[2]).tobytes() for key in sorted(trainer.tensors, key=str)]


def refused_at_run_time(folder):
    """Conversion to a type without fractions, a state file of another optimizer."""
    runtime, bad = Runtime(RUNTIME_LIBRARY), 0
    state = os.path.join(folder, "state")
    libraries = [compile_module(module(OPTIMIZER=f"train.optimizer @o = {kind}<lr = 0.1>"),
                                os.path.join(folder, f"{kind}.so")) for kind in ("adamw", "sgd")]
    with Trainer(runtime, libraries[1]) as other:
        other.save(state)
    with Trainer(runtime, libraries[0]) as trainer:
        trainer.step(x=np.ones(4))
        before = stored(trainer)
        for what, act, message in (("a state of another optimizer", lambda: trainer.load(state), "missing: 'optimizer/w/"),
                                   ("conversion to integers", lambda: trainer.convert(dtype=b"i32"), "expected f64")):
            try:
                act()
                bad += check(what, False, "no error")
            except Error as e:
                bad += check(what, message in str(e) and stored(trainer) == before, str(e))
    return bad


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for what, (change, message) in REFUSED.items():
            change, options = (change, []) if isinstance(change, dict) else ({}, [change])
            done, made = compile_text(module(**change), folder, *options)
            at = re.search(r"refused.mlir:\d+:\d+: error: ", done.stderr)
            bad += check(what, done.returncode == 1 and at and re.search(message, done.stderr) and not made, done.stderr)
        done, made = compile_text(module(CLAUSES="precision(compute = f16)"), folder)
        bad += check("f16 without a loss scale warns", made and "warning: " in done.stderr and "loss_scale" in done.stderr,
                     done.stderr)
        bad += refused_at_run_time(folder)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
