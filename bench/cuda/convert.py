"""Converts the optimizer's state of a trainer on a GPU to bf16: convert.py LIBRARY WORKLOAD.

The device's memory is filled until a little more is free than an arena needs beside the old one, and once more until less is.
Prints which ways were taken, and whether the bits are those of rounding to nearest even, as JSON.
"""
import json
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.dirname(HERE)]

import numpy as np  # noqa: E402

from commands import arenas  # noqa: E402
from common import RUNTIME_LIBRARY  # noqa: E402
from driver import Device  # noqa: E402
from serve import Step  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

STATE, STATES = 3, 4  # a role of arenas; a flag of conversions
PIECE = 2 << 20  # of a real device's memory


def needed(nbytes):
    """As runtime.h says of trainc_convert."""
    return ((nbytes // 256 + 1) * 256 * 6 + 4) // 5


def rounded(values):
    """f32 to bf16 and back, to nearest even."""
    bits = values.view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(np.float32)


def fill(device, wanted):
    """Takes memory until `wanted` bytes are free, and no more than a piece beyond that."""
    taken = []
    for step in (1 << 30, PIECE, 4096):
        while device.memory()[0] >= wanted + step:
            before = device.memory()[0]
            taken.append(device.allocate(min(step, before - wanted)))
            if device.memory()[0] < wanted:
                device.release(taken.pop())
                break
    return taken


def ways(arenas, free):
    """(beside, by the host), as runtime.h says."""
    beside = 0
    for nbytes in arenas:
        beside += free >= needed(nbytes // 2)
        free += nbytes // 2
    return beside, len(arenas) - beside


def convert(runtime, device, library, workload, share):
    """With `share` of what the first arena needs beside the old one."""
    with Trainer(runtime, library, device=b"cuda") as trainer:
        step = Step(trainer, workload)
        step()
        trainer.wait()
        states = [a.bytes for a in arenas(trainer) if a.role == STATE and a.bytes]
        before = {key: trainer.read(key[0], "state", key[1])
                  for key in [(name, state) for role, name, state in trainer.tensors if role == "state"]}
        wanted = needed(states[0] // 2)
        taken = fill(device, int(wanted * share))
        free = device.memory()[0]
        trainer.convert(dtype=b"bf16", what=STATES)
        memory = trainer.memory()
        for address in taken:
            device.release(address)
        same = all(np.array_equal(rounded(value), trainer.read(key[0], "state", key[1])) for key, value in before.items())
        trainer.convert(dtype=b"f32", what=STATES)
        step()
        trainer.wait()
        return dict(share=free / wanted, ways=[memory.converted_beside, memory.converted_by_host],
                    expected=ways(states, free), same=same)


def main():
    library, workload = sys.argv[1:3]
    runtime, device = Runtime(RUNTIME_LIBRARY), Device()
    print(json.dumps({name: convert(runtime, device, library, workload, share)
                      for name, share in (("enough", 1.05), ("less", 0.9))}))


if __name__ == "__main__":
    main()
