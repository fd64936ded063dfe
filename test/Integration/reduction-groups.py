# REQUIRES: numpy
# RUN: %python %s
"""Parameters whose gradients are sums over different ranks, in one module: on a mesh of 2 x 2, of all ranks, of those along
`data`, of those along `model`, and of one alone. Losses, norms, clips, skips and states are those of one rank, in every mode, in
windows of one and of several, with gradients that the step computes and with such that it is given.
"""
import os
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import compile_module, largest, mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402

MESH = dict(data=2, model=2)
ROWS, WIDTH, OUT = 8, 24, 40
MODES = ("none", "optimizer", "gradients", "parameters")
RNG = np.random.default_rng(11)

# Towers on streams of their own: each rank along the axes that split the first dimension has its own weights.
TOWERS = {"all": ("", "[], [data, model]"), "data": ("split([model])", "[model], [data]"),
          "model": ("split([data])", "[data], [model]"), "one": ("split([data, model])", "[data, model]")}


def module(k, clip, optimizer="adamw<lr = 0.01>"):
    x, w, h = f"tensor<4x{ROWS}x{WIDTH}xf32>", f"tensor<4x{WIDTH}x{OUT}xf32>", f"tensor<4x{ROWS}x{OUT}xf32>"
    lines = ["train.mesh @mesh(data = 1, model = 1)", f"train.optimizer @o = {optimizer}"]
    lines += [f"train.param @{name} : {w} init(normal<0.3>) optimizer(@o) {split}" for name, (split, _) in TOWERS.items()]
    inputs = ", ".join(f"%{name}_x: {x} split({split})" for name, (_, split) in TOWERS.items())
    lines.append(f"train.step @step({inputs}) accumulate({k}) {clip} {{")
    total = None
    for name in TOWERS:
        lines += [f"  %{name}_w = train.read @{name} : {w}",
                  f"  %{name}_h = nn.matmul %{name}_x, %{name}_w : {x}, {w}",
                  f"  %{name}_g = nn.gelu %{name}_h tanh : {h}",
                  f"  %{name}_q = nn.mul %{name}_g, %{name}_g : {h}, {h}",
                  f"  %{name}_s = nn.reduce sum %{name}_q dims [0, 1, 2] : {h}"]
        if total:
            lines.append(f"  %{name}_t = nn.add {total}, %{name}_s : tensor<f32>, tensor<f32>")
        total = f"%{name}_t" if total else f"%{name}_s"
    return "\n".join([*lines, f"  train.yield loss({total}) : tensor<f32>", "}", ""])


def given(k, clip):
    """The same parameters, whose gradients are inputs."""
    w = f"tensor<4x{WIDTH}x{OUT}xf32>"
    lines = ["train.mesh @mesh(data = 1, model = 1)", "train.optimizer @o = adamw<lr = 0.01>"]
    lines += [f"train.param @{name} : {w} init(normal<0.3>) optimizer(@o) {split}" for name, (split, _) in TOWERS.items()]
    inputs = ", ".join(f"%{name}: {w} gradient(@{name})" for name in TOWERS)
    return "\n".join([*lines, f"train.step @step({inputs}) accumulate({k}) {clip} {{", "  train.yield", "}", ""])


def cut(rank, array, axes):
    """This rank's part along dimension `axes.index` of each list of axes."""
    place = {"data": rank.rank // 2, "model": rank.rank % 2} if rank.ranks > 1 else {}
    for dim, names in enumerate(axes):
        for name in names if place else ():
            array = np.split(array, 2, dim)[place[name]]
    return np.ascontiguousarray(array)


def lists(split):
    """[[axes of dimension 0], ...] of the text between the brackets of a split."""
    return [[name for name in ("data", "model") if name in part] for part in split.split("]")[:-1]]


def training(data):
    def work(rank):
        tensors, results = {}, []
        for i, inputs in enumerate(data):
            r = rank.trainer.step(**{name: cut(rank, value, lists(TOWERS[name[:-2]][1])) for name, value in inputs.items()})
            if r.closed:
                tensors |= {(i, *key): value for key, value in rank.tensors().items()}
                results.append((r.window_loss, r.grad_norm, r.clip_factor, r.skipped))
        return tensors, np.array(results), list(rank.comm.info().collectives) if rank.comm else None
    return work


def giving(data):
    """The gradients of each rank are terms whose sums over its group are those of `data`."""
    def work(rank):
        tensors, results = {}, []
        for i, inputs in enumerate(data):
            mine = {}
            for name, value in inputs.items():
                split = TOWERS[name][0]
                members = 4 // 2 ** len(lists(split[6:] if split else "")[0] if split else ())
                mine[name] = cut(rank, value, lists(split[6:-1]) if split else []) / (members if rank.ranks > 1 else 1)
            r = rank.trainer.step(**mine)
            if r.closed:
                tensors |= {(i, *key): value for key, value in rank.tensors().items()}
                results.append((r.grad_norm, r.clip_factor, r.skipped))
        return tensors, np.array(results), None
    return work


def close(tensors, one, bar):
    return largest(float(np.linalg.norm(tensors[key] - one[key]) / max(np.linalg.norm(one[key]), 1e-30)) for key in one) < bar


def compare(what, text, work, folder, skips=None):
    bad, first = 0, None
    one, = run(work, compile_module(text, os.path.join(folder, "one.so")), 1)
    if skips is not None:
        bad += check(f"{what}: skips", list(one[1][:, -1]) == skips, list(one[1][:, -1]))
    for mode in MODES:
        for way in (["--merge-buffer=full"], ["--merge-buffer=full", "--bucket-size=4096"], ["--merge-buffer=sharded"]):
            path = compile_module(text, os.path.join(folder, "some.so"), mesh_option(MESH), f"--shard={mode}", *way)
            results = run(work, path, 4)
            name = f"{what}, {mode} {' '.join(way)}"
            bad += check(f"{name}: ranks agree", all(same(results[0][0], r[0]) and np.array_equal(
                results[0][1], r[1], equal_nan=True) for r in results))
            bad += check(f"{name}: as one rank", np.allclose(results[0][1], one[1], rtol=1e-5, atol=0, equal_nan=True)
                         and close(results[0][0], one[0], 1e-5), (results[0][1], one[1]))
            if way[0] == "--merge-buffer=full":
                first = first or results[0][0]
                bad += check(f"{name}: same bits in all modes", same(first, results[0][0]))
    return bad


def streams(count):
    return [{f"{name}_x": RNG.standard_normal((4, ROWS, WIDTH)).astype("f4") for name in TOWERS} for _ in range(count)]


def main():
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for k, clip in ((1, "clip(global_norm<0.5>)"), (3, "clip(global_norm<0.5>) loss_scale(dynamic<init = 1024.0>)"),
                        (1, "clip(param_norm<0.1>)")):
            data = streams(4 * k)
            for name in TOWERS:  # an infinity on the ranks of one stream alone
                data.insert(k, streams(1)[0])
                data[k][f"{name}_x"][-1, -1, -1] = np.inf
                data += streams(k - 1)
            bad += compare(f"towers, k = {k}, {clip}", module(k, clip), training(data), folder)
        bad += compare("towers, lamb", module(1, "", "lamb<lr = 0.01, weight_decay = 0.1>"), training(streams(4)), folder)
        gradients = [{name: RNG.standard_normal((4, WIDTH, OUT)).astype("f4") for name in TOWERS} for _ in range(6)]
        for i, name in enumerate(TOWERS):
            gradients[1 + i][name][-1, -1, -1] = np.inf  # in the part of one place alone, where it is split
        bad += compare("given gradients", given(1, "clip(global_norm<0.5>)"), giving(gradients), folder,
                       skips=[0, 1, 2, 3, 4, 4])
    sys.exit(bad != 0)


if __name__ == "__main__":
    main()
