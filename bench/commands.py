"""The commands of an artifact's entry: what they read and write, how often they ran and for how long."""
import ctypes
import os
from ctypes import POINTER, Structure, byref, c_char_p, c_int64, c_uint32, c_uint64, c_void_p

import numpy as np

from common import BUILD, ROOT, compiled

LISTS = ["first", "next", "apply"]
MASTER, COMPUTE, GRADIENT, MERGED = 0, 1, 2, 7  # trainc_role; test/Project/abi.py compares all numbers with step_abi.def
READ, WRITE = 1, 2
COLLECTIVES = {3: "reduce_scatter", 4: "all_reduce", 5: "all_gather"}  # trainc_command_kind
ELEMENT_BYTES = [4, 8, 2, 2, 1, 2, 4, 8, 1, 1]  # by dtype


class Operand(Structure):
    _fields_ = [("base", c_uint32), ("access", c_uint32), ("offset", c_uint64), ("bytes", c_uint64),
                ("dtype", c_uint32), ("reserved", c_uint32)]


class Command(Structure):
    _fields_ = [("kind", c_uint32), ("kernel", c_uint32), ("tiles", c_int64), ("num_operands", c_uint32),
                ("rate", c_uint32), ("operands", POINTER(Operand)), ("detail", c_void_p), ("label", c_char_p),
                ("location", c_char_p), ("flops", c_int64)]


class Bucket(Structure):
    _fields_ = [(name, c_uint64) for name in ("first", "bytes", "local", "pieces")]


class Arena(Structure):
    _fields_ = [("name", c_char_p), ("role", c_uint32), ("dtype", c_uint32), ("bytes", c_uint64),
                ("num_buckets", c_uint32), ("piece_axes", c_uint32), ("buckets", POINTER(Bucket))]


class Event(Structure):
    """trainc_event"""
    _fields_ = [(name, c_uint32) for name in ("end", "entry", "list", "index")] + [
        ("command", POINTER(Command)), ("time_ns", c_uint64)]


class SpansContext(Structure):
    _fields_ = [("begin", c_uint64), ("of", c_void_p * len(LISTS))]


def commands(trainer, entry):
    """{list: its commands}."""
    lists = trainer.descriptor.entries[trainer.entries[entry]].lists
    return {name: ctypes.cast(lists[i].commands, POINTER(Command))[:lists[i].count] for i, name in enumerate(LISTS)}


def arenas(trainer):
    return ctypes.cast(trainer.descriptor.arenas, POINTER(Arena))[:trainer.descriptor.num_arenas]


def elements(operand):
    return operand.bytes // ELEMENT_BYTES[operand.dtype]


def copied_elements(trainer, arena=None, begin=0, end=2**64):
    """Elements of compute copies of parameters, all or those in a part of an arena."""
    tensors = trainer.descriptor.tensors[:trainer.descriptor.num_tensors]
    return sum(elements(t) for t in tensors if t.role == COMPUTE
               and (arena is None or t.arena == arena and begin <= t.offset < end))


def elements_cast(trainer, command):
    """Elements of parameters that a command reads and writes narrower: to their copies or, as many, elsewhere."""
    known = arenas(trainer)
    operands = [(o, known[o.base].role if o.base < len(known) else None)
                for o in command.operands[:command.num_operands]]
    read = [o for o, role in operands if role == MASTER and o.access & READ]
    cast = 0
    for o, role in operands if read else ():
        source = next((r for r in read if elements(r) == elements(o) and r.bytes > o.bytes), None)
        if role == COMPUTE and o.access & WRITE:
            cast += copied_elements(trainer, o.base, o.offset, o.offset + o.bytes)
        elif source and o.access & WRITE:
            read.remove(source)
            cast += elements(o)
    return cast


class Spans:
    """Observes the runs of one entry: `of[list]` has a row (runs, nanoseconds) for each command."""

    def __init__(self, trainer, entry="step"):
        self.trainer, self.commands = trainer, commands(trainer, entry)
        source, library = os.path.join(ROOT, "bench", "spans.c"), os.path.join(BUILD, "bench", "libspans.so")
        compiled(source, library, "clang-22", "-std=c11", "-O2", "-shared", "-fPIC",
                 "-I" + os.path.join(ROOT, "runtime", "include"))
        self.observe = ctypes.CDLL(library).trainc_bench_observe
        self.of = {name: np.zeros((len(c), 2), np.uint64) for name, c in self.commands.items()}
        self.context = SpansContext(0, (c_void_p * len(LISTS))(*(a.ctypes.data for a in self.of.values())))

    def __enter__(self):
        for a in self.of.values():
            a[:] = 0
        self.trainer.runtime.call("trainc_set_observer", self.trainer.trainer, self.observe, byref(self.context))
        return self

    def __exit__(self, *_):
        self.trainer.runtime.call("trainc_set_observer", self.trainer.trainer, None, None)

    def ms(self, name, prefix=""):
        """Milliseconds in the commands of a list whose labels begin with a prefix."""
        return sum(int(ns) for c, (_, ns) in zip(self.commands[name], self.of[name])
                   if c.label.decode().startswith(prefix)) / 1e6
