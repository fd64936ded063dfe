#!/usr/bin/env python3
"""Writes digits_{train,test}_{x,y}.npy beside itself, from scikit-learn's copy of the data (needs scikit-learn)."""
import os

import numpy as np
from sklearn.datasets import load_digits

TRAIN = 1437
SEED = 1234

images, labels = load_digits(return_X_y=True)
order = np.random.default_rng(SEED).permutation(len(images))
x = (images[order] / 16).astype(np.float32)
y = labels[order].astype(np.int32)
folder = os.path.dirname(os.path.abspath(__file__))
for name, part in ("train", slice(TRAIN)), ("test", slice(TRAIN, None)):
    np.save(os.path.join(folder, f"digits_{name}_x.npy"), x[part])
    np.save(os.path.join(folder, f"digits_{name}_y.npy"), y[part])
