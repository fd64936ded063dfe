# REQUIRES: numpy
# RUN: %python %s
"""Updates of gradients that are inputs: the same as of the gradients of a loss; from the gradients' own memory without a copy;
summed over a window; added to those of a loss. From the gradients' own memory also where the step needs them otherwise, too.
"""
import ctypes
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import RUNTIME_LIBRARY, compile_module  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

PARAMETERS = """train.optimizer @o = adamw<lr = 0.01>
train.param @a : tensor<6x5xf32> init(normal<0.5>) optimizer(@o)
train.param @b : tensor<5000xf32> init(normal<0.5>) optimizer(@o)
"""
INPUTS = "%ga: tensor<6x5xf32>GA, %gb: tensor<5000xf32>GB"
LOSS = """  %a = train.read @a : tensor<6x5xf32>
  %b = train.read @b : tensor<5000xf32>
  %ma = nn.mul %a, %ga : tensor<6x5xf32>, tensor<6x5xf32>
  %mb = nn.mul %b, %gb : tensor<5000xf32>, tensor<5000xf32>
  %sa = nn.reduce sum %ma dims [0, 1] : tensor<6x5xf32>
  %sb = nn.reduce sum %mb dims [0] : tensor<5000xf32>
  %s = nn.add %sa, %sb : tensor<f32>, tensor<f32>
  train.yield loss(%s) : tensor<f32>
"""


def module(clauses="", given="ab", loss=False):
    inputs = INPUTS.replace("GA", " gradient(@a)" if "a" in given else "").replace("GB", " gradient(@b)" if "b" in given
                                                                                  else "")
    body = LOSS if loss else "  train.yield\n"
    return PARAMETERS + f"train.step @step({inputs}) clip(global_norm<1.0>) {clauses} {{\n{body}}}\n"


def train(text, folder, own=False, updates=4):
    """Parameters and norms after some updates; `own` puts the gradients where the trainer has them."""
    path = compile_module(text, os.path.join(folder, "given.so"))
    runtime, rng, norms = Runtime(RUNTIME_LIBRARY), np.random.default_rng(3), []
    with Trainer(runtime, path, threads=2, seed=1) as trainer:
        for _ in range(updates):
            gradients = dict(ga=rng.standard_normal((6, 5)), gb=rng.standard_normal(5000))
            for i, (name, value) in enumerate(gradients.items() if own else ()):
                data, tensor = ctypes.c_void_p(), trainer.tensors["gradient", name[1:], None]
                runtime.call("trainc_tensor_data", trainer.trainer, ctypes.c_uint32(tensor), ctypes.byref(data))
                runtime.call("trainc_bind_input", trainer.trainer, ctypes.c_uint32(0), ctypes.c_uint32(i), data,
                             ctypes.c_uint64(value.size * 4))
                trainer.write(name[1:], value, role="gradient")
            norms.append(trainer.step(**({} if own else gradients)).grad_norm)
        return trainer.read("a"), trainer.read("b"), np.array(norms)


# Of @a, whose gradient is made of a product and of one that is given, and the loss and an output use that one, too.
USED = """train.optimizer @o = sgd<lr = 1.0>
train.param @b : tensor<30x21xf32> init(zeros) optimizer(@o)
train.param @a : tensor<30x21xf32> init(normal<0.5>) optimizer(@o)
train.param @c : tensor<21xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<7x30xf32>, %ga: tensor<30x21xf32> gradient(@a), %gc: tensor<21xf32> gradient(@c)) -> ("size", "g") {
  %a = train.read @a : tensor<30x21xf32>
  %b = train.read @b : tensor<30x21xf32>
  %c = train.read @c : tensor<21xf32>
  %gb = nn.mul %ga, %b : tensor<30x21xf32>, tensor<30x21xf32>
  %gbb = nn.mul %gb, %ga : tensor<30x21xf32>, tensor<30x21xf32>
  %t = nn.reduce sum %gbb dims [0, 1] : tensor<30x21xf32>
  %h = nn.linear %x, %a, %c : tensor<7x30xf32>, tensor<30x21xf32>, tensor<21xf32>
  %hh = nn.mul %h, %h : tensor<7x21xf32>, tensor<7x21xf32>
  %s = nn.reduce sum %hh dims [0, 1] : tensor<7x21xf32>
  %gg = nn.mul %ga, %ga : tensor<30x21xf32>, tensor<30x21xf32>
  %size = nn.reduce sum %gg dims [0, 1] : tensor<30x21xf32>
  %l = nn.add %t, %s : tensor<f32>, tensor<f32>
  train.yield %size, %ga loss(%l) : tensor<f32>, tensor<30x21xf32>, tensor<f32>
}
"""


def train_used(folder, own, *options):
    """Outputs, parameters and norm of an update."""
    path = compile_module(USED, os.path.join(folder, "used.so"), *options)
    rng = np.random.default_rng(4)
    x, given = rng.standard_normal((7, 30)), dict(ga=rng.standard_normal((30, 21)), gc=rng.standard_normal(21))
    runtime = Runtime(RUNTIME_LIBRARY)
    with Trainer(runtime, path, threads=2, seed=1) as trainer:
        for i, (name, value) in enumerate(given.items() if own else ()):
            trainer.bind_pointer("step", i + 1, own_memory(trainer, name[1:]), value.size * 4)
            trainer.write(name[1:], value, role="gradient")
        norm = trainer.step(x=x, **({} if own else given)).grad_norm
        return *trainer.outputs().values(), *map(trainer.read, "abc"), norm


def own_memory(trainer, name):
    data = ctypes.c_void_p()
    trainer.call("trainc_tensor_data", trainer.tensors["gradient", name, None], ctypes.byref(data))
    return data.value


def refused_places(folder):
    """In memory of gradients an input is refused but in its own place."""
    path, texts = compile_module(USED, os.path.join(folder, "used.so")), []
    with Trainer(Runtime(RUNTIME_LIBRARY), path, threads=1) as trainer:
        for index, place, size in ((1, own_memory(trainer, "b"), 2520), (1, own_memory(trainer, "a") + 4, 2520),
                                   (0, own_memory(trainer, "a"), 840), (2, own_memory(trainer, "a") - 80, 84)):
            try:
                trainer.bind_pointer("step", index, place, size)
                texts.append("")
            except Error as e:
                texts.append(str(e))
    return all("lies in the memory of gradients; expected other memory" in text for text in texts), texts


def same(x, y):
    return all(np.array_equal(a, b) for a, b in zip(x, y))


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        wanted = train(module(given="", loss=True), folder)
        bad += check("as those of a loss", same(train(module(), folder), wanted))
        bad += check("in the gradients' own memory", same(train(module(), folder, own=True), wanted))
        bad += check("over a window", same(train(module("accumulate(2)"), folder),
                                           train(module("accumulate(2)", given="", loss=True), folder)))
        scaled = train(module("loss_scale(64.0)"), folder)
        bad += check("divided by the loss scale", np.array_equal(scaled[2] * 64, wanted[2]))
        double = train(module(loss=True), folder)
        bad += check("added to those of a loss", np.array_equal(double[2], wanted[2] * 2))
        for options in (), ("--disable-pass=train-fuse-optimizer",), ("--disable-pass=fuse-kernels",), ("--reference",):
            bad += check(f"used otherwise, too {options}", same(train_used(folder, True, *options), train_used(folder, False, *options)))
        bad += check("in the memory of another gradient", *refused_places(folder))
        try:
            train(module("accumulate(2)"), folder, own=True)
            bad += check("own memory in a window is refused", False)
        except Error as e:
            bad += check("own memory in a window is refused", "other memory" in str(e))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
