"""What a DataLoader of two workers beside a step costs it.

usage: timing_loader.py

Steps of a CNN on batches that are at hand, and on those that two workers cut from pictures meanwhile, take turns. The workers use a part of the
cores: a step may take as much longer as it has fewer of them, times 1.05. Waiting for a batch is not part of a step.
"""
import multiprocessing
import os
import sys
import time
from statistics import median

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from torch.utils.data import DataLoader, Dataset  # noqa: E402

import trainc.torch  # noqa: E402

ROUNDS, STEPS, BATCH, SIDE, WORKERS, BAR = 9, 40, 64, 32, 2, 1.05


class Pictures(Dataset):
    """Random cuts and reflections, normalized, of pictures of bytes."""

    def __init__(self):
        self.pictures = torch.randint(0, 256, (256, 3, SIDE + 8, SIDE + 8), dtype=torch.uint8)

    def __len__(self):
        return STEPS * BATCH

    def __getitem__(self, i):
        top, left = torch.randint(0, 9, (2,)).tolist()
        x = self.pictures[i % len(self.pictures), :, top:top + SIDE, left:left + SIDE].float() / 255
        return (x.flip(2) if torch.rand(()) < 0.5 else x).sub_(0.5).div_(0.25), i % 10


def cnn():
    layers = [part for width, out in ((3, 32), (32, 64), (64, 64)) for part in (nn.Conv2d(width, out, 3, padding=1), nn.ReLU())]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def seconds_of_children():
    """Of processors, that the workers have used."""
    ticks = 0
    for child in multiprocessing.active_children():
        with open(f"/proc/{child.pid}/stat") as f:
            ticks += sum(map(int, f.read().rsplit(")", 1)[1].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def seconds_of(step, batches):
    """A step's, of each batch."""
    taken = []
    for x, y in batches:
        begin = time.perf_counter()
        step(x, y)
        taken.append(time.perf_counter() - begin)
    return taken


def beside(step, loader):
    """(a step's mean seconds, cores that the workers used) while the loader makes the batches. What it made before the first is waited
    for; a worker that has made its last batch idles, so the last steps do not count."""
    batches = iter(loader)
    seconds_of(step, [next(batches)])
    used, begin = seconds_of_children(), time.perf_counter()
    taken = seconds_of(step, (next(batches) for _ in range(STEPS - 1 - WORKERS * loader.prefetch_factor)))
    cores = (seconds_of_children() - used) / (time.perf_counter() - begin)
    seconds_of(step, batches)
    return sum(taken) / len(taken), cores


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)  # what PyTorch does in this process is small
    cores, model = len(os.sched_getaffinity(0)), cnn()
    loader = DataLoader(Pictures(), BATCH, num_workers=WORKERS)
    ready = [batch for batch, _ in zip(loader, range(8))]
    exported = trainc.torch.export(model, ready[0], lambda m, x, y: F.cross_entropy(m(x), y), torch.optim.AdamW(model.parameters()))
    ratios, used, alone = [], [], []
    with exported.step() as step:
        seconds_of(step, ready)
        for _ in range(ROUNDS):
            taken = seconds_of(step, ready * (STEPS // len(ready)))
            alone.append(sum(taken) / len(taken))
            with_workers, busy = beside(step, loader)
            used.append(busy)
            ratios.append(with_workers / alone[-1] * (cores - busy) / cores)
    print(f"a DataLoader of {WORKERS} workers beside steps of {1e3 * median(alone):.1f} ms uses {median(used):.2f} of {cores} cores: a step takes"
          f" {median(ratios):.2f}x per core left (at most {BAR}; alone it moved {max(alone) / min(alone):.2f}x)")
    sys.exit(median(ratios) > BAR)


if __name__ == "__main__":
    main()
