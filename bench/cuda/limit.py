"""Serves the limits of a GPU: limit.py NAME=BYTES ... [--peaks].

NAME is a copy inside of the device that reads and writes BYTES bytes together: each line N of standard input is answered by
the milliseconds of N of them. With --peaks and PyTorch, what it is ready with has TFLOP/s of large products, by type.
"""
import json
import os
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")]

from driver import Device  # noqa: E402
from measure import blocks  # noqa: E402

SIDE, TIMES = 8192, 20


def peaks():
    """{type: TFLOP/s} of PyTorch's product of random matrices."""
    import torch
    result = {}
    for name, dtype, precision in (("bf16", torch.bfloat16, "high"), ("tf32", torch.float32, "high"),
                                   ("f32", torch.float32, "highest")):
        torch.set_float32_matmul_precision(precision)
        a, b = (torch.randn(SIDE, SIDE, device="cuda").to(dtype) for _ in range(2))
        events = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        for _ in range(3):
            c = a @ b
        events[0].record()
        for _ in range(TIMES):
            c = a @ b  # noqa: F841
        events[1].record()
        torch.cuda.synchronize()
        result[name] = 2 * SIDE**3 * TIMES / events[0].elapsed_time(events[1]) / 1e9
    return result


def main():
    device = Device()
    copies = {name: int(count) // 2 for name, count in (word.split("=") for word in sys.argv[1:] if "=" in word)}
    largest = max(copies.values())
    source, to = device.allocate(largest), device.allocate(largest)
    device.fill(source, largest, 1)
    device.fill(to, largest, 2)
    about = dict(peaks=peaks()) if "--peaks" in sys.argv else {}
    print(json.dumps(dict(ready=about)), flush=True)
    for count in blocks():
        print(json.dumps({name: [device.milliseconds(lambda: device.copy(to, source, half)) for _ in range(count)]
                          for name, half in copies.items()}), flush=True)


if __name__ == "__main__":
    main()
