"""Launches one kernel of an image on the emulator and prints what came of it.

An argument is TYPE:COUNT, an array of f32, i32, ... filled with 0, 1, 2, ...,
TYPE:COUNT=VALUE, one filled with a value, or TYPE=VALUE, a scalar."""

import argparse
import sys

import emulator
import numpy as np

TYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "i16": np.int16}


def argument(text):
    array, _, value = text.partition("=")
    kind, _, count = array.partition(":")
    if value:
        value = np.array(float(value) if kind[0] == "f" else int(value, 0)).astype(TYPES[kind])[()]
    if not count:
        return value
    return emulator.aligned(np.arange(int(count)) if value == "" else np.full(int(count), value), TYPES[kind])


parser = argparse.ArgumentParser()
parser.add_argument("library")
parser.add_argument("image")
parser.add_argument("kernel")
parser.add_argument("arguments", nargs="*", type=argument)
parser.add_argument("--grid", type=int, nargs="+", default=[1])
parser.add_argument("--block", type=int, nargs="+", default=[32])
parser.add_argument("--shared", type=int, default=0)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--late", action="store_true", help="stores are seen late")
parser.add_argument("--limit", type=int)
parser.add_argument("--print", type=int, nargs="*", default=[], help="arguments to print")
options = parser.parse_args()

device = emulator.Device(options.library, options.image, options.seed, options.late)
if options.limit:
    device.set_limit(options.limit)
try:
    device.launch(
        options.kernel, options.grid, options.block, *options.arguments, shared=options.shared
    )
except emulator.Fault as fault:
    sys.exit(f"status {fault.status}: {fault}")
for i in options.print:
    print(f"arg{i}:", *options.arguments[i])
print(f"{options.kernel}: no fault")
