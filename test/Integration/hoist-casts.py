# REQUIRES: numpy
# RUN: %python %s
"""Parameters kept in the compute type: the same bits as casts in every micro-step, for updates, evals and checkpoints, and no
cast of a parameter in them.
"""
import itertools
import os
import re
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import RUNTIME_LIBRARY, compile_module, run, tool  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

MODULE = """train.optimizer @decayed = adamw<lr = 0.01> ema(0.9)
train.optimizer @layer = lamb<lr = 0.01>
train.param @table : tensor<11x24xf32> init(normal<0.5>) optimizer(@decayed)
train.param @norm : tensor<24xf32> init(ones) optimizer(@decayed)
train.param @up : tensor<24x33xf32> init(normal<0.3>) optimizer(@layer)
train.param @bias : tensor<33xf32> init(zeros) optimizer(@layer)
train.param @down : tensor<33x24xf32> init(normal<0.3>) frozen
train.param @kept : tensor<24x24xf32> init(normal<0.3>) optimizer(@decayed)
func.func private @net(%i: tensor<6xi32>) -> tensor<6x11xf32> {
  %table = train.read @table : tensor<11x24xf32>
  %norm = train.read @norm : tensor<24xf32>
  %up = train.read @up : tensor<24x33xf32>
  %bias = train.read @bias : tensor<33xf32>
  %down = train.read @down : tensor<33x24xf32>
  %kept = train.read @kept : tensor<24x24xf32>
  %x = nn.embedding %table, %i : tensor<11x24xf32>, tensor<6xi32>
  %k = nn.linear %x, %kept : tensor<6x24xf32>, tensor<24x24xf32>
REGION
  %r = nn.rms_norm %h, %norm : tensor<6x24xf32>, tensor<24xf32>
  %y = nn.matmul %r, %table transpose_rhs : tensor<6x24xf32>, tensor<11x24xf32>
  return %y : tensor<6x11xf32>
}
train.step @step(%i: tensor<6xi32>, %t: tensor<6xi32>) accumulate(K) clip(global_norm<1.0>)
    precision(compute = TYPE, keep_f32 = [@kept]) loss_scale(256.0) {
  %y = func.call @net(%i) : (tensor<6xi32>) -> tensor<6x11xf32>
  %sum, %count = nn.cross_entropy %y, %t : tensor<6x11xf32>, tensor<6xi32>
  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>
}
train.eval @eval(%i: tensor<6xi32>) -> ("y") {
  %y = func.call @net(%i) : (tensor<6xi32>) -> tensor<6x11xf32>
  train.yield %y : tensor<6x11xf32>
}
train.eval @average(%i: tensor<6xi32>) -> ("y") weights(ema) {
  %y = func.call @net(%i) : (tensor<6xi32>) -> tensor<6x11xf32>
  train.yield %y : tensor<6x11xf32>
}
"""
PLAIN = """  %u = nn.linear %k, %up, %bias : tensor<6x24xf32>, tensor<24x33xf32>, tensor<33xf32>
  %g = nn.gelu %u tanh : tensor<6x33xf32>
  %h = nn.linear %g, %down : tensor<6x33xf32>, tensor<33x24xf32>"""
AGAIN = "  %h = train.recompute -> tensor<6x24xf32> {\n" + PLAIN.replace("%h", "%v") + """
    train.yield %v : tensor<6x24xf32>
  }"""


def train(text, folder, *options):
    """Losses, outputs of evals and the checkpoint of a run that is loaded in the middle."""
    path, state = compile_module(text, os.path.join(folder, "casts.so"), *options), os.path.join(folder, "state")
    rng, seen, runtime = np.random.default_rng(5), [], Runtime(RUNTIME_LIBRARY)
    for half in range(2):
        with Trainer(runtime, path, threads=2, seed=1) as trainer:
            if half:
                trainer.load(state)
            for _ in range(8):
                result = trainer.step(i=rng.integers(0, 11, 6), t=rng.integers(0, 11, 6))
                seen.append((result.loss, result.grad_norm))
            for entry in ("eval", "average"):
                seen.append(trainer.eval(entry, i=np.arange(6))["y"].tobytes())
            trainer.save(state)
    with open(state, "rb") as f:
        return seen, f.read()


def parameter_casts(text, folder):
    """Parameters that kernels of micro-steps read in a wider type than they compute with."""
    path = os.path.join(folder, "casts.mlir")
    with open(path, "w") as f:
        f.write(text)
    plan = run([tool("trainc-opt"), path, "--trainc-to-plan"]).stdout
    step = plan[plan.index("train.step"):plan.index("train.window_end")]
    read = dict(re.findall(r"(%\w+) = train.read @arena.master.f32::@(\w+)", step))
    return {read[value] for value in re.findall(r"nn.cast (%\w+)", step) if value in read}


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for kind, k, region in itertools.product(("bf16", "f16"), (1, 4), (PLAIN, AGAIN)):
            text = MODULE.replace("TYPE", kind).replace("(K)", f"({k})").replace("REGION", region)
            hoisted = train(text, folder)
            good = all(hoisted == train(text, folder, f"--disable-pass={name}")
                       for name in ("train-hoist-casts", "train-fuse-optimizer", "train-coalesce"))
            good &= not parameter_casts(text, folder) and np.isfinite([s[0] for s in hoisted[0][:8]]).all()
            print(f"{kind}, window of {k}, {'recomputed' if region is AGAIN else 'kept'}: {'ok' if good else 'BAD'}",
                  flush=True)
            bad += not good
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
