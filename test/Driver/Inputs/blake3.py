"""BLAKE3 of at most 1024 bytes (one chunk), after the paper by O'Connor, Aumasson, Neves and Wilcox-O'Hearn."""
import struct

IV = (0x6A09E667, 0xBB67AE85, 0x3C6EF372, 0xA54FF53A, 0x510E527F, 0x9B05688C, 0x1F83D9AB, 0x5BE0CD19)
PERMUTATION = (2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8)
CHUNK_START, CHUNK_END, ROOT = 1, 2, 8
QUARTERS = ((0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15), (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14))


def rotate(word, bits):
    return (word >> bits | word << (32 - bits)) & 0xFFFFFFFF


def compress(chaining, block, length, flags):
    v, words = [*chaining, *IV[:4], 0, 0, length, flags], list(struct.unpack("<16I", block.ljust(64, b"\0")))
    for _ in range(7):
        for i, (a, b, c, d) in enumerate(QUARTERS):
            for word, left, right in ((words[2 * i], 16, 12), (words[2 * i + 1], 8, 7)):
                v[a] = (v[a] + v[b] + word) & 0xFFFFFFFF
                v[d] = rotate(v[d] ^ v[a], left)
                v[c] = (v[c] + v[d]) & 0xFFFFFFFF
                v[b] = rotate(v[b] ^ v[c], right)
        words = [words[i] for i in PERMUTATION]
    return [x ^ y for x, y in zip(v[:8], v[8:])]


def blake3(data):
    assert len(data) <= 1024, f"expects at most 1024 bytes, got {len(data)}"
    blocks = [data[i:i + 64] for i in range(0, len(data), 64)] or [b""]
    chaining = IV
    for i, block in enumerate(blocks):
        flags = (CHUNK_START if i == 0 else 0) | (CHUNK_END | ROOT if i == len(blocks) - 1 else 0)
        chaining = compress(chaining, block, len(block), flags)
    return struct.pack("<8I", *chaining)
