#!/usr/bin/env python3
"""Trains an artifact of models/full.py without PyTorch, as a user who has exported it: trainc.load, the weights, NumPy arrays.

usage: load_step.py FOLDER THREADS

FOLDER has step.so, weights.safetensors and batch.json, a list of names; NAME.npy of each. Prints a line of JSON: the peak of the
resident set in MB over three steps, that after the imports, and the losses.
"""
import json
import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path[:0] = [os.path.join(ROOT, folder) for folder in ("python", "bench", os.path.join("bench", "peers"))]

from common import BUILD  # noqa: E402

os.environ["TRAINC_BUILD"] = BUILD

import measure  # noqa: E402
import numpy as np  # noqa: E402
import trainc  # noqa: E402


def main():
    folder, threads = sys.argv[1], int(sys.argv[2])
    imports = measure.step_peak_rss_mb()
    with open(os.path.join(folder, "batch.json")) as f:
        batch = {name: np.load(os.path.join(folder, f"{name}.npy")) for name in json.load(f)}
    step = trainc.load(os.path.join(folder, "step.so"), os.path.join(folder, "weights.safetensors"), threads=threads)
    losses = [step(**batch).loss for _ in range(3)]
    measure.step_peak_rss_mb(reset=True)
    losses += [step(**batch).loss for _ in range(3)]
    print(json.dumps(dict(peak_mb=measure.step_peak_rss_mb(), imports_mb=imports, loss=losses)))


if __name__ == "__main__":
    main()
