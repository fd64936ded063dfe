# REQUIRES: numpy
# RUN: %python %s
"""What fills up parts of dimensions that do not divide counts nothing: not in losses and their weights, nor in sums by index, and norms
without eps have a finite gradient, as have optimizers without eps a finite update. Losses, weights, gradient norms and parameters of 2 and 3 ranks are those of one, in f64 to 1e-11.
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import compile_module, largest, mesh_option, run  # noqa: E402
from report import check  # noqa: E402

ROWS, COLUMNS, BAR = 5, 7, 1e-11
X = f"tensor<{ROWS}x{COLUMNS}xf64>"
ROW, IDS = f"tensor<{ROWS}xf64>", f"tensor<{ROWS}xi32>"
MODULE = f"""
train.mesh @mesh(model = 1)
train.optimizer @o = sgd<lr = 1.0>
train.param @p : {X} init(normal<1.0>) optimizer(@o) split(SPLIT)
train.param @w : tensor<{COLUMNS}xf64> init(normal<1.0>) optimizer(@o)
train.param @table : tensor<{COLUMNS}x9xf64> init(normal<1.0>) optimizer(@o)
train.step @step(%y: {X}, %ids: {IDS}, %rows: {ROW}, %all: {X}) {{
  %p = train.read @p : {X}
  %w = train.read @w : tensor<{COLUMNS}xf64>
  %table = train.read @table : tensor<{COLUMNS}x9xf64>
  %h = nn.exp %p : {X}
BODY
}}
"""
LOSS = "  train.yield loss(%l) weight(%n) : tensor<f64>, tensor<f64>"


def loss(statement, types):
    return f"  %l, %n = nn.{statement} : {types}\n{LOSS}"


def squares(statement, of):
    rank = of.count("x")
    return (f"  %v = {statement}\n  %q = nn.mul %v, %v : {of}, {of}\n  %l = nn.reduce sum %q dims {list(range(rank))} : {of}\n"
            "  train.yield loss(%l) : tensor<f64>")


# (body, splits of the parameter).
ROWS_SPLIT, COLUMNS_SPLIT = "[model]", "[], [model]"
EACH = [ROWS_SPLIT, COLUMNS_SPLIT]
CASES = {
    **{f"{name}{of}": (loss(f"{name} %h, %y{f' weights %{weights}' if weights else ''}", f"{X}, {X}{f', {kind}' if weights else ''}"), EACH)
       for name in ("mse", "bce_with_logits") for of, weights, kind in (("", "", ""), (" by row", "rows", ROW), (" by element", "all", X))},
    **{f"cross_entropy{of}": (loss(f"cross_entropy %h, %ids{weights}{smoothing}", f"{X}, {IDS}{kind}"), splits)
       for of, weights, kind, smoothing, splits in (("", "", "", "", EACH), (" weighted", " weights %rows", f", {ROW}", "", [ROWS_SPLIT]),
                                                    (" smoothed", "", "", " {label_smoothing = 0.1 : f64}", [ROWS_SPLIT]))},
    "linear_cross_entropy": (loss("linear_cross_entropy %h, %table, %ids", f"{X}, tensor<{COLUMNS}x9xf64>, {IDS}"), [ROWS_SPLIT]),
    "scatter_add": (squares(f"nn.scatter_add %ids, %c dim 0 : {IDS}, {ROW} to tensor<4xf64>", "tensor<4xf64>").replace(
        "  %v =", f"  %c = nn.reduce sum %h dims [1] : {X}\n  %v ="), [ROWS_SPLIT]),
    "rms_norm": (squares(f"nn.rms_norm %h, %w {{eps = 0.0 : f64}} : {X}, tensor<{COLUMNS}xf64>", X), [ROWS_SPLIT]),
    "layer_norm": (squares(f"nn.layer_norm %h, %w, %w {{eps = 0.0 : f64}} : {X}, tensor<{COLUMNS}xf64>, tensor<{COLUMNS}xf64>", X),
                   [ROWS_SPLIT]),
    # A row that fills up is hidden as a whole.
    "softmax behind a mask": (squares(f"nn.matmul %s, %table : {X}, tensor<{COLUMNS}x9xf64>", f"tensor<{ROWS}x9xf64>").replace(
        "  %v =", f"""  %half = nn.constant dense<0.5> : tensor<f64>
  %low = nn.constant dense<0xFFF0000000000000> : tensor<f64>
  %m = nn.compare gt %all, %half : {X}, tensor<f64>
  %k = nn.select %m, %h, %low : tensor<{ROWS}x{COLUMNS}xi1>, {X}, tensor<f64>
  %s = nn.softmax %k dim 1 : {X}
  %v ="""), [ROWS_SPLIT]),
}
RNG = np.random.default_rng(4)
INPUTS = dict(y=RNG.random((ROWS, COLUMNS)), ids=RNG.integers(1, 4, ROWS).astype("i4"), rows=RNG.random(ROWS),
              all=RNG.random((ROWS, COLUMNS)))
# The sum by index of rows that has no gradient.
EVAL = f"""
train.eval @eval(%y: {X}, %ids: {IDS}) -> ("table") {{
  %p = train.read @p : {X}
  %h = nn.exp %p : {X}
  %t = nn.embedding_grad %ids, %h : {IDS}, {X} to tensor<4x{COLUMNS}xf64>
  train.yield %t : tensor<4x{COLUMNS}xf64>
}}
"""


# Of a gradient of 0 they make 0 / 0. The layers are a colwise and a rowwise one.
WITHOUT_EPS = ["adam<lr = 0.01, eps = 0.0>", "adamw<lr = 0.01, eps = 0.0> ema(0.9)", "rmsprop<lr = 0.01, eps = 0.0>",
               "adamax<lr = 0.01, eps = 0.0>", "adadelta<lr = 1.0, eps = 0.0>", "lamb<lr = 0.01, eps = 0.0>"]
LAYERS = """
train.mesh @mesh(data = 1, model = 1)
train.optimizer @o = OPTIMIZER
train.param @p : tensor<7x5xf64> init(normal<1.0>) optimizer(@o) split([], [model])
train.param @v : tensor<5x3xf64> init(normal<1.0>) optimizer(@o) split([model])
train.step @step(%x: tensor<6x7xf64> split([data])) {
  %p = train.read @p : tensor<7x5xf64>
  %v = train.read @v : tensor<5x3xf64>
  %h = nn.linear %x, %p : tensor<6x7xf64>, tensor<7x5xf64>
  %a = nn.gelu %h erf : tensor<6x5xf64>
  %z = nn.linear %a, %v : tensor<6x5xf64>, tensor<5x3xf64>
  %q = nn.mul %z, %z : tensor<6x3xf64>, tensor<6x3xf64>
  %l = nn.reduce sum %q dims [0, 1] : tensor<6x3xf64>
  train.yield loss(%l) : tensor<f64>
}
"""
BATCH = RNG.random((6, COLUMNS))


def updating(rank):
    results = [rank.step(x=BATCH) for _ in range(4)]
    return np.array([(r.window_loss, r.grad_norm, r.skipped) for r in results if r.closed]), rank.tensors()


def check_updates(folder):
    bad, path = 0, os.path.join(folder, "updates.so")
    for optimizer in WITHOUT_EPS:
        text = LAYERS.replace("OPTIMIZER", optimizer)
        want, = run(updating, compile_module(text, path), 1)
        for mesh, options in ((dict(model=2), ()), (dict(model=3), ("--disable-pass=train-fuse-optimizer",)),
                              (dict(data=2, model=2), ("--shard=optimizer",))):
            results = run(updating, compile_module(text, path, mesh_option(mesh), *options), int(np.prod(list(mesh.values()))),
                          alike=mesh["model"])
            worst = max(difference(result, want) for result in results)
            bad += check(f"{optimizer}, {mesh} {' '.join(options)}: off by {worst:.1e}", worst <= BAR)
    return bad


def training(rank):
    trainer, numbers = rank.trainer, []
    for _ in range(2):
        table = trainer.eval("eval", y=INPUTS["y"], ids=INPUTS["ids"])["table"]
        result = trainer.step(**INPUTS)
        numbers += [result.window_loss, result.window_weight, result.grad_norm, result.skipped, *table.ravel()]
    return np.array(numbers), rank.tensors()


def difference(got, want):
    return largest(np.abs(a - b).max() / max(np.abs(b).max(), 1.0) for a, b in
               [(got[0], want[0]), *((got[1][key], want[1][key]) for key in want[1])])


def main():
    with tempfile.TemporaryDirectory() as folder:
        bad = check_updates(folder)
    for name, (body, splits) in CASES.items():
        for split in splits:
            text = MODULE.replace("BODY", body).replace("SPLIT", split) + EVAL
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "uneven.so")
                want, = run(training, compile_module(text, path), 1)
                for ranks in (2, 3):
                    results = run(training, compile_module(text, path, mesh_option(dict(model=ranks))), ranks)
                    worst = max(difference(result, want) for result in results)
                    bad += check(f"{name}, split({split}), {ranks} ranks: off by {worst:.1e}", worst <= BAR)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
