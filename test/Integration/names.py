# REQUIRES: numpy
# RUN: %python %s
"""No decision depends on a name: modules whose parameters, buffers, functions, optimizers, schedules, entries and
values have other names get the same plan, commands, memory report and tables.

Each module is renamed twice: the names change places, so that a norm's weight has the name of a bias and a schedule
that of a parameter; and to random names, among them some that frameworks give a meaning. Plans are compared as text,
after the symbols are mapped back.
"""
import ctypes
import itertools
import json
import os
import random
import re
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path[:0] = [os.path.join(ROOT, "bench"), os.path.join(ROOT, "test", "Integration"),
                os.path.join(ROOT, "test", "Integration", "Inputs")]

import updates  # noqa: E402
from common import RUNTIME_LIBRARY, compile_module, generate, run, tool  # noqa: E402
from trainc_ctypes import Runtime, Trainer  # noqa: E402

TOKEN = re.compile(r'@?"(?:[^"\\]|\\.)*"|//[^\n]*|[@%][\w.$-]+|[^@%"/]+|.', re.S)
MEANINGFUL = ["layer_norm.bias", "bn.running_mean", "token_embedding", "w.cast_fp16", "lm_head", "beta1_pow_acc_0",
              "frozen", "no_decay", "norm.weight", "flatten_param", "loss", "bias", "w@GRAD@MERGE", "moment1_0", "ln_f",
              "gradient_merge_k", "optimizers/w/m", "dropout", "B/b:0", "weight decay", "init", "first"]
EVERYTHING = """train.schedule @warm = warmup_cosine<peak = 0.01, warmup = 3.0, total = 20.0>
train.schedule @own(%t: f64, %base: f64) hyper(base = 0.1) {
  %one = arith.constant 1.0 : f64
  %d = arith.addf %one, %t : f64
  %v = arith.divf %base, %d : f64
  train.yield %v : f64
}
train.optimizer @decayed = adamw<lr = @warm, weight_decay = 0.1> ema(0.9)
train.optimizer @undecayed = adamw<lr = @warm, weight_decay = 0.0> ema(0.9)
train.optimizer @layers = lamb<lr = @own> clip(false)
train.optimizer @mine(%p: f32, %g: f32, %m: f32, %lr: f64) state(m = 0.0) hyper(lr = @own) {
  %half = arith.constant 0.5 : f32
  %m1 = math.fma %half, %m, %g : f32
  %rate = arith.truncf %lr : f64 to f32
  %d = arith.mulf %rate, %m1 : f32
  %p1 = arith.subf %p, %d : f32
  train.yield %p1, %m1 : f32, f32
}
train.param @embed : tensor<13x8xf32> init(normal<0.02>) optimizer(@undecayed)
train.param @up.weight : tensor<8x16xf32> init(normal<0.02>) optimizer(@decayed)
train.param @up.bias : tensor<16xf32> init(zeros) optimizer(@undecayed)
train.param @norm.weight : tensor<16xf32> init(ones) optimizer(@mine)
train.param @norm.bias : tensor<16xf32> init(zeros) frozen
train.param @down.weight : tensor<16x13xf32> init(normal<0.02>) optimizer(@layers)
train.buffer @seen : tensor<f32> init(zeros)
func.func private @block(%x: tensor<6x8xf32>) -> tensor<6x16xf32> {
  %w = train.read @up.weight : tensor<8x16xf32>
  %b = train.read @up.bias : tensor<16xf32>
  %y = nn.linear %x, %w, %b : tensor<6x8xf32>, tensor<8x16xf32>, tensor<16xf32>
  %s = train.read @norm.weight : tensor<16xf32>
  %t = train.read @norm.bias : tensor<16xf32>
  %z = nn.layer_norm %y, %s, %t : tensor<6x16xf32>, tensor<16xf32>, tensor<16xf32>
  return %z : tensor<6x16xf32>
}
func.func private @net(%ids: tensor<6xi32>) -> tensor<6x13xf32> {
  %table = train.read @embed : tensor<13x8xf32>
  %x = nn.embedding %table, %ids : tensor<13x8xf32>, tensor<6xi32>
  %z = func.call @block(%x) : (tensor<6x8xf32>) -> tensor<6x16xf32>
  %h = nn.dropout %z rate 0.1 : tensor<6x16xf32>
  %w = train.read @down.weight : tensor<16x13xf32>
  %y = nn.linear %h, %w : tensor<6x16xf32>, tensor<16x13xf32>
  return %y : tensor<6x13xf32>
}
train.step @step(%ids: tensor<6xi32>, %y: tensor<6xi32>) accumulate(2) clip(global_norm<1.0>)
    precision(compute = bf16, keep_f32 = [@down.weight]) {
  %logits = func.call @net(%ids) : (tensor<6xi32>) -> tensor<6x13xf32>
  %sum, %count = nn.cross_entropy %logits, %y : tensor<6x13xf32>, tensor<6xi32>
  %old = train.read @seen : tensor<f32>
  %new = nn.add %old, %count : tensor<f32>, tensor<f32>
  train.write %new to @seen : tensor<f32>
  train.yield loss(%sum) weight(%count) : tensor<f32>, tensor<f32>
}
train.eval @predict(%ids: tensor<6xi32>) -> ("logits") weights(ema) {
  %logits = func.call @net(%ids) : (tensor<6xi32>) -> tensor<6x13xf32>
  train.yield %logits : tensor<6x13xf32>
}
"""


def modules():
    gpt = ["--layers", 2, "--width", 24, "--heads", 3, "--vocab", 37, "--batch", 3, "--seq", 11, "--context", 16]
    yield "gpt", generate("gpt", *gpt, "--accumulate", 2, "--schedule", "warmup_cosine", "warmup=3", "total=9")
    yield "cnn", generate("cnn", "--batch", 5)
    groups = __import__("update-groups")
    yield "update-groups", updates.module(groups.OPTIMIZERS, groups.PARAMETERS, "clip(param_norm<2.0>)")
    yield "everything", EVERYTHING


def written(symbol):
    return "@" + (symbol if re.fullmatch(r"[A-Za-z_][\w.$]*", symbol, re.A) else f'"{symbol}"')


def symbol_of(token):
    return token[2:-1] if token.startswith('@"') else token[1:]


def renamings(text, rng):
    """Of symbols and of values, {old: new}: one that changes places, one to random names."""
    tokens = TOKEN.findall(text)
    symbols = list(dict.fromkeys(symbol_of(t) for t in tokens if t.startswith("@")))
    values = list(dict.fromkeys(t for t in tokens if t.startswith("%")))
    rotated = [rng.sample(names, len(names)) for names in (symbols, values)]
    yield dict(zip(symbols, rotated[0])), dict(zip(values, rotated[1]))
    fresh = rng.sample(MEANINGFUL, min(len(MEANINGFUL), len(symbols)))
    fresh += [f"{rng.choice('abcxyz')}{rng.getrandbits(40):x}" for _ in range(len(symbols) - len(fresh))]
    rng.shuffle(fresh)
    yield dict(zip(symbols, fresh)), {v: f"%v{rng.getrandbits(40):x}" for v in values}


def rename(text, symbols, values):
    return "".join(written(symbols[symbol_of(t)]) if t.startswith("@") else values.get(t, t)
                   for t in TOKEN.findall(text))


def old_name(name, symbols):
    """The name before renaming; that of a number, a list or a copy for a type begins with a symbol's."""
    for end in range(len(name), 0, -1):
        if name[:end] in symbols and re.fullmatch(r"(_f32|_f64)?(\..*)?", name[end:]):
            return symbols[name[:end]] + name[end:]
    return name


def canonical(text, symbols):
    """A dump whose symbols have the old names, and whose values are numbered in each operation of the module."""
    def token(match, numbers):
        t = match[0]
        if t.startswith("%"):
            return numbers.setdefault(t, f"%{len(numbers)}")
        return written(old_name(symbol_of(t), symbols)) if t.startswith("@") else t

    def operation(part, numbers):
        return TOKEN.sub(lambda match: token(match, numbers), part)

    return "".join(operation(part, {}) for part in re.split(r"^(?=  \S)", text, flags=re.M))


class Command(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint32), ("kernel", ctypes.c_uint32), ("tiles", ctypes.c_int64),
                ("num_operands", ctypes.c_uint32), ("reserved", ctypes.c_uint32), ("operands", ctypes.c_void_p),
                ("detail", ctypes.c_void_p), ("label", ctypes.c_char_p), ("location", ctypes.c_char_p),
                ("flops", ctypes.c_int64)]


OPERAND_BYTES, GEMM, GEMM_BYTES = 32, 1, 160


def tables(library):
    """Commands and tensors of an artifact, and how many scalars, kernels and arenas it has: without names."""
    with Trainer(Runtime(RUNTIME_LIBRARY), library) as t:
        d, commands = t.descriptor, []
        for e in range(d.num_entries):
            for commands_ in d.entries[e].lists:
                for command in (Command * commands_.count).from_address(commands_.commands or 0):
                    operands = ctypes.string_at(command.operands, command.num_operands * OPERAND_BYTES)
                    detail = ctypes.string_at(command.detail, GEMM_BYTES) if command.kind == GEMM else b""
                    commands.append((command.kind, command.kernel, command.tiles, operands, detail, command.flops))
        tensors = [(x.role, x.dtype, x.rank, x.arena, x.offset, x.bytes, x.group, x.init)
                   for x in (d.tensors[i] for i in range(d.num_tensors))]
        return [*commands, *tensors, (d.num_scalars, d.num_kernels, d.num_arenas)]


def views(text, folder, symbols):
    """What is compared: forms 2 and 3, memory report, tables; `symbols` are {name: old name}."""
    os.makedirs(folder)
    source = os.path.join(folder, "model.mlir")
    library = compile_module(text, os.path.join(folder, "model.so"), f"--dump={folder}")
    found = {}
    for form in ("2-plan", "3-commands"):
        with open(os.path.join(folder, form + ".mlir")) as f:
            found[form] = canonical(f.read(), symbols)
    memory = json.loads(run([tool("trainc"), source, "--memory-report=json"]).stdout)
    for entry in memory["entries"]:
        entry["name"] = old_name(entry["name"], symbols)
    found["memory"] = json.dumps(memory, indent=1)
    found["tables"] = "\n".join(map(repr, tables(library)))
    return found


def main():
    rng = random.Random(7)
    for name, text in modules():
        with tempfile.TemporaryDirectory() as folder:
            want = views(text, os.path.join(folder, "old"), {})
            for i, (symbols, values) in enumerate(renamings(text, rng)):
                back = {new: old for old, new in symbols.items()}
                got = views(rename(text, symbols, values), os.path.join(folder, f"new{i}"), back)
                for view in want:
                    for old, new in itertools.zip_longest(want[view].splitlines(), got[view].splitlines()):
                        if old != new:
                            sys.exit(f"{name}: {view} depends on names:\n{old}\n{new}")
        counts = ", ".join(f"{len(want[view].splitlines())} lines of {view}" for view in want)
        print(f"{name}: {len(symbols)} symbols and {len(values)} values have other names: same {counts}", flush=True)


if __name__ == "__main__":
    main()
