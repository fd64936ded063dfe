# REQUIRES: numpy
# RUN: %python %s
"""One text compiled with parameters in f32, bf16 and f16: a state of one goes on in the other, converted in place or
through a checkpoint, and every way gives the same bits. What does not fit is refused and changes nothing. An open window goes on in an
artifact of another batch, which divides the sums of gradients by another number.
"""
import os
import re
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench"))

from common import BUILD, RUNTIME_LIBRARY, compile_module, run, tool  # noqa: E402
from trainc_ctypes import BF16, F16, F32, Error, Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")
TYPES = {"f32": F32, "bf16": BF16, "f16": F16}
PARAMETERS, STATES = 1, 4
MODULE = """
train.optimizer @signed(%p: f32, %g: f32, %m: f32, %lr: f64) state(STATE = 0.0) hyper(lr = 0.05) {
  %b = arith.constant 0.9 : f32
  %m1 = math.fma %b, %m, %g : f32
  %rate = arith.truncf %lr : f64 to f32
  %d = arith.mulf %rate, %m1 : f32
  %p1 = arith.subf %p, %d : f32
  train.yield %p1, %m1 : f32, f32
}
train.param @embed : tensor<1000x33xTYPE> init(normal<0.5>) optimizer(@signed)
train.param @w : tensor<33x10xTYPE> init(normal<0.3>) optimizer(@signed)
train.param @b : tensor<10xTYPE> init(uniform<-0.1, 0.1>) optimizer(@signed)
train.param @window : tensor<1x1x3x3xTYPE> init(normal<0.3>) optimizer(@signed)
train.param @fixed : tensor<33xTYPE> init(uniform<0.5, 1.5>) frozen
train.buffer @seen : tensor<3xi64> init(constant<70000.0>)
train.step @step(%x: tensor<16xi32>, %y: tensor<16xi32>) accumulate(3) clip(global_norm<1.0>) {
  %e = train.read @embed : tensor<1000x33xTYPE>
  %w = train.read @w : tensor<33x10xTYPE>
  %b = train.read @b : tensor<10xTYPE>
  %f = train.read @fixed : tensor<33xTYPE>
  %h = nn.embedding %e, %x : tensor<1000x33xTYPE>, tensor<16xi32>
  %d = nn.dropout %h rate 0.2 : tensor<16x33xTYPE>
  %s = nn.mul %d, %f : tensor<16x33xTYPE>, tensor<33xTYPE>
  %k = train.read @window : tensor<1x1x3x3xTYPE>
  %i = nn.reshape %s : tensor<16x33xTYPE> to tensor<16x1x3x11xTYPE>
  %c = nn.conv2d %i, %k padding [1, 1, 1, 1] : tensor<16x1x3x11xTYPE>, tensor<1x1x3x3xTYPE>
  %r = nn.reshape %c : tensor<16x1x3x11xTYPE> to tensor<16x33xTYPE>
  %o = nn.linear %r, %w, %b : tensor<16x33xTYPE>, tensor<33x10xTYPE>, tensor<10xTYPE>
  %sum, %count = nn.cross_entropy %o, %y : tensor<16x10xTYPE>, tensor<16xi32>
  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>
}
"""
BEFORE, AFTER = 7, 9  # micro-steps; the conversion is inside a window
TRAINED = ("embed", "w", "b", "window")
rng = np.random.default_rng(7)
TOKENS, LABELS = rng.integers(0, 50, (20, 16)), rng.integers(0, 10, (20, 16))
runtime = Runtime(RUNTIME_LIBRARY)


def module(dtype, state="m"):
    return MODULE.replace("TYPE", dtype).replace("STATE", state)


def rounded(values, dtype):
    """Values of f32 in another type, to nearest even."""
    if dtype == "f16":
        return values.astype(np.float16).astype(np.float32)
    if dtype == "bf16":
        bits = values.view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    return values


def steps(trainer, begin, end):
    return [trainer.step(x=TOKENS[i], y=LABELS[i]).loss for i in range(begin, end)]


class Case:
    """The artifacts of two types, and a state of the first that is in a window."""

    def __init__(self, folder, libraries, start, to):
        self.folder, self.libraries, self.start, self.to = folder, libraries, start, to
        self.checkpoint = self.path("before")
        with self.trained() as trainer:
            trainer.save(self.checkpoint)

    def path(self, name):
        return os.path.join(self.folder, f"{self.start}-{self.to}-{name}.safetensors")

    def new(self, dtype, threads=2, **options):
        return Trainer(runtime, self.libraries[dtype], threads=threads, seed=3, **options)

    def trained(self, **options):
        trainer = self.new(self.start, **options)
        steps(trainer, 0, BEFORE)
        return trainer

    def finish(self, trainer, name):
        """Goes on; returns the losses and the bytes of the two checkpoints, before and after."""
        trainer.save(self.path(name))
        losses = steps(trainer, BEFORE, BEFORE + AFTER)
        trainer.save(self.path(name + "-after"))
        return losses, *(bytes_of(self.path(name + end)) for end in ("", "-after"))

    def read_rest(self, trainer):
        return [trainer.read(name, *key) for name in TRAINED for key in (("state", "m"), ("gradient",))]

    def in_place(self):
        with self.trained(threads=1) as trainer:
            before = {name: trainer.read(name) for name in (*TRAINED, "fixed")}
            rest = self.read_rest(trainer)
            trainer.convert(self.libraries[self.to])
            for name, values in before.items():
                assert trainer.held(name)[1].dtype == TYPES[self.to]
                np.testing.assert_array_equal(trainer.read(name), rounded(values, self.to))
            np.testing.assert_equal(self.read_rest(trainer), rest)
            assert trainer.read("seen", "buffer").tolist() == [70000] * 3
            assert trainer.scalar("micro_step") == BEFORE % 3 and trainer.scalar("update") == BEFORE // 3
            return self.finish(trainer, "in-place")

    def in_place_by_type(self):
        with self.trained() as trainer:
            trainer.convert(dtype=self.to.encode(), what=PARAMETERS)
            trainer.convert(self.libraries[self.to])
            return self.finish(trainer, "by-type")

    def loaded(self):
        with self.new(self.to) as trainer:
            trainer.load(self.checkpoint)
            return self.finish(trainer, "loaded")

    def checkpoint_converted(self):
        with self.new(self.start) as trainer:
            trainer.load(self.checkpoint)
            trainer.convert(dtype=self.to.encode(), what=PARAMETERS)
            trainer.save(self.path("converted"))
        with self.new(self.to) as trainer:
            trainer.load(self.path("converted"))
            return self.finish(trainer, "from-converted")

    def checkpoint_converted_by_tool(self):
        run([tool("trainc-run"), self.libraries[self.start], f"--resume={self.checkpoint}", "--convert",
             f"dtype={self.to},what=parameters", "--save", self.path("by-tool")])
        assert bytes_of(self.path("by-tool")) == bytes_of(self.path("converted"))


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def refused(call, *expected):
    try:
        call()
    except Error as e:
        for text in expected:
            assert text in str(e), e
    else:
        raise AssertionError(f"not refused: {expected}")


def check_refusals(case, other):
    """Another optimizer's state, in place and from a file; memory limits; a state that its artifact cannot run."""
    with case.trained() as trainer:
        handle = trainer.trainer.value
        before = trainer.memory()

        def unchanged():
            trainer.save(case.path("unchanged"))
            assert bytes_of(case.path("unchanged")) == bytes_of(case.checkpoint)

        refused(lambda: trainer.convert(other), "MISMATCH", "missing: 'optimizer/w/v'", "unexpected: 'optimizer/w/m'")
        unchanged()
        with Trainer(runtime, other) as foreign:
            foreign.save(case.path("foreign"))
            refused(lambda: foreign.load(case.checkpoint), "MISMATCH", "missing: 'optimizer/w/v'")
            foreign.save(case.path("foreign-after"))
            assert bytes_of(case.path("foreign")) == bytes_of(case.path("foreign-after"))
        refused(lambda: trainer.load(case.path("foreign")), "MISMATCH", "unexpected: 'optimizer/w/v'")
        unchanged()
        refused(lambda: trainer.convert(dtype=b"f64", memory_limit=before.total), "memory_limit is")
        unchanged()
        trainer.convert(dtype=case.to.encode(), what=PARAMETERS | STATES)
        refused(lambda: trainer.step(x=TOKENS[0], y=LABELS[0]), "was converted to")
        assert trainer.trainer.value == handle
    with case.trained(memory_limit=before.total) as trainer:
        refused(lambda: trainer.convert(dtype=b"f64"), "memory_limit is")
        trainer.save(case.path("unchanged"))
        assert bytes_of(case.path("unchanged")) == bytes_of(case.checkpoint)


def check_layouts(folder, libraries):
    """An artifact of the same types that lays its state out in another way."""
    libraries = dict(libraries, flat=libraries["f32"])
    libraries["f32"] = compile_module(module("f32"), os.path.join(folder, "apart.so"), "--disable-pass=train-coalesce")
    case = Case(folder, libraries, "flat", "f32")
    straight = case.trained()
    assert steps(straight, BEFORE, BEFORE + AFTER) == case.in_place()[0]
    straight.close()


BATCHES = """
train.optimizer @o = sgd<lr = 1.0>
train.param @w : tensor<4x5xf32> init(zeros) optimizer(@o)
train.step @step(%x: tensor<Nx4xf32>, %y: tensor<Nxi32>) accumulate(2) {
  %w = train.read @w : tensor<4x5xf32>
  %z = nn.linear %x, %w : tensor<Nx4xf32>, tensor<4x5xf32>
  %sum, %count = nn.cross_entropy %z, %y : tensor<Nx5xf32>, tensor<Nxi32>
  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>
}
"""


def check_batches(folder):
    """Of zeros each class has the share 1/5, which gives the gradient by hand."""
    libraries = {n: compile_module(BATCHES.replace("Nx", f"{n}x"), os.path.join(folder, f"batch{n}.so"), "--target=cpu,cuda",
                                   "--cuda-arch=host") for n in (3, 4, 9)}
    checkpoint = os.path.join(folder, "open.safetensors")
    for first, then in ((9, 4), (4, 9), (9, 3), (3, 4)):
        x, y = rng.standard_normal((first + then, 4)).astype("f4"), rng.integers(0, 5, first + then)
        want = -x.T @ (0.2 - np.eye(5)[y]) / (first + then)
        for way in ("load", "load on a GPU", "convert"):
            with Trainer(runtime, libraries[first], device=b"cpu") as trainer:
                trainer.step(x=x[:first], y=y[:first])
                trainer.save(checkpoint)
                if way == "convert":
                    trainer.convert(libraries[then])
                    sums = trainer.read("w", "gradient")
                    result = trainer.step(x=x[first:], y=y[first:])
                    found = trainer.read("w")
            if way != "convert":
                with Trainer(runtime, libraries[then], device=b"cuda" if "GPU" in way else b"cpu") as trainer:
                    trainer.load(checkpoint)
                    sums = trainer.read("w", "gradient")
                    result = trainer.step(x=x[first:], y=y[first:])
                    found = trainer.read("w")
            if way == "load":  # refused where no power of two is
                data = bytes_of(checkpoint)
                with open(checkpoint, "wb") as f:
                    f.write(re.sub(rb'("trainc.divisor":")\d', rb"\g<1>7", data))
                with Trainer(runtime, libraries[then], device=b"cpu") as trainer:
                    refused(lambda: trainer.load(checkpoint), "DATA_CORRUPT", "divided by '7', expected a power of two")
            own = -x[:first].T @ (0.2 - np.eye(5)[y[:first]])  # divided by a power of two
            assert np.allclose(sums * -(2 ** np.floor(np.log2(then))), own, rtol=1e-5, atol=1e-6), (first, then, way)
            assert result.closed and np.allclose(found, want, rtol=1e-5, atol=1e-6), (first, then, way, found, want)


def main():
    with tempfile.TemporaryDirectory() as folder:
        libraries = {dtype: compile_module(module(dtype), os.path.join(folder, dtype + ".so")) for dtype in TYPES}
        other = compile_module(module("f32", state="v"), os.path.join(folder, "other.so"))
        for start, to in (("f32", "bf16"), ("f32", "f16"), ("bf16", "f32"), ("f16", "bf16")):
            case = Case(folder, libraries, start, to)
            expected = case.loaded()
            for way in (case.in_place, case.in_place_by_type, case.checkpoint_converted):
                assert way() == expected, (start, to, way.__name__)
            case.checkpoint_converted_by_tool()
        check_refusals(Case(folder, libraries, "f32", "bf16"), other)
        check_layouts(folder, libraries)
        check_batches(folder)


main()
