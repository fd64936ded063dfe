# REQUIRES: numpy
# RUN: %python %s
"""On a GPU (the tests' driver) a call does not wait: its result is read when asked for, and is that of the CPU."""
import os
import sys
import tempfile
import warnings

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))
from tiny import LINEAR, ROOT, linear, refused, trainc  # noqa: E402

DRIVER = os.path.join(os.environ.get("TRAINC_BUILD", os.path.join(ROOT, "build")), "lib", "libtrainc_fake_cuda.so")
os.environ["TRAINC_LIBCUDA"] = DRIVER
os.environ["TRAINC_LIBCUBLASLT"] = os.path.join(os.path.dirname(DRIVER), "libtrainc_fake_cublaslt.so")
RNG = np.random.default_rng(1)
FIELDS = ["weight", "update", "skipped", "micro_step", "closed", "updated", "finite", "loss_scale", "stop",
          "window_weight"]
REALS = ["loss", "window_loss", "grad_norm", "clip_factor"]


def same(a, b):
    return all(getattr(a, name) == getattr(b, name) for name in FIELDS) and \
        all(np.isclose(getattr(a, name), getattr(b, name), rtol=1e-5, equal_nan=True) for name in REALS)


def train(path):
    with trainc.load(path, device="cuda", seed=1) as gpu, trainc.load(path, device="cpu", seed=1) as cpu:
        assert gpu.device.startswith("cuda:0") and "on cuda:0" in gpu.report()
        stops = []
        for i in range(7):
            x, y = RNG.standard_normal((4, 3)).astype("f"), RNG.standard_normal((4, 1)).astype("f")
            if i == 4:
                x[0] = np.nan  # this update is skipped
            if i == 2:
                gpu.request_stop()
                cpu.request_stop()
            a, b = gpu(x, y), cpu(x, y)
            assert same(a, b), (i, a, b)
            stops.append(a.stop)
        assert stops == [0, 0, 0, 1, 0, 0, 0], stops
        assert a.micro_step == 1 and same(gpu.flush(), cpu.flush())
        assert np.allclose(gpu.eval("predict", x)["y"], cpu.eval("predict", x)["y"], rtol=1e-5)
        # An input may change when the call has returned; a result that was not read in time says so.
        first = gpu(x, y)
        second = gpu(x, y)
        with refused(trainc.InvalidArgumentError, "read before the next call"):
            first.loss
        assert second.micro_step == 0
        third = gpu(x, y)
        gpu.set("slow.lr", 0.5)
        with refused(trainc.InvalidArgumentError, "read before the next call"):
            third.update
        assert second.micro_step == 0  # as it was read in time
        last = gpu(x, y)
    with refused(trainc.InvalidArgumentError, "closed"):
        last.loss


def edited_scale(folder, **options):
    """The result of a step that closes a loaded window has the scale of the window, not the edited one, which follows."""
    paths = [trainc.compile(LINEAR.replace("accumulate(ACCUMULATE)", f"accumulate(2) loss_scale({scale})"),
                            os.path.join(folder, f"scale{scale}.so"), **options) for scale in (8.0, 24.0)]
    saved, x, y = os.path.join(folder, "open.safetensors"), np.ones((4, 3), "f"), np.ones((4, 1), "f")
    with trainc.load(paths[0], device="cuda") as before, trainc.load(paths[1], device="cuda") as after:
        before(x, y)
        before.save(saved)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            after.load(saved)
        assert "loss_scale' is 8, as in the checkpoint" in str(said[0].message), said
        scales = [after(x, y).loss_scale for _ in range(3)]
        assert scales == [8, 24, 24] and after.get("loss_scale") == 24, scales


with tempfile.TemporaryDirectory() as temporary:
    train(linear(temporary, accumulate=2, target=["cuda", "cpu"], cuda_arch="host"))
    edited_scale(temporary, target=["cuda", "cpu"], cuda_arch="host")
