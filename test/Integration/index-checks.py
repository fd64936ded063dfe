# REQUIRES: numpy
# RUN: %python %s
"""Which values of integer inputs are refused: what any user of an element does not allow, in all of an input or in what slices cut
out of it; on processors, and on the GPU of tests, whose artifact has the same checks; on ranks that have some of the classes."""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from ranks import run  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

TABLE = "tensor<12x8xf32>"
MODULE = f"""
train.optimizer @o = sgd<lr = 0.1>
train.param @w : {TABLE} init(normal<0.3>) optimizer(@o)
train.param @v : tensor<30x8xf32> init(normal<0.3>) optimizer(@o)
train.step @step(%x: tensor<SHAPExi32>) {{
  %w = train.read @w : {TABLE}
  %v = train.read @v : tensor<30x8xf32>
BODY
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}}
"""


def slice_of(name, offsets, sizes, shape, strides=None):
    dims = "x".join(map(str, shape))
    return f"  %{name} = nn.slice %x offsets {offsets} sizes {sizes}{f' strides {strides}' if strides else ''} : tensor<{dims}xi32>"


def embedding(name, ids, shape, table="w", rows=12):
    dims = "x".join(map(str, shape))
    return f"  %{name} = nn.embedding %{table}, %{ids} : tensor<{rows}x8xf32>, tensor<{dims}xi32>"


def loss_of(name, shape, total="loss", count="n"):
    dims, k = "x".join(map(str, shape)), len(shape) + 1
    squares = f"  %{name}2 = nn.mul %{name}, %{name} : tensor<{dims}x8xf32>, tensor<{dims}x8xf32>\n"
    return squares + f"  %{total} = nn.reduce sum %{name}2 dims {list(range(k))} : tensor<{dims}x8xf32>"


ONE = "  %n = nn.constant dense<1.0> : tensor<f32>"


def head(name, hidden, targets, rows, ignored=None):
    flag = f" {{ignore_index = {ignored} : i64}}" if ignored is not None else ""
    return (f"  %{name}, %{name}n = nn.linear_cross_entropy %{hidden}, %w, %{targets} transpose_weight{flag} : "
            f"tensor<{rows}x8xf32>, {TABLE}, tensor<{rows}xi32>")


SHIFT = [slice_of("ids", [0, 0], [4, 8], (4, 9)), slice_of("next", [0, 1], [4, 8], (4, 9)), embedding("e", "ids", (4, 8)),
         "  %h = nn.reshape %e : tensor<4x8x8xf32> to tensor<32x8xf32>", "  %t = nn.reshape %next : tensor<4x8xi32> to tensor<32xi32>",
         head("loss", "h", "t", 32), "  %n = nn.constant dense<1.0> : tensor<f32>"]
# Shape, body, values that are taken and that are not, as (place, value).
CASES = {
    "tokens, shifted": ((4, 9), SHIFT, [((0, 8), -100), ((3, 8), 11), ((2, 0), 0)], [((0, 8), 12), ((1, 3), -100), ((0, 0), 12), ((3, 8), -1)]),
    "columns of two tables": ((5, 3), [slice_of("a", [0, 0], [5, 1], (5, 3)), slice_of("b", [0, 1], [5, 1], (5, 3)),
                                       embedding("e", "a", (5, 1)), embedding("f", "b", (5, 1), "v", 30),
                                       "  %g = nn.add %e, %f : tensor<5x1x8xf32>, tensor<5x1x8xf32>", loss_of("g", (5, 1)), ONE],
                              [((2, 1), 29), ((4, 0), 11), ((1, 2), 1000)], [((2, 1), 30), ((4, 0), 12), ((0, 0), -1)]),
    "every second": ((10,), [slice_of("a", [1], [5], (10,), [2]), embedding("e", "a", (5,)), loss_of("e", (5,)), ONE],
                     [((0,), 99), ((8,), -1), ((9,), 11)], [((1,), 12), ((9,), -1)]),
    "targets and ids": ((6,), [embedding("e", "x", (6,)), head("loss", "e", "x", 6), ONE], [((1,), 11)], [((1,), -100), ((1,), 12)]),
    "two losses": ((6,), [embedding("z", "k", (6,)), head("l1", "z", "x", 6), head("l2", "z", "x", 6, 3),
                          "  %loss = nn.add %l1, %l2 : tensor<f32>, tensor<f32>", ONE],
                   [((1,), 3), ((1,), 0)], [((1,), -100), ((1,), 12)]),
    "one table of two sizes": ((6,), [embedding("e", "x", (6,)), embedding("f", "x", (6,), "v", 30),
                                      "  %g = nn.add %e, %f : tensor<6x8xf32>, tensor<6x8xf32>", loss_of("g", (6,)), ONE],
                               [((5,), 11)], [((5,), 12), ((5,), 29)]),
    "a part": ((4,), ["  %zero = nn.constant dense<0> : tensor<i64>", "  %p = nn.part %x at %zero dim 0 of 2 : tensor<4xi32>",
                      embedding("e", "p", (2,)), loss_of("e", (2,)), ONE], [((0,), 11), ((3,), 99)], []),
    "narrowed": ((2,), ["  %b = nn.cast %x to i8 : tensor<2xi32>", embedding("e", "b", (2,)).replace("xi32", "xi8"), loss_of("e", (2,)), ONE],
                 [((0,), 257)], []),
}
CLASSES = """
train.mesh @mesh(model = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<8x12xf32> init(normal<0.3>) optimizer(@o) split([], [model])
train.step @step(%h: tensor<3x8xf32>, %y: tensor<3xi32>) {
  %w = train.read @w : tensor<8x12xf32>
  %l, %n = LOSS
  train.yield loss(%l) weight(%n) : tensor<f32>, tensor<f32>
}
"""
LOSSES = ["nn.cross_entropy %z, %y : tensor<3x12xf32>, tensor<3xi32>",
          "nn.linear_cross_entropy %h, %w, %y : tensor<3x8xf32>, tensor<8x12xf32>, tensor<3xi32>"]


def targets_of_ranks(rank):
    """Those of these targets that are taken."""
    taken = []
    for value in (11, -100, 12, -7):
        try:
            rank.trainer.step(h=np.ones((3, 8), np.float32), y=np.array([3, 4, value], np.int32))
            taken.append(value)
        except Error as error:
            if f"has {value} at [2]" not in str(error):
                taken.append(str(error))
    return taken


def check_ranks():
    bad = 0
    for loss in LOSSES:
        product = "  %z = nn.matmul %h, %w : tensor<3x8xf32>, tensor<8x12xf32>\n  %l"
        text = CLASSES.replace("LOSS", loss).replace("  %l", product, "%z" in loss)
        with tempfile.TemporaryDirectory() as folder:
            found = run(targets_of_ranks, compile_module(text, os.path.join(folder, "m.so"), "--mesh=model=2"), 2)
        bad += check(f"parts of the classes, {loss.split()[0]}", found == [[11, -100]] * 2, found)
    return bad


def main():
    bad, runtime = check_ranks(), Runtime(RUNTIME_LIBRARY)
    for name, (shape, body, good, wrong) in CASES.items():
        if "%k" in "".join(body):
            body = ["  %k = nn.constant dense<2> : tensor<6xi32>", *body]
        text = MODULE.replace("SHAPE", "x".join(map(str, shape))).replace("BODY", "\n".join(body))
        with tempfile.TemporaryDirectory() as folder:
            path = compile_module(text, os.path.join(folder, "m.so"), "--target=cuda,cpu", "--cuda-arch=host")
            for device in (b"cpu", b"cuda"):
                faults = []
                with Trainer(runtime, path, threads=1, seed=1, device=device) as trainer:
                    for (place, value), taken in [(case, True) for case in good] + [(case, False) for case in wrong]:
                        x = np.full(shape, 2, np.int32)
                        x[place] = value
                        try:
                            trainer.step(x=x)
                            refusal = ""
                        except Error as error:
                            refusal = str(error)
                        expected = f"has {value} at {list(place)}"
                        if refusal if taken else expected not in refusal:
                            faults.append(f"{value} at {place}: {refusal or 'taken'}")
                bad += check(f"{name}, {device.decode()}", not faults, "; ".join(faults))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
