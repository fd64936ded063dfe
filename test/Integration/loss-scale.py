# REQUIRES: numpy
# RUN: %python %s
"""The loss scale: no result depends on a static one that is a power of two; a dynamic one follows its rule; small gradients
of f16 survive with one and are 0 without; those of parameters that are only stored in f16 need none. One that the source has
edited is in use from the next window on, whether a state comes by a load or a conversion, on ranks and on the GPU of tests.

The rule in Python is PyTorch's GradScaler, but that the scale does not fall below `min`.
"""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from ranks import mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, library in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{library}.so")

UPDATES, LARGEST = 40, float(np.finfo(np.float32).max)
MODULE = """train.optimizer @o = adamw<lr = 0.01>
train.param @w : tensor<8x4xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%x: tensor<5x8xf32>, %t: tensor<5x4xf32>) accumulate(2) clip(global_norm<1.0>) CLAUSES {
  %w = train.read @w : tensor<8x4xf32>
  %y = nn.matmul %x, %w : tensor<5x8xf32>, tensor<8x4xf32>
LOSS
  train.yield loss(%s) : tensor<f32>
}
"""
LOSS = """  %p = nn.mul %y, %t : tensor<5x4xf32>, tensor<5x4xf32>
  %s = nn.reduce sum %p dims [0, 1] : tensor<5x4xf32>"""
SMALL = """  %p, %n = nn.mse %y, %t : tensor<5x4xf32>, tensor<5x4xf32>
  %c = nn.constant dense<1.0e-9> : tensor<f32>
  %s = nn.mul %p, %c : tensor<f32>, tensor<f32>"""


def train(clauses, folder, bad=(), size=1.0, loss=LOSS):
    """Per update (scale before, finite, norm), then the parameter; inputs of the micro-steps in `bad` hold an infinity."""
    library = compile_module(MODULE.replace("CLAUSES", clauses).replace("LOSS", loss), os.path.join(folder, "scaled.so"))
    rng = np.random.default_rng(7)
    seen = []
    with Trainer(Runtime(RUNTIME_LIBRARY), library, threads=2, seed=1) as trainer:
        for i in range(UPDATES):
            scale = trainer.scalar("loss_scale")
            for k in range(2):
                x, t = rng.standard_normal((5, 8)), rng.standard_normal((5, 4)) * size
                if 2 * i + k in bad:
                    x[3, 2] = np.inf
                result = trainer.step(x=x, t=t)
            seen.append((scale, bool(result.finite), result.grad_norm))
        return seen, trainer.read("w"), trainer.scalar("skipped")


EDITED = "train.mesh @mesh(data = 1)\n" + MODULE.replace("LOSS", LOSS).replace("x8xf32>, %t", "x8xf32> split([data]), %t").replace(
    "x4xf32>) acc", "x4xf32> split([data])) acc").replace("5x", "4x")


def edited(before, after, folder, device, closes):
    """Work of a rank: a state of `before` goes on with `after`, of another scale, inside of a window and after it."""
    rng = np.random.default_rng(5)
    batches = [dict(x=rng.standard_normal((4, 8)), t=rng.standard_normal((4, 4))) for _ in range(9)]

    def work(rank):
        more = {"comm": rank.comm.comm} if rank.comm else {}

        def trainer(path, checkpoint):
            result = Trainer(rank.runtime, path, threads=1, seed=2, device=device, **more)
            result.load(checkpoint)
            return result

        def step(one, i):
            return one.step(**{name: rank.rows(value) for name, value in batches[i].items()})

        def tensors(one):
            return {key: one.read(key[1], key[0], key[2]) for key in one.tensors if key[0] in ("parameter", "state")}

        seen, later, ends, first = [], set(), [], rank.trainer
        for i in range(3):
            step(first, i)
        opened, closed = os.path.join(folder, "open"), os.path.join(folder, "closed")
        first.save(opened)
        others = [trainer(after, opened)]
        if device == b"cpu":  # to another artifact a state on a GPU goes by a load
            first.convert(after)
            others.append(first)
        for one in others:
            inside = one.scalar("loss_scale")
            used = one.flush() if closes == "flush" else step(one, 3)
            seen.append((inside, used.loss_scale, one.scalar("loss_scale")))
        others[0].save(closed)
        others.append(trainer(after, closed))
        for one in others:
            later.update(step(one, i).loss_scale for i in range(4, 9))
            ends.append(tensors(one))
        for one in others:
            if one is not first:
                one.close()
        return set(seen), later, [same(end, ends[0]) for end in ends]

    return work


def check_edited(folder):
    bad, gpu = 0, ("--target=cuda,cpu", "--cuda-arch=host")
    for where, ranks, device, options in (("one rank", 1, b"cpu", ()), ("a GPU", 1, b"cuda", gpu),
                                          ("two ranks", 2, b"cpu", (mesh_option(dict(data=2)),))):
        paths = [compile_module(EDITED.replace("CLAUSES", f"loss_scale({scale})"), os.path.join(folder, f"scale{scale}.so"), *options)
                 for scale in (8.0, 24.0)]
        for closes in ("step", "flush"):
            results = run(edited(*paths, folder, device, closes), paths[0], ranks, device=device)
            good = all(seen == {(8.0, 8.0, 24.0)} and later == {24.0} and all(equal) for seen, later, equal in results)
            bad += check(f"an edited scale, {where}, window closed by a {closes}", good, results)
    paths = [compile_module(EDITED.replace("CLAUSES", clause), os.path.join(folder, f"rule{i}.so")) for i, clause in
             enumerate(("loss_scale(dynamic<init = 64.0, interval = 1>)", "loss_scale(1024.0)", ""))]
    runtime, checkpoint = Runtime(RUNTIME_LIBRARY), os.path.join(folder, "rule")
    for path, artifacts in zip(paths[1:], (1024.0, 1.0)):
        with Trainer(runtime, paths[0], threads=1) as ruled, Trainer(runtime, path, threads=1) as static:
            for _ in range(4):
                ruled.step(x=np.ones((4, 8)), t=np.ones((4, 4)))
            ruled.save(checkpoint)
            static.load(checkpoint)
            scales = [ruled.scalar("loss_scale"), static.scalar("loss_scale")]
            static.save(checkpoint)
            static.load(checkpoint)
            scales.append(static.scalar("loss_scale"))
            bad += check(f"a scale that followed a rule, now {artifacts:g}", scales == [256.0, artifacts, artifacts], scales)
    return bad


def rule(finite, init, growth, backoff, interval, least):
    scale, age, scales = init, 0, []
    for good in finite:
        scales.append(scale)
        if not good:
            scale, age = max(scale * backoff, least), 0
            continue
        age += 1
        if age == interval:
            scale, age = scale * growth if scale * growth <= LARGEST else scale, 0
    return scales


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        plain, weights, _ = train("", folder)
        scaled, same, _ = train("loss_scale(1024.0)", folder)
        bad += check("a static scale changes no bit", np.array_equal(weights, same)
                     and [s[2] for s in plain] == [s[2] for s in scaled] and scaled[0][0] == 1024.0)
        broken = {9, 10, 11, 30, 31, 64, 65, 66, 67, 68}
        windows = sorted({b // 2 for b in broken})
        for numbers in ((4096.0, 2.0, 0.5, 3, 1.0), (8.0, 4.0, 0.25, 5, 2.0), (2.0**126, 2.0, 0.5, 2, 1.0)):
            init, growth, backoff, interval, least = numbers
            clause = (f"loss_scale(dynamic<init = {init!r}, growth = {growth}, backoff = {backoff},"
                      f" interval = {interval}, min = {least}>)")
            seen, _, skipped = train(clause, folder, broken, 1e-30 if init > 1e30 else 1.0)
            finite = [i not in windows for i in range(UPDATES)]
            bad += check(f"dynamic {numbers}", [s[0] for s in seen] == rule(finite, *numbers)
                         and [s[1] for s in seen] == finite and skipped == len(windows))
        norms = [train(clauses, folder, loss=SMALL)[0][0][2]
                 for clauses in ("", "precision(compute = f16)", "precision(compute = f16) loss_scale(1048576.0)")]
        bad += check_edited(folder)
        bad += check("f16 loses small gradients without a scale", norms[1] == 0 and abs(norms[2] / norms[0] - 1) < 1e-2)
        stored = [train(f"precision(compute = {compute}, master = f16)", folder, loss=SMALL)[0][0][2] for compute in ("f32", "bf16")]
        bad += check("parameters stored in f16 lose none", all(abs(norm / norms[0] - 1) < 1e-2 for norm in stored))
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
