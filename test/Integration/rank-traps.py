# REQUIRES: numpy
# RUN: %python %s
"""What goes wrong on several ranks and not on one: an infinity or no loss terms on one rank alone, pieces of nothing but padding, fewer
parameters than ranks, optimizers and clips that need whole parameters, and what must not depend on the number of ranks (dropout,
stochastic rounding, batch norm, counters). Each is compared with one rank, and the ranks with each other.
"""
import ctypes
import os
import re
import sys
import tempfile

import numpy as np

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "Inputs"))

from ranks import compile_module, largest, mesh_option, run, same  # noqa: E402
from report import check  # noqa: E402

K, BATCH, SEQ, CLASSES, WIDTH = 2, 8, 6, 25, 16
EACH = "--merge-buffer=sharded"
# In windows of several micro-steps the bits of the last two are those of the others with this option.
MODES, ALL_MODES = ("none", "optimizer"), ("none", "optimizer", "gradients", "parameters")
RNG = np.random.default_rng(3)


def compiled(text, folder, mesh=None, mode="none", *more):
    options = [mesh_option(mesh), f"--shard={mode}", *more] if mesh else []
    return compile_module(text, os.path.join(folder, "traps.so"), *options)


def closeness(got, want):
    """The largest of the tensors' relative errors; infinity if other than floats differ."""
    errors = [0.0]
    for key in want:
        a, b = got[key], want[key]
        if a.dtype.kind != "f":
            errors.append(0.0 if np.array_equal(a, b) else np.inf)
        elif b.size:
            errors.append(float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)))
    return largest(errors)


def against_one(what, text, folder, work, mesh, modes=MODES, bar=1e-5, options=()):
    """`work` returns (tensors, values that are exact, values that are near); yields the ranks' results by mode, after checks."""
    (tensors, exact, near), = run(work, compiled(text, folder), 1)
    bad, first = 0, None
    for mode in modes:
        results = run(work, compiled(text, folder, mesh, mode, *options), int(np.prod(list(mesh.values()))),
                      alike=mesh.get("model", 1))
        name = ", ".join([what, str(mesh), mode, *options])
        bad += check(f"{name}: ranks agree", all(
            same(results[0][0], r[0]) and r[1] == results[0][1] and np.array_equal(r[2], results[0][2], equal_nan=True)
            for r in results))
        first = first or results[0][0]
        bad += check(f"{name}: same bits in all modes", same(
            {k: v for k, v in results[0][0].items() if k[1] != "compute"}, {k: v for k, v in first.items() if k[1] != "compute"}))
        bad += check(f"{name}: skips and counts of one rank", results[0][1] == exact, (results[0][1], exact))
        bad += check(f"{name}: losses and norms of one rank", np.allclose(results[0][2], near, rtol=bar, atol=0, equal_nan=True),
                     (results[0][2], near))
        error = closeness(results[0][0], tensors)
        bad += check(f"{name}: state of one rank", error <= bar, error)
    return bad


def record(rank, data):
    """All tensors after each window, and what the windows' results say."""
    tensors, exact, near = {}, [], []
    for i, inputs in enumerate(data):
        r = rank.step(**inputs)  # until a window closes a rank knows its own losses alone
        if r.closed:
            tensors |= {(i, *key): value for key, value in rank.tensors().items()}
            exact.append((r.update, r.skipped, r.updated, r.finite, r.loss_scale, r.window_weight))
            near.append([r.window_loss, r.grad_norm])
    return tensors, exact, np.array(near)


# One model of everything: a table that is also the head, a frozen parameter, all kinds of optimizers.

def model(clip, extra=""):
    hidden = f"tensor<{BATCH}x{SEQ}x{WIDTH}xf32>"
    square, row = f"tensor<{WIDTH}x{WIDTH}xf32>", f"tensor<{WIDTH}xf32>"
    table, tokens = f"tensor<{CLASSES}x{WIDTH}xf32>", f"tensor<{BATCH}x{SEQ}xi32>"
    logits, split = f"tensor<{BATCH}x{SEQ}x{CLASSES}xf32>", "split([host, data])"
    body = f"""
  %t = train.read @table : {table}
  %f = train.read @frozen : {square}
  %w = train.read @lamb.w : {square}
  %b = train.read @sgd.b : {row}
  %v = train.read @lars.w : {square}
  %e = nn.embedding %t, %x : {table}, {tokens}
  %s = nn.mul %e, %factor : {hidden}, tensor<{BATCH}x1x1xf32>
  %h0 = nn.linear %s, %w, %b : {hidden}, {square}, {row}
  %h1 = nn.gelu %h0 tanh : {hidden}
  %h2 = nn.linear %h1, %f : {hidden}, {square}
  %h3 = nn.linear %h2, %v : {hidden}, {square}
  %h4 = nn.add %h3, %s : {hidden}, {hidden}
  %l = nn.matmul %h4, %t transpose_rhs : {hidden}, {table}"""
    inputs = f"%x: {tokens} {split}, %factor: tensor<{BATCH}x1x1xf32> {split}"
    return f"""
train.mesh @mesh(host = 1, data = 1)
train.optimizer @adam = adamw<lr = 0.01, weight_decay = 0.1> ema(0.5)
train.optimizer @lamb = lamb<lr = 0.01, weight_decay = 0.1>
train.optimizer @lars = lars<lr = 0.5, weight_decay = 0.1>
train.optimizer @sgd = sgd<lr = 0.1, momentum = 0.9> clip(false)
train.param @table : {table} init(normal<0.5>) optimizer(@adam)
train.param @frozen : {square} init(normal<0.3>) frozen
train.param @lamb.w : {square} init(normal<0.3>) optimizer(@lamb)
train.param @lars.w : {square} init(normal<0.3>) optimizer(@lars)
train.param @sgd.b : {row} init(zeros) optimizer(@sgd)
train.step @step({inputs}, %y: {tokens} {split}) accumulate({K}) {clip} {extra} {{{body}
  %loss, %count = nn.cross_entropy %l, %y : {logits}, {tokens}
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}}
train.eval @averaged({inputs}) -> ("logits", "table", "best") weights(ema) {{{body}
  %best = nn.argmax %l dim 2 : {logits}
  train.yield %l, %t, %best : {logits}, {table}, {tokens}
}}
train.eval @peek() -> ("lamb", "lars") {{
  %w = train.read @lamb.w : {square}
  %v = train.read @lars.w : {square}
  train.yield %w, %v : {square}, {square}
}}
"""


def micro_step(ignored=(), infinite=()):
    tokens = RNG.integers(0, CLASSES, (2, BATCH, SEQ)).astype("i4")
    factor = RNG.uniform(0.5, 1.5, (BATCH, 1, 1)).astype("f4")
    tokens[1][list(ignored)] = -100
    factor[list(infinite)] = np.inf
    return dict(x=tokens[0], y=tokens[1], factor=factor)


LAST = range(BATCH * 3 // 4, BATCH)  # the examples of the last of 4 ranks
WINDOWS = [
    (micro_step(), micro_step()),
    (micro_step(LAST), micro_step([0, 4, 5, *LAST])),  # one rank has no loss terms, another half of them
    (micro_step(infinite=LAST[-1:]), micro_step()),    # an infinity on one rank, in one micro-step
    (micro_step(range(BATCH)), micro_step(range(BATCH))),  # no terms at all
    (micro_step(range(BATCH - 1)), micro_step(range(BATCH))),  # terms of one example
    (micro_step(), micro_step()),
]
PARTIAL = micro_step(LAST)  # a window that ends after one of its micro-steps


def everything(rank):
    tensors, exact, near = record(rank, [inputs for window in WINDOWS for inputs in window])
    rank.step(**PARTIAL)
    flushed = rank.trainer.flush()
    exact.append((flushed.update, flushed.closed, flushed.micro_step, flushed.window_weight))
    near = np.concatenate([near, [[flushed.window_loss, flushed.grad_norm]]])
    x, factor = (rank.rows(WINDOWS[0][0][name]) for name in ("x", "factor"))
    outputs = rank.trainer.eval("averaged", x=x, factor=factor)
    whole = {name: outputs[name] for name in ("logits", "best")}
    if rank.comm:  # each rank has its rows
        whole = {name: np.concatenate(gathered(rank, value)[::rank.alike]) for name, value in whole.items()}
    tensors |= {(None, "averaged", name): value for name, value in (whole | {"table": outputs["table"]}).items()}
    peek = rank.trainer.eval("peek")
    if rank.alike > 1:  # and of the columns and rows of what is in parts
        peek = {name: np.concatenate(gathered(rank, peek[name])[:rank.alike], axis) for name, axis in (("lamb", 1), ("lars", 0))}
    tensors |= {(None, "peek", name): value for name, value in peek.items()}
    return tensors, exact, near


def gathered(rank, array):
    array = np.ascontiguousarray(array)
    everyone = np.empty((rank.ranks, *array.shape), array.dtype)
    rank.runtime.call("trainc_comm_all_gather", rank.comm.comm, array.ctypes.data_as(ctypes.c_void_p),
                      ctypes.c_uint64(array.nbytes), everyone.ctypes.data_as(ctypes.c_void_p))
    return everyone


# The table by its rows, which are the classes of the head, too, and do not divide; columns before rows; one cut by itself.
SPLITS = {"table": "split([model])", "lamb.w": "split([], [model])", "sgd.b": "split([model])", "frozen": "split([model])",
          "lars.w": "split([model])"}


def in_parts(text):
    text = re.sub(r"(train\.param @([\w.]+) .*)", lambda m: f"{m[1]} {SPLITS[m[2]]}", text)
    return text.replace("data = 1)", "data = 1, model = 1)", 1)


SCALED = "loss_scale(dynamic<init = 1024.0, interval = 2.0>)"
CLIPS = [("clip(global_norm<0.5>)", SCALED), ("clip(param_norm<0.1>)", ""), ("clip(value<0.001>)", "")]


def check_everything(folder):
    bad = 0
    for clip, extra in CLIPS:
        for mesh in (dict(data=4), dict(host=2, data=2)) if extra else (dict(data=4),):
            bad += against_one(f"all kinds, {clip}", model(clip, extra), folder, everything, mesh)
            bad += against_one(f"all kinds, {clip}", model(clip, extra), folder, everything, mesh, ALL_MODES, options=(EACH,))
        for mesh in (dict(model=2), dict(data=2, model=2), dict(model=4)) if extra else (dict(data=2, model=2),):
            text = in_parts(model(clip, extra))
            bad += against_one(f"parts of all kinds, {clip}", text, folder, everything, mesh)
            bad += against_one(f"parts of all kinds, {clip}", text, folder, everything, mesh, ALL_MODES, options=(EACH,))
    for passes in ("train-fuse-optimizer", "train-coalesce"):
        bad += against_one("parts of all kinds, by parameter", in_parts(model("")), folder, everything, dict(model=2), ("none",),
                           options=(f"--disable-pass={passes}",))
    (_, exact, _), = run(everything, compiled(model(*CLIPS[0]), folder), 1)
    skips = [skipped for _, skipped, *_ in exact[:len(WINDOWS)]]
    return bad + check("the infinity and windows without terms skip", skips == [0, 0, 1, 2, 2, 2], skips)


# Few parameters.

FEW = """
train.mesh @mesh(data = 1)
train.optimizer @o = adamw<lr = 0.1> ema(0.9)
train.param @w : tensor<3xf32> init(ones) optimizer(@o)
train.step @step(%x: tensor<16x3xf32> split([data])) clip(global_norm<0.5>) {
  %w = train.read @w : tensor<3xf32>
  %p = nn.mul %x, %w : tensor<16x3xf32>, tensor<3xf32>
  %q = nn.mul %p, %p : tensor<16x3xf32>, tensor<16x3xf32>
  %s = nn.reduce sum %q dims [0, 1] : tensor<16x3xf32>
  train.yield loss(%s) : tensor<f32>
}
"""


def part(rank, key):
    first, count = ctypes.c_uint64(), ctypes.c_uint64()
    rank.runtime.call("trainc_tensor_part", rank.trainer.trainer, ctypes.c_uint32(rank.trainer.tensors[key]), ctypes.byref(first),
                      ctypes.byref(count))
    return count.value


def check_few(folder):
    data = [dict(x=RNG.standard_normal((16, 3)).astype("f4")) for _ in range(4)]
    bad = against_one("one parameter of 3 elements", FEW, folder, lambda rank: record(rank, data), dict(data=8), ALL_MODES)
    counts = run(lambda rank: part(rank, ("state", "w", "m")), compiled(FEW, folder, dict(data=8), "optimizer"), 8)
    return bad + check("7 of 8 ranks have padding alone", counts == [3] + [0] * 7, counts)


# Parameters kept in f32.

def check_kept(folder):
    text = model("clip(global_norm<0.5>)", "precision(compute = bf16, keep_f32 = [@lamb.w])")

    def work(rank):
        record(rank, WINDOWS[0] * 3)
        used = rank.trainer.eval("peek")
        return {name: (used[name], rank.trainer.read(f"{name}.w")) for name in used}

    def cut(values):
        return (values.view("u4") & 0xFFFF).any()

    bad = 0
    one, = run(work, compiled(text, folder), 1)
    for mode in ALL_MODES:
        results = run(work, compiled(text, folder, dict(data=4), mode), 4)
        bad += check(f"kept in f32, {mode}: all ranks compute with the parameter itself", all(
            cut(r["lamb"][0]) and np.array_equal(*r["lamb"]) for r in results))
        bad += check(f"not kept, {mode}: an eval reads the same on all ranks", all(
            np.array_equal(r["lars"][0], results[0]["lars"][0]) and np.array_equal(r["lars"][1], results[0]["lars"][1])
            and closeness({0: r["lars"][0]}, {0: r["lars"][1]}) < 2.0**-8 for r in results))
        error = max(closeness({0: results[0][n][1]}, {0: one[n][1]}) for n in one)
        bad += check(f"kept in f32, {mode}: as one rank", error < 1e-2, error)
    return bad


# What must not depend on the number of ranks.

DROPOUT = f"""
train.mesh @mesh(data = 1)
train.optimizer @o = sgd<lr = 1.0>
train.param @w : tensor<7x5xf32> init(zeros) optimizer(@o)
train.step @step(%x: tensor<16x1x1xf32> split([data])) accumulate({K}) {{
  %w = train.read @w : tensor<7x5xf32>
  %p = nn.mul %w, %x : tensor<7x5xf32>, tensor<16x1x1xf32>
  %d = nn.dropout %p rate 0.5 : tensor<16x7x5xf32>
  %s = nn.reduce sum %d dims [0, 1, 2] : tensor<16x7x5xf32>
  train.yield loss(%s) : tensor<f32>
}}
"""


# Parts that are uneven, and such of blocks.
DROPOUT_IN_PARTS = f"""
train.mesh @mesh(host = 1, data = 1, model = 1)
train.optimizer @o = sgd<lr = 1.0>
train.param @w : tensor<7x5xf32> init(zeros) optimizer(@o) split([], [model])
train.param @v : tensor<3x24xf32> init(zeros) optimizer(@o) split([], [model]) blocks [1, 3]
train.step @step(%x: tensor<16x1x1xf32> split([host, data])) accumulate({K}) {{
  %w = train.read @w : tensor<7x5xf32>
  %p = nn.mul %w, %x : tensor<7x5xf32>, tensor<16x1x1xf32>
  %d = nn.dropout %p rate 0.5 : tensor<16x7x5xf32>
  %s = nn.reduce sum %d dims [0, 1, 2] : tensor<16x7x5xf32>
  %v = train.read @v : tensor<3x24xf32>
  %q = nn.mul %v, %x : tensor<3x24xf32>, tensor<16x1x1xf32>
  %e = nn.dropout %q rate 0.5 : tensor<16x3x24xf32>
  %t = nn.reduce sum %e dims [0, 1, 2] : tensor<16x3x24xf32>
  %loss = nn.add %s, %t : tensor<f32>, tensor<f32>
  train.yield loss(%loss) : tensor<f32>
}}
"""


def dropout_data():
    return [dict(x=2.0 ** np.arange(16, dtype="f4").reshape(16, 1, 1))] * (2 * K)


def by_random(text):
    """The same with nn.random in place of nn.dropout."""
    return re.sub(r"%(\w) = nn.dropout (%\w) rate 0.5 : (\S+)",
                  r"%\1\1 = nn.random bernoulli p 0.5 : \3\n  %\1 = nn.mul \2, %\1\1 : \3, \3", text)


def check_dropout(folder):
    """The gradient of @w is the sum of the masks times powers of two: it has all bits of the masks."""
    data, bad = dropout_data(), 0
    for what, edit in (("dropout", str), ("random", by_random)):
        text, in_parts = edit(DROPOUT), edit(DROPOUT_IN_PARTS)
        one, = run(lambda rank: record(rank, data)[0], compiled(text, folder), 1)
        bad += check(f"{what}: not all or nothing", len(np.unique(one[K - 1, "parameter", "w", None])) > 20)
        for ranks in 2, 4:
            for options in (("none",), ("optimizer",), ("optimizer", EACH), ("parameters",)):
                results = run(lambda rank: record(rank, data)[0], compiled(text, folder, dict(data=ranks), *options), ranks)
                bad += check(f"{what}: masks of 1 and of {ranks} ranks, {' '.join(options)}", all(same(r, one) for r in results))
        one, = run(lambda rank: record(rank, data)[0], compiled(in_parts, folder), 1)
        for mesh in (dict(model=2), dict(data=2, model=2), dict(model=4), dict(host=2, data=2, model=2)):
            results = run(lambda rank: record(rank, data)[0], compiled(in_parts, folder, mesh), int(np.prod(list(mesh.values()))),
                          alike=mesh["model"])
            bad += check(f"{what}: masks of 1 and of {mesh}", all(same(r, one) for r in results))
    return bad


GIVEN = """
train.mesh @mesh(data = 1)
train.optimizer @o = adamw<lr = 0.01>
train.param @a : tensor<9001xf32> init(normal<0.5>) optimizer(@o)
train.param @b : tensor<33x5xf32> init(normal<0.5>) optimizer(@o)
train.step @step(%a: tensor<9001xf32> gradient(@a), %b: tensor<33x5xf32> gradient(@b)) PRECISION {
  train.yield
}
"""


def check_rounding(folder):
    """Each element of the gradient is some rank's alone, so that sums are exact."""
    gradients = [dict(a=RNG.standard_normal(9001).astype("f4"), b=RNG.standard_normal((33, 5)).astype("f4")) for _ in range(4)]

    def work(rank):
        for given in gradients:
            mine = {name: np.where(np.arange(g.size).reshape(g.shape) % rank.ranks == rank.rank, g, 0) for name, g in given.items()}
            rank.trainer.step(**mine)
        return rank.tensors()

    bad, ends = 0, []
    for rounding in "", ", rounding = stochastic":
        text = GIVEN.replace("PRECISION", f"precision(master = bf16{rounding})")
        one, = run(work, compiled(text, folder), 1)
        ends.append(one)
        for ranks in 2, 3, 8:
            for mode in ALL_MODES:
                results = run(work, compiled(text, folder, dict(data=ranks), mode), ranks)
                bad += check(f"masters of bf16{rounding}: bits of 1 and of {ranks} ranks, {mode}", all(same(r, one) for r in results))
        text = text.replace("data = 1", "data = 1, model = 1")
        text = text.replace("optimizer(@o)\ntrain.step", "optimizer(@o) split([], [model])\ntrain.step")
        text = text.replace("33x5", "33x4")
        given = [dict(a=g["a"], b=np.ascontiguousarray(g["b"][:, :4])) for g in gradients]
        one, = run(giving(given), compiled(text, folder), 1)
        for mesh in (dict(model=2), dict(data=2, model=4)):
            for options in ((), ("--disable-pass=train-fuse-optimizer",)):
                results = run(giving(given), compiled(text, folder, mesh, "optimizer", *options), int(np.prod(list(mesh.values()))),
                              alike=mesh["model"])
                bad += check(f"masters of bf16{rounding}: bits of 1 and of parts on {mesh} {' '.join(options)}",
                             all(same(r, one) for r in results))
        # Along two axes, of which the rank's position is to be that along both.
        text = text.replace("data = 1, model = 1", "host = 1, model = 1").replace("split([], [model])", "split([], [host, model])")
        one, = run(giving(given), compiled(text, folder), 1)
        for mesh in (dict(host=2, model=2), dict(model=2), dict(host=4)):
            for options in ((), ("--disable-pass=train-fuse-optimizer",)):
                count = int(np.prod(list(mesh.values())))
                results = run(giving(given), compiled(text, folder, mesh, "none", *options), count, alike=count)
                bad += check(f"masters of bf16{rounding}: bits of 1 and of parts over two axes on {mesh} {' '.join(options)}",
                             all(same(r, one) for r in results))
    return bad + check("stochastic rounding makes a difference", not same(*ends))


def giving(gradients):
    """Each rank has its columns of @b, of which one along `data` has all; of @a one has all."""
    def work(rank):
        for given in gradients:
            columns = np.split(given["b"], rank.alike, 1)[rank.rank % rank.alike]
            rank.trainer.step(a=given["a"] if rank.rank == 0 else np.zeros_like(given["a"]),
                              b=np.ascontiguousarray(columns if rank.rank < rank.alike else np.zeros_like(columns)))
        return rank.tensors()
    return work


NORM = """
train.mesh @mesh(data = 1)
train.optimizer @o = sgd<lr = 0.1, momentum = 0.9>
train.param @w : tensor<5x6xf32> init(normal<0.5>) optimizer(@o)
train.param @scale : tensor<6xf32> init(ones) optimizer(@o)
train.param @shift : tensor<6xf32> init(zeros) optimizer(@o)
train.buffer @mean : tensor<6xf32> init(zeros)
train.buffer @var : tensor<6xf32> init(ones)
train.buffer @calls : tensor<i32> init(zeros)
train.buffer @seen : tensor<6xi32> init(zeros)
train.step @step(%x: tensor<12x5xf32> split([data]), %y: tensor<12xi32> split([data])) accumulate(2) clip(global_norm<1.0>) {
  %w = train.read @w : tensor<5x6xf32>
  %scale = train.read @scale : tensor<6xf32>
  %shift = train.read @shift : tensor<6xf32>
  %mean = train.read @mean : tensor<6xf32>
  %var = train.read @var : tensor<6xf32>
  %l = nn.linear %x, %w : tensor<12x5xf32>, tensor<5x6xf32>
  %n, %mean1, %var1 = nn.batch_norm %l, %scale, %shift, %mean, %var training
      : tensor<12x6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>, tensor<6xf32>
  train.write %mean1 to @mean : tensor<6xf32>
  train.write %var1 to @var : tensor<6xf32>
  %calls = train.read @calls : tensor<i32>
  %one = nn.constant dense<1> : tensor<i32>
  %calls1 = nn.add %calls, %one : tensor<i32>, tensor<i32>
  train.write %calls1 to @calls : tensor<i32>
  %seen = train.read @seen : tensor<6xi32>
  %best = nn.argmax %n dim 1 : tensor<12x6xf32>
  %column = nn.reshape %best : tensor<12xi32> to tensor<12x1xi32>
  %kinds = nn.iota dim 0 : tensor<6xi32>
  %hit = nn.compare eq %column, %kinds : tensor<12x1xi32>, tensor<6xi32>
  %hits = nn.cast %hit to i32 : tensor<12x6xi1>
  %more = nn.reduce sum %hits dims [0] : tensor<12x6xi32>
  %seen1 = nn.add %seen, %more : tensor<6xi32>, tensor<6xi32>
  train.write %seen1 to @seen : tensor<6xi32>
  %loss, %count = nn.cross_entropy %n, %y : tensor<12x6xf32>, tensor<12xi32>
  train.yield loss(%loss) weight(%count) : tensor<f32>, tensor<f32>
}
"""


def check_norm(folder):
    data = [dict(x=RNG.standard_normal((12, 5)).astype("f4"), y=RNG.integers(0, 6, 12).astype("i4")) for _ in range(6)]
    bad = 0
    for ranks, options, modes in (2, (), MODES), (4, (), MODES), (4, (EACH,), ALL_MODES):
        bad += against_one("batch norm and counters", NORM, folder, lambda rank: record(rank, data), dict(data=ranks), modes,
                           options=options)
    return bad


def main():
    with tempfile.TemporaryDirectory() as folder:
        checks = (check_everything, check_few, check_kept, check_dropout, check_rounding, check_norm)
        sys.exit(sum(one(folder) for one in checks) != 0)


if __name__ == "__main__":
    main()
