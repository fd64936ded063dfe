# REQUIRES: numpy
# RUN: %python %s
"""Steps that train different parameters: each is bit for bit a module of its own in which all else is frozen, with a window, counters, clip
and loss scale of its own; also with both windows open when they are saved, loaded and flushed, on the GPU of tests and on ranks."""
import os
import sys
import tempfile

import numpy as np

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration", "Inputs")]

from common import BUILD, RUNTIME_LIBRARY, compile_module  # noqa: E402
from ranks import mesh_option, run  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

for variable, name in (("TRAINC_LIBCUDA", "cuda"), ("TRAINC_LIBCUBLASLT", "cublaslt")):
    os.environ[variable] = os.path.join(BUILD, "lib", f"libtrainc_fake_{name}.so")

# Both are of the schedule, which is evaluated at the updates of the window that is closed.
SCHEDULE = "train.mesh @mesh(data = 1)\ntrain.schedule @lr = linear<init = 0.02, end = 0.0, steps = 9>\n"
OPTIMIZERS = {"actor": "train.optimizer @actor = adamw<lr = @lr> ema(0.9)\n", "critic": "train.optimizer @critic = sgd<lr = @lr, momentum = 0.9>\n"}
PARAMETERS = [("w", "6x7", "actor"), ("b", "7", "actor"), ("v", "7x5", "critic"), ("c", "5", "critic")]
STEP = """
train.step @NAME(%x: tensor<Nx6xf32> split([data]), %y: tensor<Nxi32> split([data])) CLAUSES {
  %w = train.read @w : tensor<6x7xf32>
  %b = train.read @b : tensor<7xf32>
  %v = train.read @v : tensor<7x5xf32>
  %c = train.read @c : tensor<5xf32>
  %h = nn.linear %x, %w, %b : tensor<Nx6xf32>, tensor<6x7xf32>, tensor<7xf32>
  %a = nn.gelu %h tanh : tensor<Nx7xf32>
  %z = nn.linear %a, %v, %c : tensor<Nx7xf32>, tensor<7x5xf32>, tensor<5xf32>
  %loss, %n = nn.cross_entropy %z, %y : tensor<Nx5xf32>, tensor<Nxi32>
  train.yield loss(%loss) weight(%n) : tensor<f32>, tensor<f32>
}
"""
STEPS = {"step_actor": ("actor", 8), "step_critic": ("critic", 8), "step_critic_4": ("critic", 4)}
CALLS = ["step_actor", "step_critic", "step_critic_4", "step_actor", "step_actor", "step_critic", "step_critic_4", "step_actor", "step_critic",
         "step_critic", "step_actor"]
SAVED, FLUSHED = 7, 11  # behind so many calls, when both windows are open


def module(clauses, who=("actor", "critic")):
    """With steps of these; the parameters of others are frozen. Of one alone it is what `trains` is compared with."""
    text = SCHEDULE + "".join(OPTIMIZERS[one] for one in who)
    for name, shape, owner in PARAMETERS:
        text += f"train.param @{name} : tensor<{shape}xf32> init(normal<0.5>) " + (f"optimizer(@{owner})\n" if owner in who else "frozen\n")
    for name, (owner, rows) in STEPS.items():
        trains = f"trains([@{owner}]) " if len(who) > 1 else ""
        if owner in who:
            text += STEP.replace("NAME", name).replace("Nx", f"{rows}x").replace("CLAUSES", trains + clauses[owner])
    return text


def batches():
    rng = np.random.default_rng(3)
    for name in CALLS:
        rows = STEPS[name][1]
        yield name, dict(x=rng.standard_normal((rows, 6)).astype("f4"), y=rng.integers(0, 5, rows).astype("i4"))


def require(what, good, *seen):
    if not good:
        raise SystemExit(f"{what}: {seen}")


def numbers(result):
    of_update = [result.grad_norm, result.clip_factor] if result.closed else [0, 0]  # those of the last one are in no checkpoint
    return [result.loss, result.window_loss, result.window_weight, *of_update, result.loss_scale, result.update, result.micro_step]


def state(trainer):
    return {key: trainer.read(key[1], key[0], key[2]) for key in trainer.tensors if key[0] in ("parameter", "state")}


def together(trainer, checkpoint=None):
    """Results of all calls, the state, and the counts of updates."""
    seen = []
    for i, (name, batch) in enumerate(batches(), 1):
        seen.append(numbers(trainer.step(name, **batch)))
        if checkpoint and i == SAVED:
            trainer.save(checkpoint)
            for _ in range(3):  # what the load takes back
                trainer.step(name, **batch)
            trainer.load(checkpoint)
    trainer.flush()
    return np.array(seen), state(trainer), (trainer.scalar("update"), trainer.scalar("step_critic.update"))


def apart(alone):
    """The same by a trainer of each, which get each other's parameters after every call."""
    seen = []

    def share():
        for name, _, owner in PARAMETERS:
            for who, trainer in alone.items():
                if who != owner:
                    trainer.write(name, alone[owner].read(name))

    for name, batch in batches():
        seen.append(numbers(alone[STEPS[name][0]].step(name, **batch)))
        share()
    for trainer in alone.values():
        trainer.flush()
    share()
    found = {}
    for trainer in alone.values():
        found |= state(trainer)
    owners = {name: owner for name, _, owner in PARAMETERS}
    return (np.array(seen), {key: state(alone[owners[key[1]]])[key] for key in found},
            tuple(trainer.scalar("update") for trainer in alone.values()))


def compare(what, got, want, bar=0.0):
    require(f"{what}: updates", got[2] == want[2], got[2], want[2])
    require(f"{what}: results", np.allclose(got[0], want[0], rtol=bar, atol=bar), np.abs(got[0] - want[0]).max(0))
    require(f"{what}: tensors", got[1].keys() == want[1].keys(), got[1].keys() ^ want[1].keys())
    for key, value in want[1].items():
        off = np.abs(got[1][key].astype("f8") - value.astype("f8")).max()
        require(f"{what}: {key}", off <= bar, off)


def on_ranks(rank):
    seen = []
    for name, batch in batches():
        result = rank.trainer.step(name, **{key: rank.rows(value) for key, value in batch.items()})
        seen.append([result.window_loss if result.closed else 0, result.grad_norm, result.update, result.micro_step])
    rank.trainer.flush()
    return np.array(seen), state(rank.trainer), (rank.trainer.scalar("update"), rank.trainer.scalar("step_critic.update"))


def main():
    runtime = Runtime(RUNTIME_LIBRARY)
    cases = {
        "windows": dict(actor="accumulate(2) clip(global_norm<0.4>)", critic="accumulate(3) clip(value<0.01>)"),
        "one": dict(actor="", critic="clip(global_norm<0.1>)"),
        "half": dict(actor="accumulate(2) precision(compute = f16) loss_scale(dynamic<init = 1024, interval = 1>)",
                     critic="precision(compute = f16) loss_scale(8.0)"),
        "rounded": dict(actor="precision(compute = bf16, master = bf16, rounding = stochastic)",
                        critic="accumulate(2) precision(compute = bf16, master = bf16, rounding = stochastic)")}
    with tempfile.TemporaryDirectory() as folder:
        def compiled(name, text, *options):
            return compile_module(text, os.path.join(folder, name + ".so"), *options)

        for name, clauses in cases.items():
            for passes in ((), ("--disable-pass=train-coalesce,train-fuse-optimizer,train-hoist-casts",)):
                options = ("--target=cuda,cpu", "--cuda-arch=host", *passes)
                paths = [compiled(f"{name}-{i}", module(clauses, who), *options) for i, who in enumerate((("actor", "critic"), ("actor",), ("critic",)))]
                for device in (b"cpu", b"cuda"):
                    with (Trainer(runtime, paths[0], seed=1, device=device) as both, Trainer(runtime, paths[1], seed=1, device=device) as actor,
                          Trainer(runtime, paths[2], seed=1, device=device) as critic):
                        want = apart(dict(actor=actor, critic=critic))
                        compare(f"{name} on {device.decode()} {passes}", together(both, os.path.join(folder, "checkpoint")), want)
        text = module(cases["windows"])
        want, = run(on_ranks, compiled("alone", text), 1)
        for mode in ("none", "optimizer", "gradients", "parameters"):
            for more in ((), ("--merge-buffer=sharded",)):
                path = compiled(mode, text, mesh_option(dict(data=2)), f"--shard={mode}", "--bucket-size=256", *more)
                for got in run(on_ranks, path, 2):
                    compare(f"{mode} {more}", got, want, 3e-6)
    print("steps that train different parameters: ok")


if __name__ == "__main__":
    main()
