"""Command lists on the emulator: it runs the kernels, NumPy the products of matrices.

Values are arrays as they stand on the device: bf16 as its bits, i1 as bytes.
"""
import math
import os
import re

import numpy as np

from common import run, tool
from emulator import Device, aligned, from_bf16, to_bf16
from lowered import emulate

STORED = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": np.uint16, "i1": np.uint8, "i8": np.int8,
          "i16": np.int16, "i32": np.int32, "i64": np.int64}
COUNTERS = 4 << 14  # bytes that blocks count in, zero before and after each launch


def split(type):
    """(shape, element) of what stands in tensor<...>."""
    *shape, element = type.split("x")
    return tuple(map(int, shape)), element


def store(values, element):
    """Numbers as they stand on the device."""
    return to_bf16(values) if element == "bf16" else np.asarray(values).astype(STORED[element])


def show(array, element):
    """The numbers of an array from the device."""
    return from_bf16(array) if element == "bf16" else array


class Lists:
    """The lists of a module, whose products have no epilogues, and its arenas."""

    def __init__(self, module, emulator, folder, *options):
        path = os.path.join(folder, "lists.mlir")
        with open(path, "w") as f:
            f.write(module)
        commands = run([tool("trainc"), path, "--target=cuda", "--stop-after=commands", "-o", "-",
                        "--disable-pass=train-fuse-epilogues", *options]).stdout
        kernels = re.findall(r"^ *train\.kernel .*?^  }\n", commands, re.M | re.S)
        self.inplace = {name: [int(i) for i in numbers.split(",") if i.strip()] for name, numbers in
                        re.findall(r"train\.kernel @(\w+)\(.*?inplace \[(.*?)\]", "".join(kernels))}
        self.lists = {name: (int(workspace), body.strip().split("\n")) for name, workspace, body in
                      re.findall(r"^  train\.list @(\S+) of [^\n]*? \(\) workspace\((\d+)\)[^\n]*\{\n(.*?)^  }\n", commands, re.M | re.S)}
        self.arenas, self.slices, self.spans, self.scalars = {}, {}, {}, {}
        buckets = {name: (int(elements), dict(zip(re.findall(r"@([^\s,]+)", params), map(int, offsets.split(","))))) for
                   name, params, elements, offsets in
                   re.findall(r"train\.bucket @(\S+) \[(.*?)\] elements\((\d+)\) offsets\(\[(.*?)\]\)", commands)}
        for name, role, body in re.findall(r"train\.arena @(\S+) (\w+) \{\n(.*?)\n  \}", commands, re.S):
            spans = re.findall(r"train\.span @(\S+)", body)
            slices = {part: split(type) for part, type in re.findall(r"train\.slice @(\S+) : tensor<(.*?)>", body)}
            places, end = {}, 0  # in elements: an arena has one type
            for span in spans:
                places |= {part: end + offset for part, offset in buckets[span][1].items()}
                places[span] = end
                end += buckets[span][0]
            if not spans:
                for part, (shape, _) in slices.items():
                    places[part] = end
                    end += math.prod(shape)
            element = next(iter(slices.values()))[1]
            memory = self.arenas[name] = aligned(np.zeros(end, STORED[element]))
            for part, (shape, element) in slices.items():
                self.slices[name, part] = memory[places[part]:places[part] + math.prod(shape)].reshape(shape), element
                if role == "scalars":
                    self.scalars[part] = self.slices[name, part][0]
            for span in spans:
                self.spans[name, span] = memory[places[span]:places[span] + buckets[span][0]], element
        self.launches, image = emulate("".join(kernels), folder)
        self.device = Device(emulator, image)

    def close(self):
        self.device.close()

    def set(self, name, values, role):
        """Writes a tensor of the arena that is called `role`."""
        for (arena, part), (array, element) in self.slices.items():
            if part == name and arena.startswith("arena." + role):
                array[...] = store(values, element)

    def get(self, name, role):
        return next(show(array, element) for (arena, part), (array, element) in self.slices.items()
                    if part == name and arena.startswith("arena." + role))

    def run(self, name, inputs=()):
        """The results of a list, as numbers; `inputs` by position."""
        workspace, lines = self.lists[name]
        self.workspace = aligned(np.full(workspace, 77, np.uint8))
        self.inputs, self.outputs, self.buffers = list(inputs), {}, {}  # buffers are (array, element)
        for line in lines:
            line = line.strip()
            if line == "train.return":
                return [show(*self.outputs[i]) for i in sorted(self.outputs)]
            if match := re.match(r"(%\w+) = train\.address (\S+)(?: (\d+))? : memref<(.*)>$", line):
                result, base, number, type = match.groups()
                self.buffers[result] = self.address(base, number, *split(type))
            elif match := re.match(r"(%\w+) = train\.view (%\w+) from (\d+) : .* -> memref<(.*)>$", line):
                result, source, first, type = match.groups()
                array, element = self.buffers[source]
                shape, _ = split(type)
                self.buffers[result] = array.reshape(-1)[int(first):int(first) + math.prod(shape)].reshape(shape), element
            elif match := re.match(r"train\.copy (%\w+) to (%\w+) :", line):
                source, target = (self.buffers[name][0] for name in match.groups())
                target[...] = source.reshape(target.shape)
            elif match := re.match(r"train\.flatten (.*?) at \[(.*?)\] outs\((%\w+) : ", line):
                sources, offsets, target = match.groups()
                for source, offset in zip(sources.split(", "), map(int, offsets.split(", "))):
                    array = self.buffers[source][0].reshape(-1)
                    self.buffers[target][0].reshape(-1)[offset:offset + array.size] = array
            elif match := re.match(r"train\.launch @(\S+?)\((.*?)\) outs\((.*?) : ", line):
                kernel, ins, outs = match.groups()
                self.launch(kernel, ins.split(", ") if ins else [], outs.split(", "))
            elif match := re.match(r"train\.gemm (%\w+), (%\w+)(?: bias (%\w+))? outs\((%\w+) : .*?\) m (\d+) n (\d+) k (\d+) batch (\d+)(.*?) : ", line):
                *names, m, n, k, batch, words = match.groups()
                self.gemm(*names, *map(int, (m, n, k, batch)), words.split())
            else:
                raise NotImplementedError(line)
        raise AssertionError(f"{name} does not return")

    def address(self, base, number, shape, element):
        stored = np.dtype(STORED[element])
        size = math.prod(shape) * stored.itemsize
        if base == "input":
            return aligned(store(self.inputs[int(number)], element).reshape(shape)), element
        if base == "output":
            made = self.outputs[int(number)] = aligned(np.full(shape, 77, stored)), element
            return made
        if base == "workspace":
            memory = self.workspace[int(number):int(number) + size]
        else:
            arena, *part = base.lstrip("@").split("::@")
            if part:
                return (self.slices | self.spans)[arena, part[0]][0].reshape(shape), element
            memory = self.arenas[arena].view(np.uint8)[:size]
        return memory.view(stored).reshape(shape), element

    def launch(self, kernel, ins, outs):
        """Arguments in their order, those in place among them, then the other results."""
        inplace = self.inplace[kernel]
        count, ins = len(ins) + sum(i >= 0 for i in inplace), iter(ins)
        names = [outs[inplace.index(i)] if i in inplace else next(ins) for i in range(count)]
        names += [out for out, i in zip(outs, inplace) if i < 0]
        launch = self.launches[kernel]
        scratch = [aligned(np.zeros(launch["scratch"], np.uint8))] if "scratch" in launch else []
        self.device.launch(kernel, launch["workgroups"], launch["threads"], *(self.buffers[name][0] for name in names), *scratch)
        if scratch and scratch[0][:COUNTERS].any():
            raise AssertionError(f"{kernel} leaves counters that are not 0")

    def gemm(self, lhs, rhs, bias, out, m, n, k, batch, words):
        result, result_element = self.buffers[out]
        wide = np.float64 if self.buffers[lhs][1] == "f64" else np.float32

        def matrix(name, turned, rows, columns, batch):  # rows in memory may be longer
            x = show(*self.buffers[name]).astype(wide)
            return x.reshape(batch, columns, -1)[..., :rows].swapaxes(1, 2) if turned else x.reshape(batch, rows, -1)[..., :columns]

        c = np.matmul(matrix(lhs, "transpose_lhs" in words, m, k, batch),
                      matrix(rhs, "transpose_rhs" in words, k, n, 1 if "broadcast_rhs" in words else batch))
        if bias:
            c = c + show(*self.buffers[bias]).astype(wide)
        c = c.reshape(result.shape)
        if "accumulate" in words:
            c = c + show(result, result_element)
        result[...] = store(c, result_element)
