# REQUIRES: numpy
# RUN: %python %s
"""Steps for GPUs whose products have epilogues (train-fuse-epilogues), on the driver and the cuBLASLt of tests.

With and without the pass: the same losses, gradients' norms and parameters within rounding, in f32, bf16 and f64, with a
window, in which the later micro-steps add to gradients; and as many kernels less as GEMMs take over. And where cuBLASLt refuses
epilogues, one by one and all: then kernels of the artifact compute them behind the product, with a notice.
"""
import ctypes
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module, generate  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

DRIVER = os.path.join(BUILD, "lib", "libtrainc_fake_cuda.so")
os.environ["TRAINC_LIBCUDA"] = DRIVER
os.environ["TRAINC_LIBCUBLASLT"] = os.path.join(BUILD, "lib", "libtrainc_fake_cublaslt.so")
LAYERS, UPDATES = 2, 3
SMALL = ("gpt", "--layers", LAYERS, "--width", 32, "--heads", 2, "--vocab", 64, "--seq", 16, "--batch", 2)
# Of a block: gelu, which is not the library's in f32 and f64; biases stand in the source.
CASES = {  # name: (module, bar, launches less of a micro-step, epilogues that are refused)
    "f32, k = 3": ((*SMALL, "--accumulate", 3), 2e-5, 0, ("bias", "all")),
    "bf16, k = 2": ((*SMALL, "--bf16", "--accumulate", 2), 3e-2, 1, ("bias", "gelu_aux_bias,gelu_bias", "all")),
    "f64": ((*SMALL, "--type", "f64"), 1e-12, 0, ("all",)),
}


class Counts(ctypes.Structure):
    """The head of trainc_fake_cuda_counts."""
    _fields_ = [(name, ctypes.c_uint64) for name in ("contexts", "allocations", "pinned", "streams", "events", "modules",
                                                     "graphs", "executables", "pending", "launches")] + \
        [("rest", ctypes.c_uint64 * 32)]


def launches():
    result = Counts()
    ctypes.CDLL(DRIVER).trainc_fake_cuda_get_counts(ctypes.byref(result))
    return result.launches


def train(runtime, path, told=False):
    """Losses and norms, launches of each micro-step, parameters, outputs of evals. Whether something was refused is `told`."""
    rng, facts, counted = np.random.default_rng(1), [], []
    with Trainer(runtime, path, threads=1, seed=3, device=b"cuda") as trainer:
        k = trainer.descriptor.entries[0].accumulate
        assert bool(trainer.notice()) == told, trainer.notice()

        def draw(entry):
            e = trainer.descriptor.entries[trainer.entries[entry]]
            return {e.inputs[i].name.decode(): rng.integers(0, 64, tuple(e.inputs[i].dims[d] for d in range(e.inputs[i].rank)))
                    for i in range(e.num_inputs)}
        for _ in range(UPDATES * k):
            before = launches()
            result = trainer.step(**draw("step"))
            facts.append((result.loss, result.grad_norm))
            counted.append(launches() - before)
        parameters = {name: trainer.read(name) for name in trainer.names()}
        outputs = {}
        for entry in trainer.entries:
            if trainer.descriptor.entries[trainer.entries[entry]].kind == 1:
                for name, value in trainer.eval(entry, **draw(entry)).items():
                    outputs[f"{entry}/{name}"] = value
    return k, np.array(facts), counted, parameters, outputs


def close(a, b, bar):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return bool(np.all(np.isfinite(b))) and float(np.max(np.abs(a - b), initial=0)) <= bar * max(1.0, float(np.max(np.abs(a))))


def main():
    failed = False
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        for i, (name, (module, bar, fewer, refusals)) in enumerate(CASES.items()):
            print(name)
            text = generate(*(str(word) for word in module))
            paths = [compile_module(text, os.path.join(folder, f"{i}-{j}.so"), "--target=cuda", "--cuda-arch=host", *options)
                     for j, options in enumerate(((), ("--disable-pass=train-fuse-epilogues",)))]
            (k, facts, counted, parameters, outputs), (_, facts0, counted0, parameters0, outputs0) = \
                (train(runtime, path) for path in paths)
            failed |= check("losses and norms", close(facts, facts0, bar), f"{facts} {facts0}")
            failed |= check("the same bits without epilogues", np.array_equal(facts, facts0) == (fewer == 0))
            for one, other in ((parameters, parameters0), (outputs, outputs0)):
                for key in one:
                    if not close(one[key], other[key], 10 * bar):
                        failed |= check(key, False, np.max(np.abs(one[key] - other[key])))
            wanted = [LAYERS * fewer] * (UPDATES * k)
            less = [b - a for a, b in zip(counted, counted0)]
            failed |= check("launches", less == wanted, f"{counted} {counted0} {wanted}")
            for refused in refusals:
                os.environ["TRAINC_FAKE_CUBLASLT_REFUSE"] = refused
                _, facts1, counted1, parameters1, outputs1 = train(runtime, paths[0], told=True)
                del os.environ["TRAINC_FAKE_CUBLASLT_REFUSE"]
                apart = all(close(one[key], other[key], 10 * bar) for one, other in
                            ((parameters, parameters1), (outputs, outputs1)) for key in one)
                failed |= check(f"without {refused}", close(facts, facts1, bar) and apart and sum(counted1) > sum(counted),
                                f"{facts} {facts1} {counted1}")
        failed |= tf32(runtime, folder)
    sys.exit(failed)


def tf32(runtime, folder):
    """Factors are rounded only where the artifact asks for it."""
    text = generate(*(str(word) for word in SMALL))
    facts = [train(runtime, compile_module(text, os.path.join(folder, f"tf32-{i}.so"), "--target=cuda", "--cuda-arch=host", *options))[1]
             for i, options in enumerate(((), ("--tf32",)))]
    print("tf32")
    return check("losses and norms", close(*facts, 5e-3) and not close(*facts, 1e-6), facts)


main()
