"""The text of a module: values with shapes and element types, and a method per operation of the `nn` dialect.

`Builder` writes the body of one entry. Its methods infer result types as the dialect does and check nothing that the
compiler checks; `docs/Language.md` has what the operations mean. Front ends translate onto it.
"""
from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

FLOATS = ("f64", "f32", "bf16", "f16")
BYTES = {"f64": 8, "f32": 4, "bf16": 2, "f16": 2, "i64": 8, "i32": 4, "i16": 2, "i8": 1, "i1": 1}
_NAMES = re.compile(r"%\w+")


@dataclass(frozen=True)
class Type:
    """Shape and element type ("f32", "i64", "i1", ...) of a tensor."""

    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"tensor<{''.join(f'{n}x' for n in self.shape)}{self.dtype}>"

    @property
    def elements(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True)
class Value:
    """An SSA value of the body that is being written."""

    name: str
    type: Type

    @property
    def shape(self) -> tuple[int, ...]:
        return self.type.shape

    @property
    def dtype(self) -> str:
        return self.type.dtype

    @property
    def rank(self) -> int:
        return len(self.type.shape)


def symbol(name: str) -> str:
    """A symbol reference; quoted if the name needs it."""
    plain = name and (name[0].isalpha() or name[0] == "_") and all(c.isalnum() or c in "_.$" for c in name)
    return "@" + (name if plain and name.isascii() else quoted(name))


def free_name(wanted: str, taken: Collection[str]) -> str:
    """One that is not taken: the one that is wanted, with underscores after it where needed."""
    return next(name for name in (wanted + "_" * k for k in itertools.count()) if name not in taken)


def quoted(text: str) -> str:
    """A string attribute: printable ASCII as it is, every other byte as two hexadecimal digits."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in text.encode()) + '"'


def number(value: float) -> str:
    """A float attribute that parses to the same double."""
    if math.isfinite(value):
        text = repr(float(value))
        return text.replace("e", ".0e") if "e" in text and "." not in text else text
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X} : f64"


def attributes(values: Mapping[str, float | str | None], flags: Mapping[str, bool]) -> str:
    """Arguments of a named optimizer or schedule: numbers, symbols, and flags; none where a value is None."""
    given = [f"{k} = {v if isinstance(v, str) else number(v)}" for k, v in values.items() if v is not None]
    return ", ".join(given + [f"{k} = {'true' if v else 'false'}" for k, v in flags.items()])


def listed(data: bytes, type: Type) -> str:
    """An elements attribute by the bytes of its elements, little endian; not of i1."""
    return f'dense<"0x{data.hex().upper()}"> : {type}'


def split(dims: Sequence[Sequence[str]]) -> str:
    """The clause of a parameter, an input or a constraint that is sharded: of each dimension the axes."""
    lists = [f"[{', '.join(axes)}]" for axes in dims]
    return f" split({', '.join(lists)})" if any(dims) else ""


def integers(values: Iterable[int]) -> str:
    return "[" + ", ".join(map(str, values)) + "]"


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """As NumPy; ValueError if they do not."""
    out: list[int] = []
    for sizes in zip(*([1] * (max(map(len, shapes)) - len(s)) + list(s) for s in shapes)):
        others = set(sizes) - {1}
        if len(others) > 1:
            raise ValueError(f"shapes {', '.join(map(str, map(tuple, shapes)))} do not broadcast")
        out.append(others.pop() if others else 1)
    return tuple(out)


def _is_leaf(line: str) -> bool:
    """Whether a line is one that `once` has written."""
    return line.partition(" = ")[2].startswith(("train.read ", "nn.constant ", "nn.iota "))


def compute_type(dtype: str) -> str:
    """What narrow types are computed in."""
    return "f32" if dtype in ("bf16", "f16") else dtype


def lowest(dtype: str) -> float:
    """The lowest number of a type, or -infinity."""
    return -math.inf if dtype in FLOATS else -(1 << 8 * BYTES[dtype] - 1)


@dataclass
class Builder:
    """The body of an entry. `location` ("file", line) is put on what is written next; what is written with a `region`, any
    number, is computed again for the gradients, with all that has the same one."""

    lines: list[str] = field(default_factory=list)
    location: tuple[str, int] | None = None
    region: int | None = None
    indent: str = "  "
    _next: int = 0
    _regions: list[int | None] = field(default_factory=list)  # of lines
    _types: dict[str, Type] = field(default_factory=dict)  # of values
    _made: dict[str, Value] = field(default_factory=dict)
    _moved: dict[str, tuple[Value, tuple[int, ...]]] = field(default_factory=dict)  # of transposes: operand, permutation
    _reshaped: dict[str, Value] = field(default_factory=dict)  # of reshapes: operand

    # Any operation.

    def name(self) -> str:
        self._next += 1
        return f"%{self._next - 1}"

    def type_of(self, name: str) -> Type:
        """The type of what an operation of the body has given this name."""
        return self._types[name]

    def write(self, line: str) -> None:
        at = f' loc({quoted(self.location[0])}:{self.location[1]}:1)' if self.location else ""
        self.lines.append(f"{self.indent}{line}{at}")
        self._regions.append(self.region)

    def op(self, text: str, results: Sequence[Type]) -> tuple[Value, ...]:
        """Writes an operation with these results."""
        values = tuple(Value(self.name(), t) for t in results)
        self._types.update((v.name, v.type) for v in values)
        self.write(f"{', '.join(v.name for v in values)} = {text}")
        return values

    def users(self) -> dict[str, list[str]]:
        """Of each value the operations that have it as an operand, as text without their results."""
        users: dict[str, list[str]] = {}
        for line in self.lines:
            results, equals, text = line.partition(" = ")
            text = text if equals else results.strip()
            for name in set(_NAMES.findall(text)):
                users.setdefault(name, []).append(text)
        return users

    def body(self) -> list[str]:
        """The lines without operations whose results nothing uses; those of a region inside a train.recompute."""
        used: set[str] = set()
        kept: list[tuple[str, int | None]] = []
        for line, region in zip(reversed(self.lines), reversed(self._regions)):
            results, equals, text = line.partition(" = ")
            if not equals or not used.isdisjoint(_NAMES.findall(results)):
                used.update(_NAMES.findall(text if equals else line))
                kept.append((line, region))
        kept.reverse()
        body: list[str] = []
        while kept:
            region = kept[0][1]
            if region is None:
                body.append(kept.pop(0)[0])
                continue
            # Leaves in between were made with it and stand before it.
            count = next((i for i, (line, r) in enumerate(kept) if r != region and not _is_leaf(line)), len(kept))
            count = 1 + max(i for i, (_, r) in enumerate(kept[:count]) if r == region)
            body += [line for line, r in kept[:count] if r != region]
            body += self._recomputed([line for line, r in kept[:count] if r == region], kept[count:])
            kept = kept[count:]
        return body

    def _recomputed(self, lines: Sequence[str], rest: Sequence[tuple[str, int | None]]) -> list[str]:
        """A train.recompute of the lines; its results are what the rest uses, which have other names inside."""
        later = {name for line, _ in rest for name in _NAMES.findall(line)}
        results = [name for line in lines for name in _NAMES.findall(line.partition(" = ")[0]) if name in later]
        if not results:
            return list(lines)
        types = ", ".join(str(self._types[name]) for name in results)
        inside = [_NAMES.sub(lambda m: f"%inner.{m[0][1:]}" if m[0] in results else m[0], line) for line in lines]
        return [f"{self.indent}{', '.join(results)} = train.recompute -> {types} {{", *(self.indent + line for line in inside),
                f"{self.indent * 2}train.yield {', '.join('%inner.' + name[1:] for name in results)} : {types}", f"{self.indent}}}"]

    def one(self, text: str, shape: Sequence[int], dtype: str) -> Value:
        return self.op(text, [Type(tuple(shape), dtype)])[0]

    def once(self, text: str, shape: Sequence[int], dtype: str) -> Value:
        """The same for an operation that has the same result wherever it stands, in no region."""
        if text not in self._made:
            region, self.region = self.region, None
            self._made[text] = self.one(text, shape, dtype)
            self.region = region
        return self._made[text]

    # Leaves.

    def read(self, name: str, type: Type) -> Value:
        return self.once(f"train.read {symbol(name)} : {type}", type.shape, type.dtype)

    def store(self, name: str, type: Type, dtype: str) -> None:
        """Has what is read of f32 stored as another type, from which it is cast."""
        value, stored = self.read(name, type), Value(self.name(), Type(type.shape, dtype))
        at = next(i for i, line in enumerate(self.lines) if line.startswith(f"{self.indent}{value.name} = "))
        self.lines[at:at + 1] = [f"{self.indent}{stored.name} = train.read {symbol(name)} : {stored.type}",
                                 f"{self.indent}{value.name} = nn.cast {stored.name} to {type.dtype} : {stored.type}"]
        self._regions.insert(at, None)
        self._types[stored.name] = stored.type

    def constrain(self, x: Value, dims: Sequence[Sequence[str]]) -> Value:
        """x, sharded so by the axes of each dimension; without any, all of it on every rank."""
        return self.one(f"train.constrain {x.name}{split(dims) or ' split([])'} : {x.type}", x.shape, x.dtype)

    def splat(self, value: float | int | bool, shape: Sequence[int], dtype: str) -> Value:
        """A constant of equal elements. NaN and infinities are written by their bits."""
        type = Type(tuple(shape), dtype)
        if dtype == "i1":
            text = "true" if value else "false"
        elif dtype in FLOATS:
            text = number(float(value)) if math.isfinite(value) else _bits(float(value), dtype)
        else:
            text = str(int(value))
        return self.once(f"nn.constant dense<{text}> : {type}", shape, dtype)

    def constant(self, data: bytes, shape: Sequence[int], dtype: str) -> Value:
        """A constant by its elements in row-major order, little endian; i1 as one byte each."""
        if dtype == "i1":
            return self.cast(self.constant(data, shape, "i8"), "i1")
        return self.once(f"nn.constant {listed(data, Type(tuple(shape), dtype))}", shape, dtype)

    def iota(self, dim: int, shape: Sequence[int], dtype: str) -> Value:
        return self.once(f"nn.iota dim {dim} : {Type(tuple(shape), dtype)}", shape, dtype)

    # Elementwise.

    def unary(self, kind: str, x: Value, attributes: str = "") -> Value:
        return self.one(f"nn.{kind} {x.name}{attributes} : {x.type}", x.shape, x.dtype)

    def binary(self, kind: str, a: Value, b: Value) -> Value:
        return self.one(f"nn.{kind} {a.name}, {b.name} : {a.type}, {b.type}", broadcast_shape(a.shape, b.shape), a.dtype)

    def bitwise(self, kind: str, a: Value, b: Value) -> Value:
        """Of integers of one type: andi, ori, xori, shli, shrsi or shrui."""
        result = Type(broadcast_shape(a.shape, b.shape), a.dtype)
        region = f"{{ ^bb0(%p: {a.dtype}, %q: {a.dtype}): %r = arith.{kind} %p, %q : {a.dtype} nn.yield %r : {a.dtype} }}"
        return self.one(f"nn.map({a.name}, {b.name}) : ({a.type}, {b.type}) -> {result} {region}", result.shape, result.dtype)

    def compare(self, kind: str, a: Value, b: Value) -> Value:
        return self.one(f"nn.compare {kind} {a.name}, {b.name} : {a.type}, {b.type}", broadcast_shape(a.shape, b.shape), "i1")

    def select(self, condition: Value, a: Value, b: Value) -> Value:
        shape = broadcast_shape(condition.shape, a.shape, b.shape)
        return self.one(f"nn.select {condition.name}, {a.name}, {b.name} : {condition.type}, {a.type}, {b.type}", shape, a.dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        return x if x.dtype == dtype else self.one(f"nn.cast {x.name} to {dtype} : {x.type}", x.shape, dtype)

    def kept(self, x: Value) -> Value:
        """x of f32, in which it and what follows from it alone stay under a `precision` of less."""
        return self.one(f"nn.cast {x.name} to f32 : {x.type}", x.shape, "f32")

    def like(self, value: float, x: Value) -> Value:
        """A scalar of x's element type."""
        return self.splat(value, (), x.dtype)

    # Shapes.

    def reshape(self, x: Value, shape: Sequence[int]) -> Value:
        x, shape = self._reshaped.get(x.name, x), tuple(shape)
        if x.shape == shape:
            return x
        result = self.one(f"nn.reshape {x.name} : {x.type} to {Type(shape, x.dtype)}", shape, x.dtype)
        self._reshaped[result.name] = x
        return result

    def broadcast(self, x: Value, shape: Sequence[int]) -> Value:
        shape = tuple(shape)
        if x.shape == shape:
            return x
        return self.one(f"nn.broadcast {x.name} : {x.type} to {Type(shape, x.dtype)}", shape, x.dtype)

    def transpose(self, x: Value, order: Sequence[int]) -> Value:
        x, before = self.moved(x)
        order = tuple(before[i] for i in order)
        if order == tuple(range(x.rank)):
            return x
        result = self.one(f"nn.transpose {x.name} {integers(order)} : {x.type}", [x.shape[i] for i in order], x.dtype)
        self._moved[result.name] = x, order
        return result

    def moved(self, x: Value) -> tuple[Value, tuple[int, ...]]:
        """What x is a transpose of, and by which permutation."""
        return self._moved.get(x.name, (x, tuple(range(x.rank))))

    def slice(self, x: Value, offsets: Sequence[int], sizes: Sequence[int], strides: Sequence[int] | None = None) -> Value:
        if tuple(sizes) == x.shape:
            return x
        steps = f" strides {integers(strides)}" if strides and set(strides) != {1} else ""
        return self.one(f"nn.slice {x.name} offsets {integers(offsets)} sizes {integers(sizes)}{steps} : {x.type}", sizes, x.dtype)

    def slice_dim(self, x: Value, dim: int, begin: int, size: int, stride: int = 1) -> Value:
        offsets, sizes, strides = [0] * x.rank, list(x.shape), [1] * x.rank
        offsets[dim], sizes[dim], strides[dim] = begin, size, stride
        return self.slice(x, offsets, sizes, strides)

    def pad(self, x: Value, low: Sequence[int], high: Sequence[int], interior: Sequence[int] | None = None,
            value: float = 0.0) -> Value:
        interior = interior or [0] * x.rank
        shape = [l + h + n + i * max(n - 1, 0) for l, h, n, i in zip(low, high, x.shape, interior)]
        between = f" interior {integers(interior)}" if any(interior) else ""
        border = number(value).removesuffix(" : f64")  # which is known to be that
        if tuple(shape) == x.shape:
            return x
        if x.dtype == "i1":
            return self.cast(self.pad(self.cast(x, "i8"), low, high, interior, value), "i1")
        return self.one(f"nn.pad {x.name} low {integers(low)} high {integers(high)}{between} value {border} : {x.type}",
                        shape, x.dtype)

    def concat(self, values: Sequence[Value], dim: int) -> Value:
        if len(values) == 1:
            return values[0]
        shape = list(values[0].shape)
        shape[dim] = sum(v.shape[dim] for v in values)
        return self.one(f"nn.concat {', '.join(v.name for v in values)} dim {dim} : {', '.join(str(v.type) for v in values)}",
                        shape, values[0].dtype)

    def gather(self, x: Value, indices: Value, dim: int) -> Value:
        return self.one(f"nn.gather {x.name}, {indices.name} dim {dim} : {x.type}, {indices.type}", indices.shape, x.dtype)

    def scatter_add(self, indices: Value, updates: Value, dim: int, size: int) -> Value:
        shape = list(updates.shape)
        shape[dim] = size
        return self.one(f"nn.scatter_add {indices.name}, {updates.name} dim {dim} : {indices.type}, {updates.type} to "
                        f"{Type(tuple(shape), updates.dtype)}", shape, updates.dtype)

    # Reductions.

    def reduce(self, kind: str, x: Value, dims: Sequence[int], keep: bool = False) -> Value:
        dims = sorted(dims)
        if not dims:
            return x
        shape = [1 if i in dims else n for i, n in enumerate(x.shape) if keep or i not in dims]
        return self.one(f"nn.reduce {kind} {x.name} dims {integers(dims)}{' keep' * keep} : {x.type}", shape, x.dtype)

    def argmax(self, x: Value, dim: int, keep: bool = False) -> Value:
        shape = [1 if i == dim else n for i, n in enumerate(x.shape) if keep or i != dim]
        return self.one(f"nn.argmax {x.name} dim {dim}{' keep' * keep} : {x.type}", shape, "i32")

    def sort(self, x: Value, dim: int, descending: bool = False) -> tuple[Value, Value]:
        """Values in order and their indices, i32; stable, a NaN is the largest."""
        places = Type(x.shape, "i32")
        values, indices, _ = self.op(f"nn.sort {x.name} dim {dim}{' descending' * descending} : {x.type}", [x.type, places, places])
        return values, indices

    def softmax(self, x: Value, dim: int, log: bool = False) -> Value:
        return self.one(f"nn.{'log_' * log}softmax {x.name} dim {dim} : {x.type}", x.shape, x.dtype)

    # Layers.

    def matmul(self, a: Value, b: Value, bias: Value | None = None, transpose_lhs: bool = False,
               transpose_rhs: bool = False) -> Value:
        m = a.shape[-1] if transpose_lhs else a.shape[-2]
        n = b.shape[-2] if transpose_rhs else b.shape[-1]
        added = f" bias {bias.name}" if bias else ""
        flags = " transpose_lhs" * transpose_lhs + " transpose_rhs" * transpose_rhs
        types = ", ".join(str(v.type) for v in (a, b, bias) if v)
        return self.one(f"nn.matmul {a.name}, {b.name}{added}{flags} : {types}", [*a.shape[:-2], m, n], a.dtype)

    def embedding(self, table: Value, ids: Value) -> Value:
        return self.one(f"nn.embedding {table.name}, {ids.name} : {table.type}, {ids.type}", [*ids.shape, table.shape[1]], table.dtype)

    def norm(self, kind: str, x: Value, operands: Sequence[Value], eps: float, words: str = "") -> Value:
        """layer_norm, rms_norm (on the last dimension) or group_norm (with words " groups G")."""
        names, types = (", ".join(f(v) for v in (x, *operands)) for f in (lambda v: v.name, lambda v: str(v.type)))
        return self.one(f"nn.{kind} {names}{words} {{eps = {number(eps)}}} : {types}", x.shape, x.dtype)

    def batch_norm(self, x: Value, operands: Sequence[Value], training: bool, momentum: float, eps: float) -> tuple[Value, ...]:
        """Of weight, bias, running mean and variance: the result and the new running statistics."""
        names, types = (", ".join(f(v) for v in (x, *operands)) for f in (lambda v: v.name, lambda v: str(v.type)))
        attributes = f"{{eps = {number(eps)}, momentum = {number(momentum)}}}"
        return self.op(f"nn.batch_norm {names}{' training' * training} {attributes} : {types}",
                       [x.type, operands[2].type, operands[3].type])

    def attention(self, q: Value, k: Value, v: Value, mask: Value | None, causal: bool, scale: float | None,
                  dropout: float = 0.0, window: int | None = None, segments: Value | None = None) -> Value:
        """q is [B, Tq, H, D], k and v are [B, Tk, Hk, D]; probabilities are dropped out at a rate, a causal query sees `window` keys,
        and any the keys that have its number in `segments`, [B, T]."""
        words = (f" mask {mask.name}" if mask else "") + (f" segments({segments.name} : {segments.type})" if segments else "") + " causal" * causal
        words += f" scale {number(scale)}" if scale is not None else ""
        words += f" window {window}" if window else ""
        words += f" dropout {number(dropout)}" if dropout else ""
        types = ", ".join(str(t.type) for t in (q, k, mask) if t)
        b, t, h, _ = q.shape
        return self.op(f"nn.attention {q.name}, {k.name}, {v.name}{words} : {types}",
                       [q.type, Type((b, h, t), compute_type(q.dtype))])[0]

    def conv2d(self, x: Value, weight: Value, bias: Value | None, strides: Sequence[int], padding: Sequence[int],
               dilations: Sequence[int], groups: int) -> Value:
        """`padding` is low and high of rows, then of columns."""
        spatial = [(x.shape[2 + i] + padding[2 * i] + padding[2 * i + 1] - dilations[i] * (weight.shape[2 + i] - 1) - 1)
                   // strides[i] + 1 for i in range(2)]
        words = (f" bias {bias.name}" if bias else "") + _window(strides, padding, dilations)
        words += f" groups {groups}" if groups != 1 else ""
        types = ", ".join(str(v.type) for v in (x, weight, bias) if v)
        return self.one(f"nn.conv2d {x.name}, {weight.name}{words} : {types}", [x.shape[0], weight.shape[0], *spatial], x.dtype)

    def pool2d(self, kind: str, x: Value, window: Sequence[int], strides: Sequence[int], padding: Sequence[int],
               count_include_pad: bool = True) -> tuple[Value, ...]:
        """max_pool2d: values and where they were; avg_pool2d: values."""
        spatial = [(x.shape[2 + i] + padding[2 * i] + padding[2 * i + 1] - window[i]) // strides[i] + 1 for i in range(2)]
        counted = " {count_include_pad = false}" if kind == "avg_pool2d" and not count_include_pad else ""
        out = Type((*x.shape[:2], *spatial), x.dtype)
        results = [out] if kind == "avg_pool2d" else [out, Type(out.shape, "i32")]
        return self.op(f"nn.{kind} {x.name} window {integers(window)} strides {integers(strides)}{_window((1, 1), padding)}{counted} : {x.type}",
                       results)

    def loss(self, kind: str, x: Value, targets: Value, weights: Value | None = None, attributes: str = "") -> tuple[Value, Value]:
        """cross_entropy, bce_with_logits or mse: the sum of its terms and their count."""
        weighted = f" weights {weights.name}" if weights else ""
        types = ", ".join(str(v.type) for v in (x, targets, weights) if v)
        scalar = Type((), compute_type(x.dtype))
        total, count = self.op(f"nn.{kind} {x.name}, {targets.name}{weighted}{attributes} : {types}", [scalar, scalar])
        return total, count

    def random(self, distribution: str, shape: Sequence[int], dtype: str) -> Value:
        """`uniform`, `normal` or `bernoulli p P`."""
        return self.one(f"nn.random {distribution} : {Type(tuple(shape), dtype)}", shape, dtype)

    def dropout(self, x: Value, rate: float, site: int | None = None) -> Value:
        at = "" if site is None else f" site {site}"
        return self.one(f"nn.dropout {x.name} rate {number(rate)}{at} : {x.type}", x.shape, x.dtype)


def _window(strides: Sequence[int], padding: Sequence[int], dilations: Sequence[int] = (1, 1)) -> str:
    return "".join(f" {word} {integers(v)}" for word, v, default in
                   (("strides", strides, 1), ("padding", padding, 0), ("dilations", dilations, 1)) if set(v) != {default})


def _bits(value: float, dtype: str) -> str:
    """An infinity or NaN as the bits of the type."""
    ones, fraction, width = {"f64": (11, 52, 16), "f32": (8, 23, 8), "bf16": (8, 7, 4), "f16": (5, 10, 4)}[dtype]
    bits = ((1 << ones) - 1) << fraction
    if math.isnan(value):
        bits |= 1 << (fraction - 1)
    elif value < 0:
        bits |= 1 << (ones + fraction)
    return f"0x{bits:0{width}X}"
