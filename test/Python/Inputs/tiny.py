"""Small modules, and what is expected to be refused."""
import contextlib
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path.insert(0, os.path.join(ROOT, "python"))

import trainc  # noqa: E402

# Linear regression with a frozen scale and a buffer that counts calls; windows of two micro-batches.
LINEAR = """\
train.optimizer @slow = sgd<lr = 0.1>
train.optimizer @fast = adamw<lr = 0.2, weight_decay = 0.0>
train.param @weight : tensor<3x1xf32> init(normal<1.0>) optimizer(@slow)
train.param @bias : tensor<1xf32> init(zeros) optimizer(@fast)
train.param @scale : tensor<1xf32> init(ones) frozen
train.buffer @calls : tensor<f32> init(zeros)

func.func private @net(%x: tensor<4x3xf32>) -> tensor<4x1xf32> {
  %w = train.read @weight : tensor<3x1xf32>
  %b = train.read @bias : tensor<1xf32>
  %s = train.read @scale : tensor<1xf32>
  %0 = nn.linear %x, %w, %b : tensor<4x3xf32>, tensor<3x1xf32>, tensor<1xf32>
  %2 = nn.mul %0, %s : tensor<4x1xf32>, tensor<1xf32>
  return %2 : tensor<4x1xf32>
}

train.step @step(%x: tensor<4x3xf32>, %y: tensor<4x1xf32>) accumulate(ACCUMULATE) {
  %0 = func.call @net(%x) : (tensor<4x3xf32>) -> tensor<4x1xf32>
  %1 = nn.sub %0, %y : tensor<4x1xf32>, tensor<4x1xf32>
  %2 = nn.mul %1, %1 : tensor<4x1xf32>, tensor<4x1xf32>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<4x1xf32>
  %c = train.read @calls : tensor<f32>
  %one = nn.constant dense<1.0> : tensor<f32>
  %next = nn.add %c, %one : tensor<f32>, tensor<f32>
  train.write %next to @calls : tensor<f32>
  %n = nn.constant dense<4.0> : tensor<f32>
  train.yield loss(%3) weight(%n) : tensor<f32>, tensor<f32>
}

train.eval @predict(%x: tensor<4x3xf32>) -> ("y") {
  %0 = func.call @net(%x) : (tensor<4x3xf32>) -> tensor<4x1xf32>
  train.yield %0 : tensor<4x1xf32>
}
"""

# An embedding: an index input with a range, and an eval with inputs of all types that gives them back.
TYPES = """\
train.optimizer @sgd = sgd<lr = 0.1>
train.param @table : tensor<5x2xf32> init(normal<1.0>) optimizer(@sgd)

train.step @step(%ids: tensor<3xi32>) {
  %0 = train.read @table : tensor<5x2xf32>
  %1 = nn.embedding %0, %ids : tensor<5x2xf32>, tensor<3xi32>
  %2 = nn.mul %1, %1 : tensor<3x2xf32>, tensor<3x2xf32>
  %3 = nn.reduce sum %2 dims [0, 1] : tensor<3x2xf32>
  train.yield loss(%3) : tensor<f32>
}

train.eval @types(%float32: tensor<2x3xf32>, %float64: tensor<2x3xf64>, %bfloat16: tensor<2x3xbf16>,
                  %float16: tensor<2x3xf16>, %int8: tensor<2x3xi8>, %int16: tensor<2x3xi16>, %int32: tensor<2x3xi32>,
                  %int64: tensor<2x3xi64>, %bool: tensor<2x3xi1>)
    -> ("float32", "float64", "bfloat16", "float16", "int8", "int16", "int32", "int64", "bool") {
  %0 = nn.neg %float32 : tensor<2x3xf32>
  %1 = nn.neg %float64 : tensor<2x3xf64>
  %2 = nn.neg %bfloat16 : tensor<2x3xbf16>
  %3 = nn.neg %float16 : tensor<2x3xf16>
  %4 = nn.add %int8, %int8 : tensor<2x3xi8>, tensor<2x3xi8>
  %5 = nn.add %int16, %int16 : tensor<2x3xi16>, tensor<2x3xi16>
  %6 = nn.add %int32, %int32 : tensor<2x3xi32>, tensor<2x3xi32>
  %7 = nn.add %int64, %int64 : tensor<2x3xi64>, tensor<2x3xi64>
  %8 = nn.not %bool : tensor<2x3xi1>
  train.yield %0, %1, %2, %3, %4, %5, %6, %7, %8 : tensor<2x3xf32>, tensor<2x3xf64>, tensor<2x3xbf16>,
      tensor<2x3xf16>, tensor<2x3xi8>, tensor<2x3xi16>, tensor<2x3xi32>, tensor<2x3xi64>, tensor<2x3xi1>
}
"""


# LINEAR for several ranks, `trainc.compile(RANKS, mesh={"data": n})`.
RANKS = "train.mesh @mesh(host = 1, data = 1)\n" + LINEAR.replace("ACCUMULATE", "1").replace(
    "(%x: tensor<4x3xf32>, %y: tensor<4x1xf32>)",
    "(%x: tensor<4x3xf32> split([host, data]), %y: tensor<4x1xf32> split([host, data]))")


def linear(folder, accumulate=1, **options):
    """The path of LINEAR, compiled."""
    return trainc.compile(LINEAR.replace("ACCUMULATE", str(accumulate)),
                          os.path.join(folder, f"linear{accumulate}.so"), **options)


def types(folder):
    return trainc.compile(TYPES, os.path.join(folder, "all_types.so"))


@contextlib.contextmanager
def refused(kind, *words):
    """Expects `kind` to be raised, with all of `words` in its text."""
    try:
        yield
    except trainc.Error as error:
        assert type(error) is kind, f"expected {kind.__name__}, got {type(error).__name__}: {error}"
        missing = [word for word in words if str(word) not in str(error)]
        assert not missing, f"expected {missing} in: {error}"
    else:
        raise AssertionError(f"expected {kind.__name__}, got no error")
