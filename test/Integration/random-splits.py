# REQUIRES: numpy
# RUN: %python %s
"""Random networks whose inputs, parameters and values in between are split at random over two axes or three, in any order of
axes and in any mode, train as on one rank. What is refused says that a `train.constrain` would help.

usage: random-splits.py [FIRST [COUNT]]   (seeds)
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import compile_module, mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402
from common import Failed, run as command, tool  # noqa: E402

ROWS, CLASSES = 16, 8
MODES = ("none", "optimizer", "gradients", "parameters")
MESHES = (dict(data=2, model=2), dict(data=2, model=2), dict(data=4, model=1), dict(host=2, data=2, model=2))


class Network:
    """A module drawn from a seed: its `text`, `mesh`, options of trainc, and `splits` of inputs."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.mesh = MESHES[self.rng.integers(len(MESHES))]
        self.axes, self.params, self.lines, self.count = list(self.mesh), [], [], 0
        self.options = [f"--shard={self.pick(MODES)}", self.pick(("--bucket-size=1024", "--merge-buffer=full"))]
        self.width = self.pick((8, 16))
        self.x, self.splits = f"tensor<{ROWS}x{self.width}xf64>", dict(x=self.split(2))
        self.text = self.module(self.network(self.width))

    def pick(self, choices):
        return choices[self.rng.integers(len(choices))]

    def split(self, dims, often=0.7):
        """For each of `dims` dimensions the axes that split it, in any order."""
        lists = [[] for _ in range(dims)]
        for axis in self.rng.permutation(self.axes):
            if self.rng.random() < often:
                self.pick(lists).append(str(axis))
        return lists

    @staticmethod
    def shown(lists):
        return "split(" + ", ".join("[" + ", ".join(names) + "]" for names in lists) + ")"

    def like(self, lists):
        """How a value is split: as `lists` say or, seldom, otherwise."""
        return self.shown(self.split(len(lists)) if self.rng.random() < 0.04 else lists)

    def value(self, form, operands, kind):
        """A new value of the operation `form`, whose operands are names and types by turns; (name, type)."""
        self.count += 1
        self.lines.append(f"%v{self.count} = " + form.format(*operands[::2], *operands[1::2]))
        return f"%v{self.count}", kind

    def constrain(self, x, lists):
        """`x` split so, most times, else as it comes."""
        return self.value("train.constrain {} " + self.like(lists) + " : {}", x, x[1]) if self.rng.random() < 0.9 else x

    def param(self, sizes, lists):
        """A parameter, split so or, at times, not at all."""
        name, kind = f"p{len(self.params)}", "tensor<" + "".join(f"{size}x" for size in sizes) + "f64>"
        self.params.append((name, kind, self.like(lists if self.rng.random() < 0.8 else [[] for _ in lists])))
        self.lines.append(f"%{name} = train.read @{name} : {kind}")
        return f"%{name}", kind

    def linear(self, x, width, out):
        rows, inner, columns = self.split(3)
        operands = [*self.constrain(x, [rows, inner]), *self.param((width, out), [inner, columns])]
        if self.rng.random() < 0.5:
            operands += self.param((out,), [columns])
        commas = ", ".join(["{}"] * (len(operands) // 2))
        return self.value(f"nn.linear {commas} : {commas}", operands, f"tensor<{ROWS}x{out}xf64>")

    def layer(self, x, width):
        """One more operation on `x` of `width` columns; the value and its width."""
        what, lists = self.rng.integers(7), self.split(2)
        if what < 3:
            out = int(self.pick((8, 16, 24)))
            return self.linear(x, width, out), out
        x, kind = self.constrain(x, lists), x[1]
        if what == 3:
            weights = [*self.param((width,), lists[1:]), *self.param((width,), lists[1:])]
            return self.value("nn.layer_norm {}, {}, {} : {}, {}, {}", [*x, *weights], kind), width
        if what == 4:
            return self.value("nn.softmax {} dim 1 : {}", x, kind), width
        if what == 5:
            return self.value("nn.rms_norm {}, {} : {}, {}", [*x, *self.param((width,), lists[1:])], kind), width
        return self.value("nn.mul {}, {} : {}, {}", [*x, *self.param((ROWS, width), lists)], kind), width

    def network(self, width):
        x, alike = ("%x", self.x), {}
        for _ in range(self.rng.integers(3, 8)):
            x, width = self.layer(x, width)
            if self.rng.random() < 0.6:
                x = self.value("nn.tanh {} : {}", x, x[1])
            if x[1] in alike and self.rng.random() < 0.6:
                lists = self.split(2)
                operands = [*self.constrain(x, lists), *self.constrain(alike[x[1]], lists)]
                x = self.value("nn.add {}, {} : {}, {}", operands, x[1])
            alike[x[1]] = x
        if self.rng.random() < 0.5:
            square = self.value("nn.tanh {} : {}", x, x[1])
            return self.value("nn.reduce sum {} dims [0, 1] : {}", square, "tensor<f64>")[0]
        if width != CLASSES:
            x = self.linear(x, width, CLASSES)
        self.lines.append(f"%loss, %n = nn.cross_entropy {x[0]}, %y : {x[1]}, tensor<{ROWS}xi32>")
        return "%loss"

    def module(self, loss):
        texts = [self.shown(self.splits["x"]), *(split for *_, split in self.params)]
        # A mesh has no axis over which nothing is split.
        self.splits["z"] = [[axis for axis in self.axes if not any(axis in text for text in texts)]]
        axes = ", ".join(f"{axis} = 1" for axis in self.axes)
        lines = [f"train.mesh @mesh({axes})", "train.optimizer @o = adamw<lr = 0.01>"]
        lines += [f"train.param @{name} : {kind} init(normal<0.3>) optimizer(@o) {split}" for name, kind, split in self.params]
        lines += [f"train.step @step(%x: {self.x} {texts[0]}, %y: tensor<{ROWS}xi32>, %z: tensor<8xf64> "
                  f"{self.shown(self.splits['z'])}) accumulate(2) clip(global_norm<0.5>) {{",
                  *("  " + line for line in self.lines),
                  "  %z_sum = nn.reduce sum %z dims [0] : tensor<8xf64>",
                  f"  %sum = nn.add {loss}, %z_sum : tensor<f64>, tensor<f64>",
                  "  train.yield loss(%sum) : tensor<f64>", "}", ""]
        return "\n".join(lines)

    def inputs(self, whole, rank):
        """The parts of the inputs that `rank` of the mesh has."""
        place = dict(zip(self.axes, np.unravel_index(rank, tuple(self.mesh.values()))))
        parts = dict(whole)
        for name, lists in self.splits.items():
            for dim, axes in enumerate(lists):
                for axis in axes:
                    parts[name] = np.ascontiguousarray(np.split(parts[name], self.mesh[axis], dim)[place[axis]])
        return parts


def training(network, data):
    def work(rank):
        results = []
        for whole in data:
            result = rank.trainer.step(**(network.inputs(whole, rank.rank) if rank.ranks > 1 else whole))
            if result.closed:
                results.append((result.window_loss, result.grad_norm))
        return np.array(results), rank.tensors()
    return work


def compare(network, folder, bar=1e-9):
    """What is wrong with the network on its mesh, "" if nothing; None if it is refused as it should be."""
    rng = np.random.default_rng(1)
    data = [dict(x=rng.standard_normal((ROWS, network.width)), y=rng.integers(0, CLASSES, ROWS).astype("i4"),
                 z=rng.standard_normal(8)) for _ in range(6)]
    one, = run(training(network, data), compile_module(network.text, os.path.join(folder, "one.so")), 1)
    path, source = os.path.join(folder, "some.so"), os.path.join(folder, "one.mlir")
    done = command([tool("trainc"), source, "-o", path, mesh_option(network.mesh), *network.options], check=False)
    if done.returncode:
        return None if "a train.constrain gathers it" in done.stderr else done.stderr
    try:
        results = run(training(network, data), path, int(np.prod(list(network.mesh.values()))))
    except RuntimeError as error:
        return str(error)
    if not all(np.array_equal(results[0][0], r[0]) and same(results[0][1], r[1]) for r in results):
        return "ranks differ"
    if not np.allclose(one[0], results[0][0], rtol=bar, atol=0):
        return f"losses and norms {results[0][0]}, not {one[0]}"
    far = [key for key, value in one[1].items() if not np.allclose(value, results[0][1][key], rtol=bar, atol=bar)]
    return f"tensors differ: {far}" if far else ""


def main():
    first, count = (int(text) for text in [*sys.argv[1:], *("1", "24")[len(sys.argv) - 1:]])
    bad, refused = 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(first, first + count):
            network = Network(seed)
            try:
                problem = compare(network, folder)
            except Failed as error:
                problem = str(error)
            refused += problem is None
            what = f"seed {seed}, {mesh_option(network.mesh)} {' '.join(network.options)}"
            if check(f"{what}{', refused' if problem is None else ''}", not problem, problem):
                bad, _ = bad + 1, print(network.text)
    bad += check("at most half are refused", 2 * refused <= count, refused)
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
