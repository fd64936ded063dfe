"""Timing clip and AdamW alone, of gradients that stand in memory, against the machine's limit and the peers."""
import os
import sys

from audit import Ours
from common import PEERS, ROOT, compile_module
from timing import ROUNDS, limit_program, take_turns
from workloads import OPTIMIZER, WORKLOADS, parameters

STEPS = 10
LIMIT, LIMIT_WITH_COPY, READ = "update_4r3w", "update_4r3w_bf16_copy", "sum"


def tensor(shape, element):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def sum_in_bf16(w):
    """A body that uses every parameter in bf16, so that the update keeps a copy of each: the sum of first elements."""
    lines, last, scalar = [], "%zero", tensor((), "bf16")
    for i, (name, shape, _) in enumerate(parameters(w)):
        zeros, ones = [0] * len(shape), [1] * len(shape)
        lines += [f"%p{i} = train.read @{name} : {tensor(shape, 'f32')}",
                  f"%c{i} = nn.cast %p{i} to bf16 : {tensor(shape, 'f32')}",
                  f"%f{i} = nn.slice %c{i} offsets {zeros} sizes {ones} : {tensor(shape, 'bf16')}",
                  f"%s{i} = nn.reshape %f{i} : {tensor(ones, 'bf16')} to {scalar}",
                  f"%t{i} = nn.add {last}, %s{i} : {scalar}, {scalar}"]
        last = f"%t{i}"
    return ["%zero = nn.constant dense<0.0> : tensor<bf16>", *lines, f"train.write {last} to @sum : {scalar}"]


def update_module(w, bf16=False):
    """The update of a workload as a module: its inputs are the gradients."""
    o = OPTIMIZER
    types = {name: tensor(shape, "f32") for name, shape, _ in parameters(w)}
    inputs = [f"%g{i}: {type} gradient(@{name})" for i, (name, type) in enumerate(types.items())]
    return "\n".join([
        f"train.optimizer @optimizer = adamw<lr = {o['lr']:f}, b1 = {o['beta1']}, b2 = {o['beta2']},"
        f" eps = {o['eps']:.1e}, weight_decay = {o['weight_decay']}>",
        *(f"train.param @{name} : {type} init(zeros) optimizer(@optimizer)" for name, type in types.items()),
        *([f"train.buffer @sum : {tensor((), 'bf16')} init(zeros)"] if bf16 else []),
        f"train.step @step({', '.join(inputs)}) clip(global_norm<{o['clip_norm']}>) {{",
        *(sum_in_bf16(w) if bf16 else []), "train.yield", "}", ""])


def our_update(name, folder, bf16=False, options=()):
    library = compile_module(update_module(WORKLOADS[name], bf16), os.path.join(folder, f"{name}.so"), *options)
    return [sys.executable, os.path.join(ROOT, "bench", "bound_update.py"), library, name]


def limit_command(*kernels):
    return [limit_program(), "serve", *kernels]


def peer_updates(name, bf16=False):
    """PyTorch's fused, foreach and compiled AdamW, each with its foreach clip, and optax under jit."""
    def command(script, *options):
        return [sys.executable, os.path.join(PEERS, script), "--serve", "--workload", name,
                *(["--bf16"] if bf16 else []), *options]

    return {**{f"torch {o}": command("torch_peer.py", "--optimizer", o) for o in ("fused", "foreach", "compiled")},
            "jax": command("jax_peer.py")}


def time_update(name, folder, rounds=ROUNDS, peers=True, bf16=False, options=()):
    """What take_turns() returns, of 'trainc' (parts 'norm' and 'update'), 'limit' and the peers."""
    commands = {"trainc": our_update(name, folder, bf16, options),
                "limit": limit_command(LIMIT_WITH_COPY if bf16 else LIMIT, READ),
                **(peer_updates(name, bf16) if peers else {})}
    return take_turns(commands, folder, rounds, STEPS, ours=Ours(name, bf16, tuple(options)))


def time_tensor_counts(folder, rounds=ROUNDS):
    """The same of the 148 tensors of gpt2-124m and of 300 equal ones: 'few', 'many' and 'limit'."""
    commands = {"few": our_update("optimizer-124m", folder), "many": our_update("optimizer-124m-300", folder),
                "limit": limit_command(LIMIT, READ)}
    return take_turns(commands, folder, rounds, STEPS)


def per_round(dividend, divisor):
    return [a / b for a, b in zip(dividend, divisor)]
