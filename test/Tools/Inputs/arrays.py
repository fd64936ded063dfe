"""Makes and reads .npy files with the standard library alone, for the tests of trainc-run.

usage: arrays.py toy FOLDER       examples of toy_artifact.c: x.npy (20x4 floats), y.npy (20 labels); eval_{x,y}.npy (7)
       arrays.py text FOLDER      a stream of tokens (uint8): tokens.npy (1001), eval_tokens.npy (50); weights of examples: weights.npy (125)
       arrays.py bad FOLDER       files that must be refused
       arrays.py show FILE        prints shape, type and values
"""

import ast
import math
import random
import struct
import sys

CODES = {"<f4": "f", "<f8": "d", "<i4": "i", "<i8": "q", "|u1": "B", "<u2": "H"}


def write(path, descr, shape, values, order=False):
    header = f"{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}"
    header = header.ljust(117) + "\n"
    data = struct.pack(f"<{len(values)}{CODES[descr]}", *values)
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data)


def read(path):
    with open(path, "rb") as f:
        magic, length = f.read(8), struct.unpack("<H", f.read(2))[0]
        assert magic == b"\x93NUMPY\x01\x00" and (10 + length) % 64 == 0, path
        header = ast.literal_eval(f.read(length).decode())
        assert not header["fortran_order"]
        count = math.prod(header["shape"])
        code = CODES[header["descr"]]
        values = struct.unpack(f"<{count}{code}", f.read())
    return header["descr"], header["shape"], values


def toy(folder):
    """Three clouds of points, one per label."""
    numbers = random.Random(1)
    for name, count in (("", 20), ("eval_", 7)):
        labels = [i % 3 for i in range(count)]
        rows = [[numbers.gauss(2.0 * (j == label), 0.5) for j in range(4)] for label in labels]
        write(f"{folder}/{name}x.npy", "<f4", (count, 4), sum(rows, []))
        write(f"{folder}/{name}y.npy", "<i8", (count,), labels)


def text(folder):
    line = b"the cat sat on the mat. "
    write(f"{folder}/tokens.npy", "|u1", (1001,), (line * 42)[:1001])
    write(f"{folder}/eval_tokens.npy", "|u1", (50,), (line * 3)[:50])
    write(f"{folder}/weights.npy", "<f4", (125,), [1.0] * 125)


def bad(folder):
    x = [0.5] * 80
    write(f"{folder}/nan_x.npy", "<f4", (20, 4), x[:41] + [math.nan] + x[42:])
    write(f"{folder}/inf_x.npy", "<f4", (20, 4), x[:41] + [-math.inf] + x[42:])
    write(f"{folder}/large_x.npy", "<f8", (20, 4), x[:41] + [1e300] + x[42:])
    write(f"{folder}/integer_x.npy", "<i4", (20, 4), [1] * 80)
    write(f"{folder}/wide_x.npy", "<f4", (20, 5), [0.5] * 100)
    write(f"{folder}/few_y.npy", "<i4", (19,), [0] * 19)
    write(f"{folder}/range_y.npy", "<i4", (20,), [3] * 20)
    write(f"{folder}/huge_y.npy", "<i8", (20,), [2**40] * 20)
    write(f"{folder}/fortran.npy", "<f4", (20, 4), x, order=True)
    write(f"{folder}/short_tokens.npy", "|u1", (8,), b"12345678")
    write(f"{folder}/outside_tokens.npy", "<u2", (1000,), [300] * 1000)
    write(f"{folder}/twice.npy", "<f4", "(4611686018427387904,), 'shape': (4,)", x)
    write(f"{folder}/overflow.npy", "<f4", (2**62,), x)
    with open(f"{folder}/x.npy", "rb") as f:
        data = f.read()
    entry = '"\\u001b[2Jx\\u009b": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}'
    escape = struct.pack("<Q", len(entry) + 2) + f"{{{entry}}}".encode()
    for name, content in (
        ("truncated.npy", data[:-4]),
        ("header.npy", data[:60]),
        ("type.npy", data.replace(b"<f4", b">f4")),
        ("keys.npy", data.replace(b"descr", b"descx")),
        ("empty.npy", b""),
        ("text.npy", b"hello, this is no array\n"),
        ("x.csv", b"1,2\n"),
        ("broken.safetensors", b"\xff" * 64),
        ("escape.safetensors", escape),
    ):
        with open(f"{folder}/{name}", "wb") as f:
            f.write(content)


if __name__ == "__main__":
    command, argument = sys.argv[1:]
    if command == "show":
        descr, shape, values = read(argument)
        print(descr, shape, " ".join(f"{value:.9g}" for value in values))
    else:
        {"toy": toy, "text": text, "bad": bad}[command](argument)
