# REQUIRES: numpy
# RUN: %python %s
"""Modules of several steps, one per shape: any of them goes on with an open window, all train the same parameters by the same
counters. Against one step whose inputs are filled up with examples of weight 0, in every mode, on the GPU of tests and on ranks, which
may take steps of their own but where more than the loss is summed over a batch."""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from ranks import mesh_option, run  # noqa: E402
from trainc_ctypes import Error, Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

ROWS = [8, 4, 2]  # of the steps
LARGEST = ROWS[0]
HEAD = """
train.mesh @mesh(data = 1)
train.schedule @lr = linear<init = 0.02, end = 0.0, steps = 9>
train.optimizer @o = adamw<lr = @lr> ema(0.9)
train.param @w : tensor<6x7xELEMENT> init(normal<0.5>) optimizer(@o)
train.param @v : tensor<7x5xELEMENT> init(normal<0.5>) optimizer(@o)
"""
STEP = """
train.step @NAME(%x: tensor<Nx6xf32> split([data]), %y: tensor<Nxi32> split([data]), %k: tensor<Nxf32> split([data])) CLAUSES {
  %w = train.read @w : tensor<6x7xELEMENT>
  %v = train.read @v : tensor<7x5xELEMENT>
  %xe = nn.cast %x to ELEMENT : tensor<Nx6xf32>
  %ke = nn.cast %k to ELEMENT : tensor<Nxf32>
  %h = nn.matmul %xe, %w : tensor<Nx6xELEMENT>, tensor<6x7xELEMENT>
  %a = nn.gelu %h tanh : tensor<Nx7xELEMENT>
  %z = nn.matmul %a, %v : tensor<Nx7xELEMENT>, tensor<7x5xELEMENT>
  %loss, %n = nn.cross_entropy %z, %y weights %ke : tensor<Nx5xELEMENT>, tensor<Nxi32>, tensor<NxELEMENT>
  train.yield loss(%loss) weight(%n) : tensor<ELEMENT>, tensor<ELEMENT>
}
train.eval @eval_NAME(%x: tensor<Nx6xf32>) -> ("h") weights(ema) {
  %w = train.read @w : tensor<6x7xELEMENT>
  %xe = nn.cast %x to ELEMENT : tensor<Nx6xf32>
  %h = nn.matmul %xe, %w : tensor<Nx6xELEMENT>, tensor<6x7xELEMENT>
  train.yield %h : tensor<Nx7xELEMENT>
}
"""


def module(rows, clauses, element="f32"):
    steps = "".join(STEP.replace("NAME", f"step{n}").replace("Nx", f"{n}x") for n in rows)
    return (HEAD + steps).replace("CLAUSES", clauses).replace("ELEMENT", element)


def data(ranks=1):
    """Batches of all sizes in turn, so that windows have several."""
    rng = np.random.default_rng(3)
    for n in [8, 2, 4, 4, 8, 2, 8, 8, 2, 4, 4]:
        yield dict(x=rng.standard_normal((n, 6)).astype("f4"), y=rng.integers(0, 5, n).astype("i4"), k=rng.random(n).astype("f4") + 0.5)


def filled(batch):
    missing = LARGEST - len(batch["x"])
    return {name: np.concatenate([value, np.zeros((missing, *value.shape[1:]), value.dtype)]) for name, value in batch.items()}


def require(what, good, *seen):
    if not good:
        raise SystemExit(f"{what}: {seen}")


def state(trainer):
    return {key: trainer.read(key[1], key[0], key[2]) for key in trainer.tensors if key[0] != "gradient"}


def trained(trainer, fill, checkpoint=None):
    """Results and the state at the end; of an unfinished window the update runs early."""
    seen = []
    for i, batch in enumerate(data()):
        entry = f"step{LARGEST if fill else len(batch['x'])}"
        result = trainer.step(entry, **(filled(batch) if fill else batch))
        seen.append([result.loss, result.weight, result.window_loss, result.grad_norm, result.update, result.micro_step])
        if checkpoint and i == 4:
            trainer.save(checkpoint)
            trainer.load(checkpoint)
    result = trainer.flush()
    return np.array([*seen, [result.loss, result.weight, result.window_loss, result.grad_norm, result.update, 0]]), state(trainer)


def compare(what, got, want, bar):
    results, tensors = got
    require(f"{what}: results", np.allclose(results, want[0], rtol=bar, atol=bar), np.abs(results - want[0]).max(0))
    for key, value in want[1].items():
        off = np.abs(tensors[key] - value).max()
        require(f"{what}: {key}", off <= bar, off)


def on_ranks(rank):
    """Results whole, and the state."""
    seen = []
    for batch in data():
        result = rank.trainer.step(f"step{len(batch['x'])}", **{name: rank.rows(value) for name, value in batch.items()})
        seen.append([result.window_loss if result.closed else 0, result.grad_norm, result.update])
    rank.trainer.flush()
    return np.array(seen), {key: rank.trainer.read(key[1], key[0], key[2]) for key in rank.trainer.tensors if key[0] in ("parameter", "state")}


def at_once(rank):
    """Two ranks that take a step each in a micro-step, of whose batches one rank has all; results whole, and the state."""
    batches, seen = list(data()), []
    for first, second in zip(batches[:6], batches[1:7]):
        parts = [{name: value[:len(value) // 2] for name, value in batch.items()} for batch in (first, second)]
        if rank.ranks == 1:
            result = rank.trainer.step(f"step{LARGEST}", **filled({name: np.concatenate([p[name] for p in parts]) for name in first}))
        else:
            result = rank.trainer.step(f"step{2 * len(parts[rank.rank]['x'])}", **parts[rank.rank])
        seen.append([result.window_loss if result.closed else 0, result.grad_norm, result.update])
    return np.array(seen), {key: rank.trainer.read(key[1], key[0], key[2]) for key in rank.trainer.tensors if key[0] in ("parameter", "state")}


# Statistics over the batch of all ranks. One of a single channel is no scalar.
NORMED_HEAD = """
train.mesh @mesh(data = 1)
train.optimizer @o = sgd<lr = 0.1>
train.param @w : tensor<6xCxf32> init(normal<0.5>) optimizer(@o)
train.param @scale : tensor<Cxf32> init(ones) optimizer(@o)
train.param @shift : tensor<Cxf32> init(zeros) optimizer(@o)
train.buffer @mean : tensor<Cxf32> init(zeros)
train.buffer @var : tensor<Cxf32> init(ones)
"""
NORMED = """
train.step @stepN(%x: tensor<Nx6xf32> split([data])) {
  %w = train.read @w : tensor<6xCxf32>
  %scale = train.read @scale : tensor<Cxf32>
  %shift = train.read @shift : tensor<Cxf32>
  %mean = train.read @mean : tensor<Cxf32>
  %var = train.read @var : tensor<Cxf32>
  %h = nn.matmul %x, %w : tensor<Nx6xf32>, tensor<6xCxf32>
  %n, %mean1, %var1 = nn.batch_norm %h, %scale, %shift, %mean, %var training
      : tensor<NxCxf32>, tensor<Cxf32>, tensor<Cxf32>, tensor<Cxf32>, tensor<Cxf32>
  train.write %mean1 to @mean : tensor<Cxf32>
  train.write %var1 to @var : tensor<Cxf32>
  %a = nn.gelu %n tanh : tensor<NxCxf32>
  %s = nn.reduce sum %a dims [0, 1] : tensor<NxCxf32>
  train.yield loss(%s) : tensor<f32>
}
"""


def refused(rank):
    rows = ROWS[rank.rank]
    try:
        rank.trainer.step(f"step{rows}", x=np.ones((rows // 2, 6), "f4"))
    except Error as error:
        return str(error)
    return "nothing is refused"


def check_at_once(compiled):
    text = module(ROWS, "accumulate(2) clip(global_norm<0.4>)")
    mean = "  %m = nn.div %loss, %n : tensor<f32>, tensor<f32>\n  train.yield loss(%m) : tensor<f32>"
    means = text.replace("  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>", mean)
    require("means", means.count(mean) == len(ROWS))
    for name, whole in ("sums", text), ("means", means):
        want, = run(at_once, compiled("alone", whole), 1)
        for mode, *more in ("none",), ("optimizer",), ("optimizer", "--merge-buffer=sharded"):
            path = compiled("apart", whole, mesh_option(dict(data=2)), f"--shard={mode}", "--bucket-size=256", *more)
            for got in run(at_once, path, 2):
                compare(f"{name}, each rank its step, {mode} {more}", got, want, 3e-6)
    for channels in 7, 1:
        steps = "".join(NORMED.replace("stepN", f"step{n}").replace("Nx", f"{n}x") for n in ROWS[:2])
        path = compiled("normed", (NORMED_HEAD + steps).replace("Cx", f"{channels}x"), mesh_option(dict(data=2)))
        for error in run(refused, path, 2):
            require("statistics of two entries", all(
                part in error for part in (f"of {channels} F32 in entry 'step8'", f"of {channels} F32 in entry 'step4'",
                                           "expected batches of one entry on all ranks")), error)


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, text, *options):
            return compile_module(text, os.path.join(folder, name + ".so"), *options)

        cases = {"f64": ("accumulate(3) clip(global_norm<0.4>)", "f64", 1e-13), "f32": ("accumulate(3) clip(global_norm<0.4>)", "f32", 2e-6),
                 "one": ("clip(value<0.01>)", "f64", 1e-13), "bf16": ("accumulate(2) precision(compute = bf16)", "f32", 3e-2),
                 "f16": ("accumulate(2) precision(compute = f16) loss_scale(dynamic)", "f32", 3e-3)}
        for name, (clauses, element, bar) in cases.items():
            options = ("--target=cuda,cpu", "--cuda-arch=host")
            paths = [compiled(f"{name}{len(rows)}", module(rows, clauses, element), *options) for rows in (ROWS, ROWS[:1])]
            for device in (b"cpu", b"cuda"):
                with Trainer(runtime, paths[0], seed=1, device=device) as many, Trainer(runtime, paths[1], seed=1, device=device) as one:
                    compare(f"{name} on {device.decode()}", trained(many, False, os.path.join(folder, "checkpoint")), trained(one, True), bar)
                    for rows in ROWS:
                        x = np.random.default_rng(rows).standard_normal((rows, 6)).astype("f4")
                        wide = one.eval(f"eval_step{LARGEST}", x=np.concatenate([x, np.zeros((LARGEST - rows, 6), "f4")]))["h"][:rows]
                        require(f"{name}: eval", np.allclose(many.eval(f"eval_step{rows}", x=x)["h"], wide, rtol=bar, atol=bar))
        text = module(ROWS, "accumulate(3) clip(global_norm<0.4>)")
        want, = run(on_ranks, compiled("alone", text), 1)
        for mode in ("none", "optimizer", "gradients", "parameters"):
            for more in ((), ("--merge-buffer=sharded",)) if mode == "optimizer" else ((),):
                path = compiled(mode, text, mesh_option(dict(data=2)), f"--shard={mode}", "--bucket-size=256", *more)
                for got in run(on_ranks, path, 2):
                    compare(f"{mode} {more}", got, want, 3e-6)
        check_at_once(compiled)
        # The memory of a smaller shape adds nothing but its inputs.
        memory = []
        for rows in (ROWS, ROWS[:1]):
            with Trainer(runtime, compiled(f"memory{len(rows)}", module(rows, "")), seed=1) as trainer:
                memory.append(trainer.memory().workspace)
        require("workspace of three shapes and of the largest", memory[0] == memory[1], memory)
        try:
            compiled("unlike", module(ROWS[:1], "accumulate(3)") + module(ROWS[1:], "accumulate(2)").split("@v", 1)[1].split("\n", 1)[1])
            raise SystemExit("steps with other windows were compiled")
        except Exception as error:
            require("the error names the clause", "accumulate of the other steps" in str(error), error)
    print("modules of several steps: ok")


if __name__ == "__main__":
    main()
