"""Makes the files of bad-input.test with the standard library alone.

usage: bad_input.py data FOLDER          examples of tokens.mlir, good and bad
       bad_input.py cut FILE BYTES OUT   a file without its last bytes
       bad_input.py abi MODEL.so OUT     an artifact with another ABI version, and its checksum
"""
import math
import os
import random
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "Tools", "Inputs"))
from arrays import write  # noqa: E402

MAGIC = b"TRAINTC1"  # the artifact's tables begin with it, then the ABI version
NOTE = struct.pack("<III8s", 7, 8, 1, b"trainc")  # and the checksum


def data(folder):
    numbers = random.Random(1)
    tokens = [numbers.randrange(7) for _ in range(20)]
    labels = [numbers.randrange(3) for _ in range(20)]
    points = [numbers.gauss(0, 1) for _ in range(80)]
    for name, type_, shape, values in (
        ("t", "<i4", (20,), tokens),
        ("x", "<f4", (20, 4), points),
        ("y", "<i4", (20,), labels),
        ("outside_t", "<i4", (20,), tokens[:13] + [7] + tokens[14:]),
        ("negative_y", "<i4", (20,), labels[:3] + [-1] + labels[4:]),
        ("float_t", "<f4", (20,), tokens),
        ("nan_x", "<f4", (20, 4), points[:41] + [math.nan] + points[42:]),
        ("large_x", "<f4", (20, 4), points[:41] + [200.0] + points[42:]),
        ("wide_x", "<f4", (20, 5), points + points[:20]),
    ):
        write(f"{folder}/{name}.npy", type_, shape, values)


def cut(source, count, out):
    with open(source, "rb") as f, open(out, "wb") as g:
        g.write(f.read()[:-int(count)])


def checksum(content):
    total, most = len(content), (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", bytes(content) + bytes(-len(content) % 8)):
        total = (total ^ word) * 0x9E3779B97F4A7C15 & most
        total = (total << 29 | total >> 35) & most
    return total


def abi(source, out):
    with open(source, "rb") as f:
        content = bytearray(f.read())
    at = content.find(MAGIC)
    assert at >= 0 and content.find(MAGIC, at + 1) < 0
    content[at + 8:at + 12] = struct.pack("<I", 99)
    at = content.index(NOTE) + len(NOTE)
    content[at:at + 8] = bytes(8)
    content[at:at + 8] = struct.pack("<Q", checksum(content))
    with open(out, "wb") as f:
        f.write(content)


if __name__ == "__main__":
    dict(data=data, cut=cut, abi=abi)[sys.argv[1]](*sys.argv[2:])
