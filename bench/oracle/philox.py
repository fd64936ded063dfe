"""Philox4x32-10 in NumPy, and what nn.dropout and nn.random draw with it."""
import numpy as np


def philox(counter, key):
    """Of arrays of numbers below 2^32."""
    c, (k0, k1) = counter, key
    low, shift = 0xFFFFFFFF, np.uint64(32)
    for _ in range(10):
        p0, p1 = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(p1 >> shift) ^ c[1] ^ np.uint64(k0), p1 & np.uint64(low),
             (p0 >> shift) ^ c[3] ^ np.uint64(k1), p0 & np.uint64(low)]
        k0, k1 = (k0 + 0x9E3779B9) & low, (k1 + 0xBB67AE85) & low
    return c


def words(count, seed, site, update, micro_step):
    """The four words of each of `count` elements: [4, count]. `update` counts those that were skipped, too."""
    i = np.arange(count, dtype=np.uint64)
    zeros = np.zeros_like(i)
    return np.stack(philox([i // np.uint64(4), zeros, zeros + np.uint64(update), zeros + np.uint64(micro_step)],
                           (seed & 0xFFFFFFFF, (seed >> 32) ^ site)))


def word(count, *where):
    return np.choose((np.arange(count) % 4).astype(int), words(count, *where))


def dropout(shape, rate, *where):
    """What a dropout multiplies by."""
    return (word(int(np.prod(shape)), *where) >= int(rate * 2**32 + 0.5)).reshape(shape) / (1 - rate)


def uniform(shape, bits, *where):
    return ((word(int(np.prod(shape)), *where) >> np.uint64(32 - bits)) / 2.0**bits).reshape(shape)


def normal(shape, bits, *where):
    count = int(np.prod(shape))
    w, second, odd = words(count, *where), np.arange(count) % 4 >= 2, np.arange(count) % 2
    u, t = (np.where(second, w[2 + k], w[k]) >> np.uint64(32 - bits) for k in range(2))
    return (np.sqrt(-2 * np.log((u + 1) / 2.0**bits)) * np.cos(2 * np.pi * (t / 2.0**bits - odd / 4))).reshape(shape)


def bernoulli(shape, p, *where):
    return (word(int(np.prod(shape)), *where) < int(p * 2**32 + 0.5)).reshape(shape).astype(float)
