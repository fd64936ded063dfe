"""From a graph of ATen operations to the body of an entry: known values are computed, all others go through rules."""
from __future__ import annotations

import contextlib
import functools
import inspect
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.export.graph_signature import InputKind, OutputKind
from torch.fx.node import map_aggregate

from ..dimensions import progression
from ..emit import Builder, Type, Value, compute_type, free_name
from ..functions import from_uint8
from .capture import PREFIX, Origin, origin_of
from .frozen import Int8, is_cast, weight_of
from .graphs import is_assertion, is_random
from .parallel import Ranks

DTYPES = {torch.float64: "f64", torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int64: "i64",
          torch.int32: "i32", torch.int16: "i16", torch.int8: "i8", torch.bool: "i1"}
TORCH_DTYPES = {name: dtype for dtype, name in DTYPES.items()}
NARROW = ("bf16", "f16")
UNKNOWN = object()  # in place of what could not be translated and has no type
RULES: dict[Any, Callable[..., Any]] = {}


class Unsupported(Exception):
    """Raised by a rule: why an operation cannot be translated, and what is nearest."""


@dataclass(frozen=True)
class Finding:
    """An operation that cannot be translated, where it stands in the user's program, and why."""

    operation: str
    module: str
    file: str
    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        where = [f"module '{self.module}'"] * bool(self.module) + [f"{os.path.basename(self.file)}:{self.line}"] * bool(self.file)
        place = f"({', '.join(where)})" if where else ""
        return f"{self.operation:32} {place}     {self.text}\n    {self.reason}"


def rule(*operations: Any, wide: bool | str = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function (translator, *arguments of the operation) -> results for operations; one of another library by its name.

    Where it takes a `Value`, a known tensor is made one. `wide` is what rounds more than once on its way to a result of bf16 or f16: there
    its operands are cast to f32 and its results back. "numbers" is wide only with an operand that the narrow type would round, "alpha" with
    an `alpha`.
    """

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        values = {i for i, p in enumerate(parameters) if p.annotation == "Value"}

        def translate(t: Translator, *args: Any, **kwargs: Any) -> Any:
            given = (t.value(a) if i in values and not isinstance(a, Value) else a for i, a in enumerate(args))
            return function(t, *given, **kwargs)

        @functools.wraps(function)
        def widened(t: Translator, *args: Any, **kwargs: Any) -> Any:
            dtype = t.out.dtype
            if dtype not in NARROW or (wide == "alpha" and (*args[2:], *kwargs.values()) in ((), (1,))) or (
                    wide == "numbers" and not any(_rounded(x, dtype) for x in args)):
                return translate(t, *args, **kwargs)
            t.wide = True
            try:
                result = translate(t, *map_aggregate(args, t.in_f32), **map_aggregate(kwargs, t.in_f32))
            finally:
                t.wide = False
            return map_aggregate(result, lambda x: t.b.cast(x, dtype) if isinstance(x, Value) else x)

        for operation in operations:
            if operation in RULES:
                raise ValueError(f"{operation} has two rules")
            RULES[operation] = widened if wide else translate
        return function

    return register


def _rounded(x: Any, dtype: str) -> bool:
    """Whether an operand has digits that an operation in `dtype` would not see: a number, or a scalar tensor of a wider type."""
    if isinstance(x, bool | int | float):
        return torch.tensor(x, dtype=TORCH_DTYPES[dtype]).item() != x
    return (DTYPES.get(x.dtype) if isinstance(x, torch.Tensor) else x.dtype) in ("f64", "f32")


def unrepeated(x: torch.Tensor) -> torch.Tensor:
    """A tensor without what expand() has repeated."""
    return x[tuple(slice(0, 1) if s == 0 and n > 1 else slice(None) for s, n in zip(x.stride(), x.shape))]


def type_of(tensor: torch.Tensor) -> Type:
    if tensor.dtype not in DTYPES:
        raise Unsupported(f"no element type for {tensor.dtype}: expected one of {', '.join(map(str, DTYPES))}, or uint8 of an input")
    if not all(isinstance(n, int) for n in tensor.shape):
        raise Unsupported(f"a result whose shape depends on data: {tuple(tensor.shape)}")
    return Type(tuple(tensor.shape), DTYPES[tensor.dtype])


@dataclass(frozen=True)
class Bytes(Value):
    """What an entry gives of uint8: i8 that holds the bits."""


@dataclass
class Translator:
    """Walks the graph of one entry. Known values are torch tensors, the others are Values."""

    builder: Builder
    canonical: dict[str, str]  # of each parameter and buffer the name that the module has
    constants: dict[str, torch.Tensor]  # buffers made of large constants, shared by all entries
    trained: bool = True  # else an eval: nothing is computed again, and nn.dropout is the identity
    int8: Mapping[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)  # what frozen weights become that are stored so
    folded: dict[str, torch.Tensor] = field(default_factory=dict)  # buffers whose values are compiled in
    ranks: Ranks = field(default_factory=Ranks)
    inputs: dict[str, Type] = field(default_factory=dict)
    unsigned: set[str] = field(default_factory=set)  # inputs of uint8, whose bits are i8
    read: dict[str, Type] = field(default_factory=dict)  # parameters and buffers that the body reads, by name
    findings: list[Finding] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)  # operations and what became of them
    node: torch.fx.Node | None = None
    env: dict[torch.fx.Node, Any] = field(default_factory=dict)  # what nodes have become
    parameters: dict[torch.fx.Node, str] = field(default_factory=dict)  # the names of placeholders
    wide: bool = False  # whether bf16 and f16 are f32 in the rule that runs
    _widenings: int = 0

    # What rules use.

    @property
    def b(self) -> Builder:
        return self.builder

    @property
    def out(self) -> Type:
        """The type of the result of the operation that is being translated."""
        meta = self.node.meta["val"]
        meta = meta[0] if isinstance(meta, tuple | list) else meta
        type = type_of(meta.int() if meta.dtype == torch.uint8 else meta)
        return Type(type.shape, compute_type(type.dtype)) if self.wide else type

    def in_f32(self, x: Any) -> Any:
        """An argument of an operation, f32 where it is a tensor of bf16 or f16."""
        if isinstance(x, Value):
            return self.b.cast(x, compute_type(x.dtype))
        return x.float() if isinstance(x, torch.Tensor) and DTYPES.get(x.dtype) in NARROW else x

    def value(self, x: Any, dtype: str | None = None) -> Value:
        """A Value of a Value, a known tensor or a number; cast to `dtype` if it is given."""
        if isinstance(x, torch.Tensor):
            if dtype:
                x = x.to(TORCH_DTYPES[dtype])
            return self._constant(x)
        if isinstance(x, Value):
            return self.b.cast(x, dtype) if dtype else x
        if isinstance(x, Int8):
            return self.value(self._dequantized(x), dtype)
        if isinstance(x, bool | int | float):
            return self.b.splat(x, (), dtype or ("i1" if isinstance(x, bool) else "i64" if isinstance(x, int) else "f32"))
        raise Unsupported(f"expected a tensor or a number, got {x!r}")

    def _dequantized(self, x: Int8) -> Value:
        values, scale = (self.b.read(name, self.read[name]) for name in (x.values, x.scale))
        weight = self.b.binary("mul", self.b.cast(values, x.type.dtype), self.b.reshape(scale, [x.type.shape[0], 1]))
        return functools.reduce(self.b.cast, x.casts, weight)

    @contextlib.contextmanager
    def with_weight(self, x: Any) -> Iterator[Value]:
        """The Value of a weight; one of 8 bits is widened again for the gradients of what is done within."""
        if not isinstance(x, Int8) or not self.trained or self.b.region is not None:
            yield self.value(x)
            return
        self._widenings += 1
        self.b.region = -self._widenings
        try:
            yield self._dequantized(x)
        finally:
            self.b.region = None

    def _constant(self, x: torch.Tensor) -> Value:
        type = type_of(x)
        # What expand() has repeated is repeated by the compiler.
        compact = unrepeated(x)
        if compact.shape != x.shape:
            return self.b.broadcast(self._constant(compact.contiguous()), type.shape)
        flat = x.reshape(-1)
        if flat.numel() == 0:
            raise Unsupported("a tensor without elements")
        if flat.numel() == 1 or bool(((flat == flat[0]) & (flat.signbit() == flat[0].signbit())).all()):  # -0.0 == 0.0
            return self.b.splat(flat[0].item(), type.shape, type.dtype)
        if (regular := self._triangle(x) if type.dtype == "i1" else self._range(x)) is not None:
            return regular
        if x.numel() * x.element_size() > 4096:  # a constant is written at every step, a buffer is there
            return self._large(x, type)
        return self.b.constant(bytes_of(x), type.shape, type.dtype)

    def _large(self, x: torch.Tensor, type: Type) -> Value:
        """A buffer that holds a constant; masks as bytes."""
        stored = x.to(torch.int8) if type.dtype == "i1" else x
        for name, other in self.constants.items():
            if other.dtype == stored.dtype and other.shape == stored.shape and bytes_of(other) == bytes_of(stored):
                break
        else:
            name = free_name(f"constant.{len(self.constants)}", {*self.canonical, *self.constants})
            self.constants[name] = stored.contiguous()
        self.read[name] = type_of(stored)
        return self.b.cast(self.b.read(name, self.read[name]), type.dtype)

    def _range(self, x: torch.Tensor) -> Value | None:
        """Integers a + b i along one dimension."""
        if x.dtype.is_floating_point:
            return None
        moving = [d for d, n in enumerate(x.shape) if n > 1 and bool((x.select(d, 0) != x.select(d, 1)).any())]
        if len(moving) != 1:
            return None
        d = moving[0]
        line = x[tuple(slice(None) if i == d else 0 for i in range(x.dim()))]
        begin, step = int(line[0]), int(line[1]) - int(line[0])
        end = begin + step * len(line)
        expected = torch.arange(begin, end, step) if step and abs(end) < 1 << 63 else None
        shape = [-1 if i == d else 1 for i in range(x.dim())]
        if expected is None or not torch.equal(expected.to(x.dtype).reshape(shape).expand(x.shape), x):
            return None
        return progression(self.b, begin, step, d, x.shape, DTYPES[x.dtype])

    def _triangle(self, x: torch.Tensor) -> Value | None:
        """A mask that is true where column - row is at most, or at least, a number."""
        if x.dim() < 2 or any(n != 1 for n in x.shape[:-2]):
            return None
        rows, columns = x.shape[-2:]
        difference = torch.arange(columns) - torch.arange(rows).unsqueeze(1)
        flat, is_true = x.reshape(rows, columns), difference[x.reshape(rows, columns)]
        for kind, bound, made in (("le", int(is_true.max()), difference <= is_true.max()),
                                  ("ge", int(is_true.min()), difference >= is_true.min())):
            if torch.equal(made, flat):
                column, row = self.b.iota(1, (rows, columns), "i32"), self.b.iota(0, (rows, columns), "i32")
                difference = self.b.binary("sub", column, row)
                return self.b.reshape(self.b.compare(kind, difference, self.b.splat(bound, (), "i32")), x.shape)
        return None

    def pair(self, a: Any, b: Any, dtype: str | None = None) -> tuple[Value, Value]:
        """Two operands in one type: `dtype`, or that of the result."""
        dtype = dtype or self.out.dtype
        return self.value(a, dtype), self.value(b, dtype)

    def promoted(self, a: Any, b: Any) -> str:
        """The type in which PyTorch computes with two operands."""
        def stand_in(x: Any) -> Any:
            if isinstance(x, Value):
                return torch.empty((1,) * x.rank, dtype=TORCH_DTYPES[x.dtype])
            return x
        return DTYPES[torch.result_type(stand_in(a), stand_in(b))]

    # The walk.

    def run(self, program: torch.export.ExportedProgram, names: Mapping[str, str], known: Callable[[str], bool]) -> list[Any]:
        """Translates the graph; its outputs. `names` are the user's, of placeholders of the batch; `known` says whether
        the buffer or constant of that name may be computed with."""
        self.env = env = {}
        specs = {spec.arg.name: spec for spec in program.graph_signature.input_specs}
        for node in program.graph.nodes:
            self.node = node
            if node.op == "placeholder":
                try:
                    env[node] = self._placeholder(program, node, specs[node.name], names, known)
                except Unsupported as error:
                    env[node] = UNKNOWN
                    self.findings.append(Finding(f"input {names.get(node.name, node.name)}", "", "", 0, "", str(error)))
            elif node.op == "call_function":
                env[node] = self._call(node, env)
            elif node.op == "output":
                return [self._result(x) if isinstance(x, torch.fx.Node) else x for x in node.args[0]]
            elif node.op == "get_attr":
                env[node] = getattr(program.graph_module, node.target)
        raise AssertionError("a graph without outputs")

    def _placeholder(self, program, node, spec, names, known) -> Any:
        if spec.kind == InputKind.TOKEN:  # of the order of checks
            return None
        if spec.kind == InputKind.USER_INPUT:
            meta = node.meta.get("val")
            if not isinstance(meta, torch.Tensor):
                return meta
            if not node.users:
                return None
            name = names[node.name]
            if meta.dtype == torch.uint8:
                self.unsigned.add(name)
                self.inputs[name] = type_of(meta.view(torch.int8))
                return from_uint8(self.b, Value(f"%{name}", self.inputs[name]))
            self.inputs[name] = type_of(meta)
            return Value(f"%{name}", self.inputs[name])
        name = spec.target.removeprefix(PREFIX)
        name = self.canonical.get(name, name)
        if spec.kind == InputKind.CONSTANT_TENSOR or (spec.kind == InputKind.BUFFER and known(name)):
            source = program.constants if spec.target in program.constants else program.state_dict
            if spec.kind == InputKind.BUFFER and node.users:
                self.folded[name] = source[spec.target].detach().clone()
            return source[spec.target].detach()
        if spec.kind not in (InputKind.PARAMETER, InputKind.BUFFER):
            raise Unsupported(f"an input of kind {spec.kind.name}")
        if not node.users:
            return None
        self.parameters[node] = name
        type = type_of(node.meta["val"])
        if name in self.int8:
            stored = Int8(f"{name}.int8", f"{name}.scale", type)
            for key, tensor in zip((stored.values, stored.scale), self.int8[name]):
                self.read[key] = type_of(tensor)
            return stored
        self.read[name] = type
        return self.b.read(name, type)

    def _result(self, node: torch.fx.Node) -> Any:
        """What an output has become."""
        result = self.env.get(node, node)
        if getattr(node.meta.get("val"), "dtype", None) != torch.uint8 or not isinstance(result, Value | torch.Tensor):
            return result
        self.b.location = self.b.region = None
        bits = self.b.cast(result, "i8") if isinstance(result, Value) else self.value(result.view(torch.int8))
        return Bytes(bits.name, bits.type)

    def _call(self, node: torch.fx.Node, env: dict[torch.fx.Node, Any]) -> Any:
        if is_assertion(node):
            return None
        args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: env[n])
        if _any((args, kwargs), lambda x: x is UNKNOWN):
            return UNKNOWN
        if node.target is operator.getitem:
            return None if args[0] is None else args[0][args[1]]
        origin = origin_of(node)
        try:
            if not _any((args, kwargs), lambda x: isinstance(x, Value | Int8)) and not is_random(node):
                with torch.no_grad():
                    result = node.target(*args, **kwargs)
                return result.zero_() if str(node.target).startswith(("aten.empty", "aten.new_empty")) else result  # what has no defined values
            return self._translated(node, origin, args, kwargs)
        except Exception as e:  # of PyTorch's functions on what is known, too
            said = str(e) if isinstance(e, Unsupported | ValueError) else f"{type(e).__name__}: {str(e).partition(chr(10))[0]}"
            module = (list((node.meta.get("nn_module_stack") or {}).values()) or [("", "")])[-1][0]
            self.findings.append(Finding(str(node.target), module.removeprefix(PREFIX), origin.file, origin.line, origin.text, said))
            return self._stand_in(node.meta.get("val"))

    def _translated(self, node: torch.fx.Node, origin: Origin, args: Any, kwargs: Any) -> Any:
        self.b.location = (os.path.basename(origin.file), origin.line) if origin.file else None
        self.b.region = origin.checkpoint if self.trained else None
        meta = node.meta.get("val")
        if isinstance(meta, torch.Tensor) and any(isinstance(n, int) and n == 0 for n in meta.shape):  # its values are known
            return torch.empty(meta.shape, dtype=meta.dtype)
        if isinstance(args[0] if args else None, Int8) and is_cast(node):
            return replace(args[0], casts=(*args[0].casts, DTYPES[meta.dtype]))
        translate = RULES.get(node.target) or RULES.get(str(node.target))
        if not translate:
            raise Unsupported("no rule" + HINTS.get(str(node.target).removeprefix("aten.").split(".")[0], ""))
        if getattr(meta, "dtype", None) == torch.uint8 and node.target not in MOVES | CONVERSIONS:
            raise Unsupported("uint8, which wraps at 256: convert first, x.float() or x.int()")
        before = len(self.b.lines)
        result = translate(self, *args, **kwargs)
        if self.parameters.get(weight_of(node)) in self.ranks.gathered:
            result = self.b.constrain(result, self.ranks.whole_output(result.shape))
        self.log.append((str(node.target), "; ".join(l.strip().split(" loc(")[0] for l in self.b.lines[before:])))
        return result

    def _stand_in(self, meta: Any) -> Any:
        """Values in place of what could not be translated, so that all that cannot be is found."""
        if isinstance(meta, torch.Tensor):
            try:
                return Value("%unsupported", type_of(meta))
            except Unsupported:
                return UNKNOWN
        return tuple(map(self._stand_in, meta)) if isinstance(meta, tuple | list) else UNKNOWN


_A = torch.ops.aten
# What has no arithmetic: uint8 is i32 in it.
MOVES = {_A.view.default, _A.reshape.default, _A.permute.default, _A.transpose.int, _A.t.default, _A.unsqueeze.default, _A.squeeze.dim,
         _A.expand.default, _A.slice.Tensor, _A.select.int, _A.flatten.using_ints, _A.unflatten.int, _A.clone.default, _A.contiguous.default,
         _A.movedim.int, _A.detach.default, _A.cat.default, _A.stack.default, _A.gather.default, _A.index_select.default}
# What takes numbers modulo 256 to it.
CONVERSIONS = {_A.to.dtype, _A.to.dtype_layout, _A.to.device, _A._to_copy.default, _A.type_as.default}
# Of operations without a rule what is nearest.
_SPECTRUM = ": compute it outside of the step and pass it as an input; for a spectral norm torch.nn.utils.parametrizations.spectral_norm"
_FOURIER = ": no complex numbers; multiply by a matrix of cosines and by one of sines, which are buffers"
_COMPLEX = ": keep the real and the imaginary part as two tensors"
_QUANTIZED = ": no quantized tensors; use x + (s * (x / s).round().clamp(low, high) - x).detach()"
HINTS = {
    "bincount": ": use torch.nn.functional.one_hot(x, n).sum(0)",
    "histogram": ": use torch.nn.functional.one_hot(torch.bucketize(x, edges), n).sum(0)",
    **dict.fromkeys(("_unique2", "unique_dim", "unique_consecutive"), ": use torch.nn.functional.one_hot(x, n).amax(0), which are of n values"),
    **dict.fromkeys(("_fft_r2c", "_fft_c2c", "_fft_c2r"), _FOURIER),
    **dict.fromkeys(("complex", "polar", "view_as_complex", "view_as_real"), _COMPLEX),
    **dict.fromkeys(("_linalg_eigh", "linalg_eig", "_linalg_eigvals", "_linalg_svd"), _SPECTRUM),
    "linalg_qr": ": of a matrix of full rank R is torch.linalg.cholesky(x.mT @ x).mT and Q is x @ torch.linalg.inv(R), but for signs",
    "linalg_lu": ": use torch.linalg.solve, inv, det or cholesky",
    "linalg_matrix_exp": ": use the Taylor series of x / 2**n, squared n times",
    "embedding_renorm": ": leave max_norm out and read of w * (max_norm / w.norm(dim=1, keepdim=True).clamp(min=max_norm))",
    **dict.fromkeys(("quantize_per_tensor", "quantize_per_channel", "dequantize", "fake_quantize_per_tensor_affine_cachemask",
                     "fake_quantize_per_channel_affine_cachemask"), _QUANTIZED)}


def _any(arguments: Any, holds: Callable[[Any], bool]) -> bool:
    if isinstance(arguments, dict):
        return any(_any(x, holds) for x in arguments.values())
    return any(_any(x, holds) for x in arguments) if isinstance(arguments, tuple | list) else holds(arguments)


def bytes_of(x: torch.Tensor) -> bytes:
    """The elements in row-major order, little endian."""
    return bytes(x.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def mutations(program: torch.export.ExportedProgram) -> list[str | None]:
    """Per output: the buffer or parameter that it replaces, "" for an input that is changed in place and a token, None for results."""
    def replaced(spec: Any) -> str | None:
        if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            return spec.target.removeprefix(PREFIX)
        return "" if spec.kind in (OutputKind.USER_INPUT_MUTATION, OutputKind.TOKEN) else None

    return [replaced(spec) for spec in program.graph_signature.output_specs]
