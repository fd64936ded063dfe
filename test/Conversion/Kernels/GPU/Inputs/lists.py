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


class Launch:
    def __init__(self, text):
        self.kernel, operands, self.places, types = re.match(
            r"train\.launch @(\S+?)\((.*?)\) \{.*?places = \[(.*)\]\} : \(.*?\) -> (.*)$", text).groups()
        self.operands = operands.split(", ") if operands else []
        self.places = [(re.findall(r"@([\w.]+)", place), re.search(r"-?\d+$", place)) for place in
                       re.findall(r"\[([^\[\]]*)\]", self.places)]
        self.types = re.findall(r"tensor<([^>]*)>", types)


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
        self.lists = {name: (re.findall(r"(%\w+): tensor<([^>]*)>", arguments), body.strip().split("\n"))
                      for name, arguments, body in
                      re.findall(r"^  train\.list @(\S+) of [^\n]*? \(([^\n]*?)\) workspace[^\n]*\{\n(.*?)^  }\n", commands,
                                 re.M | re.S)}
        self.arenas, self.slices, self.scalars = {}, {}, {}
        for name, role, size, fields in re.findall(r"train\.arena @(\S+) role\(\"(\w+)\"\) bytes\((\d+)\)(.*)", commands):
            memory = self.arenas[name] = aligned(np.zeros(max(int(size), 1), np.uint8))
            offsets = [int(n) for n in re.findall(r"\d+", re.search(r"offsets = array<i64(.*?)>", fields)[1])]
            slices = re.findall(r"@([^\s,\]]+)", re.search(r"slices = \[(.*?)\]", fields)[1])
            types = re.findall(r"tensor<([^>]*)>", re.search(r"types = \[(.*?)\]", fields)[1])
            for offset, part, type in zip(offsets, slices, types):
                shape, element = split(type)
                size = math.prod(shape) * np.dtype(STORED[element]).itemsize
                self.slices[name, part] = memory[offset:offset + size].view(STORED[element]).reshape(shape), element
                if role == "scalars":
                    self.scalars[part] = self.slices[name, part][0]
        self.launches, image = emulate("".join(kernels), folder)
        self.device = Device(emulator, image)

    def close(self):
        self.device.close()

    def place(self, names, type):
        """The array that a reference to an arena or a slice of one is."""
        shape, element = split(type)
        if len(names) > 1:
            return self.slices[tuple(names)][0].reshape(shape)
        size = math.prod(shape) * np.dtype(STORED[element]).itemsize
        return self.arenas[names[0]][:size].view(STORED[element]).reshape(shape)

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
        arguments, lines = self.lists[name]
        self.values, self.types = {}, {}
        for (value, type), array in zip(arguments, inputs):
            shape, element = split(type)
            self.values[value] = aligned(store(array, element).reshape(shape))
        for line in lines:
            line = line.strip()
            if match := re.match(r"train\.return(?: (.*) : (.*))?$", line):
                values, types = match.groups()
                if not values:
                    return []
                return [show(self.values[v], split(t)[1])
                        for v, t in zip(values.split(", "), re.findall(r"tensor<([^>]*)>", types))]
            if match := re.match(r"train\.write (\S+) to @(\S+?)(?:::@(\S+))? : tensor<(.*)>$", line):
                value, arena, part, type = match.groups()
                self.place([arena] + [part] * bool(part), type)[...] = self.values[value]
                continue
            result, count, command = re.match(r"(%\w+)(?::(\d+))? = (.*)$", line).groups()
            values = self.command(command)
            for i, value in enumerate(values):
                self.values[f"{result}#{i}" if count else result] = value
        raise AssertionError(f"{name} does not return")

    def command(self, text):
        if match := re.match(r"train\.read @(\S+?)(?:::@(\S+))? : tensor<(.*)>$", text):
            arena, part, type = match.groups()
            return [self.place([arena] + [part] * bool(part), type)]
        if match := re.match(r"nn\.reshape (\S+) : .* to tensor<(.*)>$", text):
            return [self.values[match[1]].reshape(split(match[2])[0])]
        if text.startswith("train.launch "):
            return self.launch(Launch(text))
        if text.startswith("train.gemm "):
            return [self.gemm(text)]
        raise NotImplementedError(text)

    def launch(self, l):
        operands = [self.values[o] for o in l.operands]
        results, more = [], []
        for index, type, (names, _) in zip(self.inplace[l.kernel], l.types, l.places):
            shape, element = split(type)
            if index >= 0:
                results.append(operands[index].reshape(shape))
                continue
            results.append(self.place(names, type) if names else aligned(np.full(shape, 77, STORED[element])))
            more.append(results[-1])
        launch = self.launches[l.kernel]
        scratch = [aligned(np.zeros(launch["scratch"], np.uint8))] if "scratch" in launch else []
        self.device.launch(l.kernel, launch["tiles"], launch["threads"], *operands, *more, *scratch)
        if scratch and scratch[0][:COUNTERS].any():
            raise AssertionError(f"{l.kernel} leaves counters that are not 0")
        return results

    def gemm(self, text):
        operands, words, places, types = re.match(r"train\.gemm (.*?) m (.*?) \{.*?places = \[(.*)\]\} : (.*)$", text).groups()
        lhs, rhs = operands.split(" ")[0].rstrip(","), operands.split(" ")[1]
        bias, init = (re.search(rf" {word} (\S+)", operands) for word in ("bias", "init"))
        m, n, k, batch = (int(x) for x in re.match(r"(\d+) n (\d+) k (\d+) batch (\d+)", words).groups())
        given = re.findall(r"tensor<([^>]*)>", types.split(" -> ")[0])
        type = re.search(r"-> tensor<(.*)>", types)[1]
        element, result_element = split(given[0])[1], split(type)[1]
        wide = np.float64 if element == "f64" else np.float32

        def matrix(name, turned, rows, columns, batch):
            x = show(self.values[name], element).astype(wide)
            return x.reshape(batch, columns, rows).swapaxes(1, 2) if turned else x.reshape(batch, rows, columns)

        c = np.matmul(matrix(lhs, "transpose_lhs" in words, m, k, batch),
                      matrix(rhs, "transpose_rhs" in words, k, n, 1 if "broadcast_rhs" in words else batch))
        shape = split(type)[0]
        if bias:
            c = c + show(self.values[bias[1]], split(given[2])[1]).astype(wide)
        c = c.reshape(shape)
        names = re.findall(r"@([^\s,:\]]+)", places)
        if init:
            result = self.values[init[1]].reshape(shape)
            c = c + show(result, result_element)
        else:
            result = self.place(names, type) if names else aligned(np.empty(shape, STORED[result_element]))
        result[...] = store(c, result_element)
        return result
