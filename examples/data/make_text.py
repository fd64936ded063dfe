#!/usr/bin/env python3
"""Turns a text into token streams for a character model: train_tokens.npy and val_tokens.npy, int32.

usage: make_text.py TEXT[.gz] FOLDER

A token is the ASCII code of a character, so the vocabulary has 128 entries and needs no file: to print tokens, print
them as bytes. Typographic quotes, dashes and spaces become their ASCII forms; lines that draw tables or rules are left
out, as is every other character that is not ASCII. The last 5 % of the text is held out. Only the standard library.
"""
import array
import gzip
import os
import struct
import sys

HELD_OUT = 0.05
ASCII = str.maketrans({"‘": "'", "’": "'", "´": "'", "“": '"', "”": '"', "—": "--", "−": "-", "•": "*", "·": "*",
                       "\u00a0": " ", "→": "->", "×": "x"})


def read_text(path):
    opened = gzip.open(path, "rt", encoding="utf-8") if path.endswith(".gz") else open(path, encoding="utf-8")
    with opened as f:
        lines = [line for line in f if not any("\u2500" <= c <= "\u257f" for c in line)]  # box-drawing characters
    return "".join(lines).translate(ASCII).encode("ascii", "ignore")


def write_npy(path, values):
    """Writes a one-dimensional int32 array in NumPy's format, version 1.0."""
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(values)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"  # the data starts at a multiple of 64 bytes
    data = array.array("i", iter(values))
    if sys.byteorder == "big":
        data.byteswap()
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + data.tobytes())


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: make_text.py TEXT[.gz] FOLDER")
    text, folder = read_text(sys.argv[1]), sys.argv[2]
    cut = round(len(text) * (1 - HELD_OUT))
    os.makedirs(folder, exist_ok=True)
    for name, part in ("train", text[:cut]), ("val", text[cut:]):
        write_npy(os.path.join(folder, f"{name}_tokens.npy"), part)
        print(f"{name}_tokens.npy: {len(part):,} characters")


if __name__ == "__main__":
    main()
