"""Serves clip and AdamW over many tensors in the way of Apex: multi_tensor.py IMAGE WORKLOAD [--bf16].

IMAGE is multi_tensor.cu compiled by nvcc. After the first updates, whose parameter norms it says, an update is one CUDA graph.
Each line N of standard input is answered by the milliseconds of one of N updates.
"""
import ctypes
import json
import math
import os
import sys
from ctypes import Structure, c_float, c_int, c_ubyte, c_uint64

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")]

import numpy as np  # noqa: E402

from driver import Device  # noqa: E402
from measure import block_ms, blocks  # noqa: E402
from workloads import ALL_WORKLOADS, CHECKED_STEPS, OPTIMIZER, gradients, initial_values  # noqa: E402

CHUNK, BLOCKS, THREADS = 65536, 320, 512
TENSORS = {1: 110, 4: 36, 5: 30}


class Rule(Structure):
    _fields_ = [(n, c_float) for n in ("rate", "b1", "b2", "eps", "decay", "correction1", "correction2", "limit")]


def table_type(depth):
    class Table(Structure):
        _fields_ = [("addresses", (c_uint64 * TENSORS[depth]) * depth), ("sizes", c_int * TENSORS[depth]),
                    ("chunks", c_int * BLOCKS), ("tensors", c_ubyte * BLOCKS)]
    return Table


def tables(depth, tensors):
    """[(table, blocks)] of [(addresses, elements)]: launches that have each chunk of each tensor once."""
    Table, done = table_type(depth), []
    table, used, blocks_used = Table(), 0, 0

    def close():
        nonlocal table, used, blocks_used
        if blocks_used:
            done.append((table, blocks_used))
        table, used, blocks_used = Table(), 0, 0

    for addresses, size in tensors:
        if used == TENSORS[depth]:
            close()
        place = None
        for chunk in range(-(-size // CHUNK)):
            if blocks_used == BLOCKS:
                close()
                place = None
            if place is None:
                place, used = used, used + 1
                table.sizes[place] = size
                for i, address in enumerate(addresses):
                    table.addresses[i][place] = address
            table.chunks[blocks_used], table.tensors[blocks_used] = chunk, place
            blocks_used += 1
    close()
    return done


class Update:
    def __init__(self, device, image, w, bf16):
        self.device, self.count = device, 0
        self.squares, self.finish, self.adamw = device.kernels(image, "squares", "finish", f"adamw{4 + bf16}")
        self.sums = device.allocate(4 * (BLOCKS + 1))
        self.parameters, tensors = [], []
        for (_, value), (_, gradient) in zip(initial_values(w), gradients(w)):
            addresses = [device.allocate(value.nbytes) for _ in range(4)] + [device.allocate(value.size * 2)] * bf16
            device.upload(addresses[0], gradient)
            device.upload(addresses[1], value)
            for address in addresses[2:4]:
                device.fill(address, value.nbytes)
            self.parameters.append((addresses[1], value.shape))
            tensors.append((addresses, value.size))
        self.update_tables = tables(4 + bf16, tensors)
        self.norm_tables = tables(1, [(addresses[:1], size) for addresses, size in tensors])

    def __call__(self):
        self.count += 1
        o, sums, norm = OPTIMIZER, c_uint64(self.sums), c_uint64(self.sums + 4 * BLOCKS)
        rule = Rule(o["lr"], o["beta1"], o["beta2"], o["eps"], o["weight_decay"], 1 - o["beta1"]**self.count,
                    1 - o["beta2"]**self.count, o["clip_norm"])
        self.device.fill(self.sums, 4 * BLOCKS)
        for table, count in self.norm_tables:
            self.device.launch(self.squares, count, THREADS, table, sums)
        self.device.launch(self.finish, 1, THREADS, sums, norm)
        for table, count in self.update_tables:
            self.device.launch(self.adamw, count, THREADS, table, norm, rule)

    def parameter_norm(self):
        values = (self.device.download(address, np.empty(shape, np.float32)) for address, shape in self.parameters)
        return math.sqrt(sum(float(np.sum(np.square(v.astype(np.float64)))) for v in values))


def main():
    path, workload = sys.argv[1:3]
    with open(path, "rb") as f:
        image = f.read()
    device = Device()
    update, norms = Update(device, image, ALL_WORKLOADS[workload], "--bf16" in sys.argv), []
    for _ in range(CHECKED_STEPS):
        update()
        device.wait()
        norms.append(update.parameter_norm())
    launch = device.graph(update)
    print(json.dumps(dict(ready=dict(loss=norms))), flush=True)
    for count in blocks():
        print(json.dumps(dict(step_ms=[block_ms(launch, device.wait, count)])), flush=True)


if __name__ == "__main__":
    main()
