"""Writes modules in the `train` and `nn` dialects as text. Only the standard library.

A `Module` collects schedules, optimizers, parameters and entries; a `Body` is the inside of one entry: its methods append
an operation and return the value it computes, with its shape.
"""
import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Value:
    name: str
    shape: tuple
    element: str

    @property
    def type(self):
        return tensor(self.shape, self.element)


def tensor(shape, element):
    return f"tensor<{'x'.join([*map(str, shape), element])}>"


def number(value):
    """A float as MLIR reads it: always with a point."""
    text = repr(float(value))
    return text if "." in text or "n" in text else text.replace("e", ".0e")


def settings(values):
    """`<a = 1.0, b = @c>` of {name: value}; a value is a number, a bool or text that is printed as it is."""
    def text(value):
        return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else number(value)

    return "<" + ", ".join(f"{k} = {text(v)}" for k, v in values.items()) + ">"


class Module:
    def __init__(self, element="f32"):
        self.element = element
        self.lines = []
        self.parameters = {}

    def param(self, name, shape, init, optimizer="optimizer", split=None, blocks=1):
        """`split`: the dimension along which ranks of the axis `model` have parts of it, in so many blocks."""
        self.parameters[name] = tuple(shape)
        text = f"train.param @{name} : {tensor(shape, self.element)} init({init}) optimizer(@{optimizer})"
        if split is not None:
            text += f" split({', '.join(['[]'] * split + ['[model]'])})"
        if blocks != 1:
            text += f" blocks [{', '.join(str(blocks if i == split else 1) for i in range(len(shape)))}]"
        self.lines.append(text)

    def linear(self, name, n_in, n_out, bias=True, init="normal<0.02>", split=None, blocks=1):
        """`split`: 0 by rows, 1 by columns."""
        self.param(f"{name}.weight", (n_in, n_out), init, split=split, blocks=blocks)
        if bias:
            self.param(f"{name}.bias", (n_out,), "zeros", split=0 if split == 1 else None, blocks=blocks)

    def norm(self, name, width, bias=True):
        self.param(f"{name}.weight", (width,), "ones")
        if bias:
            self.param(f"{name}.bias", (width,), "zeros")

    def entry(self, head, inputs, build, clauses="", split=""):
        """An entry with inputs [(name, shape, element)], each split so; `build(body, *inputs)` appends its operations."""
        body = Body(self, split)
        arguments = [Value(f"%{name}", tuple(shape), element) for name, shape, element in inputs]
        build(body, *arguments)
        text = ", ".join(f"{a.name}: {a.type}{split}" for a in arguments)
        self.lines += ["", f"{head}({text}){clauses} {{", *body.lines, "}"]

    def step(self, inputs, loss, clauses, split=""):
        """`loss(body, *inputs)` returns the sum of the loss terms and their count."""
        def build(body, *arguments):
            total, count = loss(body, *arguments)
            body.line(f"train.yield loss({total.name}) weight({count.name}) : {total.type}, {count.type}")

        self.entry("train.step @step", inputs, build, clauses, split)

    def eval(self, name, inputs, outputs, results, split=""):
        """`results(body, *inputs)` returns the values of the outputs that are named in `outputs`."""
        def build(body, *arguments):
            values = results(body, *arguments)
            body.line(f"train.yield {', '.join(v.name for v in values)} : {', '.join(v.type for v in values)}")

        self.entry(f"train.eval @{name}", inputs, build, " -> (" + ", ".join(f'"{o}"' for o in outputs) + ")", split)

    def __str__(self):
        return "\n".join(self.lines) + "\n"


class Body:
    def __init__(self, module, split=""):
        self.module = module
        self.split = split  # of the inputs
        self.lines = []
        self.read_values = {}
        self.count = 0

    def line(self, text):
        self.lines.append("  " + text)

    def op(self, text, *results):
        """Appends an operation with results [(shape, element)]."""
        values = []
        for shape, element in results:
            values.append(Value(f"%{self.count}", tuple(shape), element))
            self.count += 1
        self.line(f"{', '.join(v.name for v in values)} = {text}")
        return values[0] if len(values) == 1 else values

    def read(self, name):
        if name not in self.read_values:
            shape = self.module.parameters[name]
            self.read_values[name] = self.op(f"train.read @{name} : {tensor(shape, self.module.element)}",
                                             (shape, self.module.element))
        return self.read_values[name]

    def recompute(self, build):
        """The value that `build(body)` returns, in a region whose inside the backward pass computes again."""
        outer, reads = self.lines, self.read_values
        self.lines, self.read_values = [], dict(reads)
        value = build(self)
        inner, self.lines, self.read_values = self.lines, outer, reads
        result = self.op(f"train.recompute -> {value.type} {{", (value.shape, value.element))
        self.lines += ["  " + line for line in inner]
        self.line(f"  train.yield {value.name} : {value.type}")
        self.line("}")
        return result

    def pointwise(self, name, x, attributes=""):
        return self.op(f"nn.{name} {x.name}{attributes} : {x.type}", (x.shape, x.element))

    def binary(self, name, a, b):
        """Both operands have the result's rank or less; sizes of 1 are repeated."""
        longest = max(len(a.shape), len(b.shape))
        shape = [max(p, q) for p, q in zip(*((1,) * (longest - len(v.shape)) + v.shape for v in (a, b)))]
        return self.op(f"nn.{name} {a.name}, {b.name} : {a.type}, {b.type}", (shape, a.element))

    def add(self, a, b):
        return self.binary("add", a, b)

    def reshape(self, x, shape):
        return self.op(f"nn.reshape {x.name} : {x.type} to {tensor(shape, x.element)}", (shape, x.element))

    def constrain(self, x, split):
        return self.op(f"train.constrain {x.name} split({split}) : {x.type}", (x.shape, x.element))

    def linear(self, x, name):
        operands = [x, self.read(f"{name}.weight")]
        if f"{name}.bias" in self.module.parameters:
            operands.append(self.read(f"{name}.bias"))
        return self.op(f"nn.linear {names(operands)} : {types(operands)}",
                       (x.shape[:-1] + operands[1].shape[1:], x.element))

    def norm(self, kind, x, name):
        operands = [x, self.read(f"{name}.weight")]
        if kind == "layer_norm":
            operands.append(self.read(f"{name}.bias"))
        return self.op(f"nn.{kind} {names(operands)} : {types(operands)}", (x.shape, x.element))

    def embedding(self, table, ids):
        return self.op(f"nn.embedding {table.name}, {ids.name} : {table.type}, {ids.type}",
                       (ids.shape + table.shape[1:], table.element))

    def times_transposed(self, x, w):
        """x wᵀ."""
        return self.op(f"nn.matmul {x.name}, {w.name} transpose_rhs : {x.type}, {w.type}",
                       (x.shape[:-1] + w.shape[:1], x.element))

    def cross_entropy(self, logits, targets):
        return self.op(f"nn.cross_entropy {logits.name}, {targets.name} : {logits.type}, {targets.type}",
                       ((), logits.element), ((), logits.element))

    def correct(self, logits, targets):
        """How many rows of the logits have their maximum at the target."""
        dim = len(logits.shape) - 1
        best = self.op(f"nn.argmax {logits.name} dim {dim} : {logits.type}", (targets.shape, targets.element))
        hit = self.op(f"nn.compare eq {best.name}, {targets.name} : {best.type}, {targets.type}", (targets.shape, "i1"))
        hit = self.op(f"nn.cast {hit.name} to {logits.element} : {hit.type}", (hit.shape, logits.element))
        return self.op(f"nn.reduce sum {hit.name} dims {list(range(dim))} : {hit.type}", ((), logits.element))


def names(values):
    return ", ".join(v.name for v in values)


def types(values):
    return ", ".join(v.type for v in values)


# Each rank has its part of the batch: one rank here, more with `trainc --mesh=data=4`. With `--mesh=data=2,model=2` each has
# parts of the weights that are split, too.
MESH, SPLIT = "train.mesh @mesh(host = 1, data = 1, model = 1)", " split([host, data])"


def classifier(module, options, model, example, targets):
    """The entries @step and @eval of a model from one example shape to class logits; `targets` follows the batch."""
    def inputs(batch):
        return [("x", (batch, *example[0]), example[1] or module.element), ("y", (batch, *targets), "i32")]

    def loss(body, x, y):
        return body.cross_entropy(model(body, x), y)

    def measures(body, x, y):
        logits = model(body, x)
        return *body.cross_entropy(logits, y), body.correct(logits, y)

    module.step(inputs(options.batch), loss, clauses(options), SPLIT)
    module.eval("eval", inputs(options.eval_batch or options.batch), ["loss", "count", "correct"], measures, SPLIT)


# The command line that all generators share.

def parser(description, batch):
    p = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    p.add_argument("--batch", type=int, default=batch, help="examples per micro-batch")
    p.add_argument("--eval-batch", type=int, help="examples per evaluation, if not --batch")
    p.add_argument("--accumulate", type=int, default=1, help="micro-batches per update")
    p.add_argument("--optimizer", nargs="+", default=["adamw"], metavar=("NAME", "KEY=VALUE"), help="and its settings")
    p.add_argument("--lr", type=float, default=3e-4, help="learning rate, or the schedule's peak")
    p.add_argument("--weight-decay", type=float, help="default: 0.1 with adamw, else the optimizer's own")
    p.add_argument("--ema", type=float, help="keep a moving average of the parameters, with this decay")
    p.add_argument("--schedule", nargs="+", metavar=("NAME", "KEY=VALUE"), help="of the learning rate")
    p.add_argument("--clip", type=float, default=1.0, help="0: none")
    p.add_argument("--clip-kind", choices=["global_norm", "param_norm", "value"], default="global_norm")
    p.add_argument("--bf16", action="store_true", help="compute in bf16, with f32 parameters")
    p.add_argument("--keep-f32", nargs="+", default=[], metavar="KIND", help="with --bf16: kinds of operations that stay in f32")
    p.add_argument("--type", choices=["f32", "f64"], default="f32", help="of parameters and values")
    return p


def keys_and_values(arguments):
    pairs = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        try:
            pairs[key] = value == "true" if value in ("true", "false") else float(value)
        except ValueError:
            raise SystemExit(f"expected KEY=NUMBER or KEY=true or KEY=false, got '{argument}'") from None
    return pairs


def new_module(options):
    """A module with the optimizer @optimizer, and the schedule @lr if there is one."""
    module = Module(options.type)
    module.lines.append(MESH)
    kind, *arguments = options.optimizer
    hyper = dict(lr=options.lr)
    if options.schedule:
        name, *values = options.schedule
        start = {"constant": "value", "warmup_linear": "peak", "warmup_cosine": "peak", "inverse_sqrt": "peak"}
        values = {start.get(name, "init"): options.lr} | keys_and_values(values)
        module.lines.append(f"train.schedule @lr = {name}{settings(values)}")
        hyper["lr"] = "@lr"
    if options.weight_decay is not None or kind == "adamw":
        hyper["weight_decay"] = 0.1 if options.weight_decay is None else options.weight_decay
    ema = f" ema({number(options.ema)})" if options.ema else ""
    hyper |= keys_and_values(arguments)
    module.lines += [f"train.optimizer @optimizer = {kind}{settings(hyper)}{ema}", ""]
    return module


def clauses(options):
    text = f" accumulate({options.accumulate})" if options.accumulate > 1 else ""
    if options.clip:
        text += f" clip({options.clip_kind}<{number(options.clip)}>)"
    kept = ", ".join(f'"{kind}"' for kind in options.keep_f32)
    kept = f", keep_f32 = [{kept}]" if kept else ""
    return text + (f" precision(compute = bf16{kept})" if options.bf16 else "")
