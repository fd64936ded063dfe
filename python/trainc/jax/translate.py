"""From a jaxpr to the body of an entry: known values are computed, random keys are followed, all other equations go through rules."""
from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np
from jax.extend import core, source_info_util

from .. import functions
from ..dimensions import progression
from ..emit import FLOATS, Builder, Type, Value, compute_type, free_name
from .keys import Count, Keys, followed
from .ranks import Ranks

DTYPES = {"float64": "f64", "float32": "f32", "bfloat16": "bf16", "float16": "f16", "int64": "i64", "int32": "i32", "int16": "i16",
          "int8": "i8", "bool": "i1"}
UNSIGNED = {"uint8": ("i32", 8), "uint16": ("i32", 16), "uint32": ("i64", 32)}  # what holds them, and their bits
NARROW = ("bf16", "f16")
LARGE = 4096  # bytes of a constant, which is written at every step; a larger one is a buffer
OF_JAX = f" at {os.path.dirname(jax.__file__)}{os.sep}"  # where a function stands, as in "_uniform at /.../jax/_src/random/core.py:511"
_NAMES = re.compile(r"%\w+")
RULES: dict[str, Rule] = {}
FUNCTIONS: dict[str, Callable[..., Any]] = {}


class Unsupported(Exception):
    """Raised by a rule: why an equation cannot be translated, and what is nearest."""


class _Unknown:
    """In place of what could not be translated."""


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class Finding:
    """An equation that cannot be translated, where it stands in the user's program, and why."""

    operation: str
    place: str
    reason: str

    def __str__(self) -> str:
        return f"{self.operation:32} {f'({self.place})' if self.place else ''}\n    {self.reason}"


@dataclass(frozen=True)
class Rule:
    """A function (translator, *operands, **parameters of the primitive) -> results, and the parameters that it knows."""

    function: Callable[..., Any]
    known: frozenset[str] | None  # all of them
    takes: tuple[bool, ...]  # which operands it takes as Values
    rest: bool  # whether that holds for all further ones
    wide: bool


def rule(*primitives: str, wide: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function for primitives, by their names. Parameters are keyword-only; one that it has not is a refusal, unless it is None.
    What it takes as `Value` is made one. `wide` is what rounds more than once on its way to a result of bf16 or f16: there its operands
    are cast to f32 and its results back."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(function).parameters.values())[1:]
        operands = [p for p in parameters if p.kind not in (p.KEYWORD_ONLY, p.VAR_KEYWORD)]
        rest = bool(operands) and operands[-1].kind is inspect.Parameter.VAR_POSITIONAL
        takes = tuple(p.annotation == "Value" for p in operands)
        known = None if parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else frozenset(p.name for p in parameters if p.kind is p.KEYWORD_ONLY)
        made = Rule(function, known, takes, rest, wide)
        for primitive in primitives:
            if primitive in RULES:
                raise ValueError(f"{primitive} has two rules")
            RULES[primitive] = made
        return function

    return register


def named(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function (translator, jaxpr, *operands) for functions of JAX that are jitted under a name. It returns None for a body that it
    does not know, as that of a derivative, which has the name, too."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        FUNCTIONS.update(dict.fromkeys(names, function))
        return function

    return register


def dtype_of(dtype: Any) -> str:
    """Its element type; numbers without a sign are held in a wider type."""
    name = str(dtype)
    if name not in DTYPES and name not in UNSIGNED:
        raise Unsupported(f"no element type for {name}: expected one of {', '.join(DTYPES)}, or uint8 of an input")
    return DTYPES.get(name) or UNSIGNED[name][0]


def stored_type(dtype: Any) -> str:
    """The element type of a tensor in memory."""
    if str(dtype) in UNSIGNED:
        raise Unsupported(f"{dtype}: expected uint8 of an input, or integers with a sign")
    return dtype_of(dtype)


def type_of(aval: Any) -> Type:
    if not all(isinstance(n, int | np.integer) for n in aval.shape):
        raise Unsupported(f"a result whose shape depends on data: {aval.shape}")
    return Type(tuple(map(int, aval.shape)), dtype_of(aval.dtype))


def primitives_of(jaxpr: core.Jaxpr) -> Iterator[str]:
    """The names of all primitives, those of inner functions among them."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for inner in core.jaxprs_in_params(equation.params):
            yield from primitives_of(inner)


def is_of_jax(jaxpr: core.Jaxpr) -> bool:
    """Whether this is a function that JAX defines, and not one of the same name."""
    return OF_JAX in (jaxpr.debug_info.func_src_info or "")


def is_known(x: Any) -> bool:
    return not isinstance(x, Value | Keys | Count | _Unknown)


@dataclass
class Translator:
    """Walks the jaxpr of one entry. Values that are known are arrays, keys `Keys`, all others Values."""

    builder: Builder
    constants: dict[str, np.ndarray]  # buffers made of large constants, shared by all entries
    taken: Collection[str] = ()  # names that these have not
    trains: bool = True  # has gradients
    ranks: Ranks = field(default_factory=Ranks)
    read: dict[str, Type] = field(default_factory=dict)  # tensors of the module that the body reads
    findings: list[Finding] = field(default_factory=list)
    log: list[tuple[str, str]] = field(default_factory=list)
    drawn: dict[Any, str] = field(default_factory=dict)  # keys that were drawn from, and where
    linear: dict[int, core.JaxprEqn] = field(default_factory=dict)  # of custom_vjp that are known to be so in the gradient; by id, so they are held
    equation: core.JaxprEqn | None = None
    wide: bool = False
    _regions: int = 0
    _carried: dict[str, frozenset[str]] = field(default_factory=dict)
    _seen: int = 0  # lines of the body in it
    _alike: dict[str, str] = field(default_factory=dict)  # names of values, and of the first that is alike
    _first: dict[str, str] = field(default_factory=dict)  # operations, and the first value of each
    _named: int = 0  # lines of the body in them

    # What rules use.

    @property
    def b(self) -> Builder:
        return self.builder

    @property
    def out(self) -> Type:
        """The type of the first result of the equation that is being translated."""
        type = type_of(self.equation.outvars[0].aval)
        return Type(type.shape, compute_type(type.dtype)) if self.wide else type

    def carried(self, x: Value) -> frozenset[str]:
        """The tensors of the module from which a path of differentiable operations leads to x, as symbols."""
        for line in self.b.lines[self._seen:]:
            results, equals, text = line.partition(" = ")
            if not equals:
                continue
            if text.startswith("train.read "):
                found = frozenset([text.removeprefix("train.read ").partition(" loc(")[0].rpartition(" : ")[0]])
            elif text.startswith("nn.stop_gradient "):
                found = frozenset()
            else:
                found = frozenset().union(*(self._carried.get(name, ()) for name in _NAMES.findall(text)))
            for name in _NAMES.findall(results):
                self._carried[name] = found if self.b.type_of(name).dtype in FLOATS else frozenset()
        self._seen = len(self.b.lines)
        return self._carried.get(x.name, frozenset())

    def alike(self, x: Value) -> str:
        """One name for all values that the same operations on the same values have made; draws are never alike."""
        for line in self.b.lines[self._named:]:
            results, equals, text = line.partition(" = ")
            if equals and not text.startswith("nn.random ") and "," not in results:
                made = _NAMES.sub(lambda m: self._alike.get(m[0], m[0]), text.partition(" loc(")[0])
                self._alike[results.strip()] = self._first.setdefault(made, results.strip())
        self._named = len(self.b.lines)
        return self._alike.get(x.name, x.name)

    def place(self) -> str:
        """Where the equation that is being translated stands in the user's program."""
        return source_info_util.summarize(self.equation.source_info)

    def next_region(self) -> int:
        self._regions += 1
        return self._regions

    def value(self, x: Any, dtype: str | None = None) -> Value:
        """A Value of a Value or a known array; cast to `dtype` if it is given."""
        if isinstance(x, Value):
            return self.b.cast(x, dtype) if dtype else x
        if isinstance(x, Keys | Count):
            raise Unsupported("a random key, or a count of draws, in arithmetic: a step's own seed takes the place of keys")
        x = np.asarray(x)
        return self.value(self._constant(x.astype(np.int64 if x.dtype == np.uint32 else np.int32) if str(x.dtype) in UNSIGNED else x), dtype)

    def _constant(self, x: np.ndarray) -> Value:
        type = type_of(x)
        if x.size == 0:
            raise Unsupported("an array without elements")
        first = x.reshape(-1)[0]
        if x.size == 1 or bool((x == first).all()):
            return self.b.splat(first.item(), type.shape, type.dtype)
        repeated = [d for d, n in enumerate(x.shape) if n > 1 and bool((x == x.take([0], d)).all())]
        if repeated:
            return self.b.broadcast(self._constant(x[tuple(slice(0, 1) if d in repeated else slice(None) for d in range(x.ndim))]), type.shape)
        if (regular := self._range(x, type)) is not None:
            return regular
        data = np.ascontiguousarray(x.astype(np.int8) if x.dtype == bool else x)
        if data.nbytes <= LARGE:
            return self.b.constant(data.tobytes(), type.shape, type.dtype)
        for name, other in self.constants.items():
            if other.dtype == data.dtype and other.shape == data.shape and other.tobytes() == data.tobytes():
                break
        else:
            name = free_name(f"constant.{len(self.constants)}", self.taken)
            self.constants[name] = data
        self.read[name] = type_of(data)
        return self.b.cast(self.b.read(name, self.read[name]), type.dtype)

    def _range(self, x: np.ndarray, type: Type) -> Value | None:
        """Integers a + b i along the one dimension that has several."""
        moving = [d for d, n in enumerate(x.shape) if n > 1]
        if x.dtype.kind != "i" or len(moving) != 1:
            return None
        line = x.reshape(-1).astype(object)
        begin, step = line[0], line[1] - line[0]
        if any(n != begin + i * step for i, n in enumerate(line)):
            return None
        return progression(self.b, begin, step, moving[0], type.shape, type.dtype)

    # The walk.

    def run(self, jaxpr: core.Jaxpr, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr of these arguments."""
        env: dict[core.Var, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *arguments)))

        def of(atom: Any) -> Any:
            return np.asarray(atom.val, atom.aval.dtype) if isinstance(atom, core.Literal) else env[atom]

        for equation in jaxpr.eqns:
            results = self._equation(equation, [of(atom) for atom in equation.invars])
            env.update(zip(equation.outvars, results))
        return [of(atom) for atom in jaxpr.outvars]

    def inline(self, closed: core.ClosedJaxpr | core.Jaxpr, arguments: Sequence[Any]) -> list[Any]:
        if isinstance(closed, core.Jaxpr):
            return self.run(closed, (), arguments)
        return self.run(closed.jaxpr, closed.consts, arguments)

    def _equation(self, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        if any(x is UNKNOWN for x in operands):
            return [UNKNOWN] * len(equation.outvars)
        outer, self.equation = self.equation, equation
        name = equation.primitive.name
        try:
            if name not in STRUCTURES and equation.effects:
                raise Unsupported("an effect" + HINTS.get(name, ": a step changes its own state alone"))
            if name not in CALLS and all(map(is_known, operands)):
                return evaluated(equation, operands)
            self.b.location = self._location()
            if name in STRUCTURES:
                return STRUCTURES[name](self, equation, operands)
            if (moved := followed(equation, operands, self.alike)) is not None:
                return moved
            if all(0 in var.aval.shape for var in equation.outvars):
                return [np.zeros(var.aval.shape, var.aval.dtype) for var in equation.outvars]
            return self._translated(equation, operands)
        except Exception as error:  # of JAX's functions on what is known, too
            said = str(error) if isinstance(error, Unsupported | ValueError) else f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            self.findings.append(Finding(name, self.place(), said))
            return [UNKNOWN] * len(equation.outvars)
        finally:
            self.equation = outer

    def _location(self) -> tuple[str, int] | None:
        """The user's file and line."""
        place = self.place().split(" ")[0].split(":")
        return (place[0].rsplit("/", 1)[-1], int(place[1])) if len(place) > 1 and place[1].isdigit() else self.b.location

    def _translated(self, equation: core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        name = equation.primitive.name
        found = RULES.get(name)
        if not found:
            raise Unsupported("no rule" + HINTS.get(name, ""))
        parameters = {k: v for k, v in equation.params.items() if found.known is None or k in found.known}
        if unknown := [k for k, v in equation.params.items() if k not in parameters and v is not None and k not in IGNORED]:
            raise Unsupported(f"a parameter of jax {jax.__version__} that has no meaning here: {', '.join(unknown)}")
        before = len(self.b.lines)
        takes = [*found.takes, *[found.takes[-1]] * len(operands)] if found.rest else found.takes
        given = [self.value(x) if takes[i] and not isinstance(x, Value) else x for i, x in enumerate(operands)]
        if found.wide and type_of(equation.outvars[0].aval).dtype in NARROW:
            self.wide = True
            try:
                result = found.function(self, *(self.value(x, compute_type(x.dtype)) if isinstance(x, Value) else x for x in given), **parameters)
            finally:
                self.wide = False
        else:
            result = found.function(self, *given, **parameters)
        results = list(result) if isinstance(result, tuple | list) else [result]
        self.log.append((name, "; ".join(line.strip().split(" loc(")[0] for line in self.b.lines[before:])))
        return [self._checked(x, var) for x, var in zip(results, equation.outvars)]

    def _checked(self, x: Any, var: Any) -> Any:
        """A result in the type that the equation has."""
        if not isinstance(x, Value):
            return x
        x = self.b.cast(x, dtype_of(var.aval.dtype))
        if str(var.aval.dtype) in UNSIGNED and self.equation.primitive.name not in WITHIN:
            count = self.b.like(1 << UNSIGNED[str(var.aval.dtype)][1], x)
            x = functions.remainder(self.b, x, count)
        assert x.shape == tuple(var.aval.shape), f"{self.equation.primitive}: {x.type} in place of {var.aval}"
        return x


def evaluated(equation: core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What the equation alone gives of its operands, to JAX."""
    made = equation.primitive.get_bind_params(equation.params)
    functions, parameters = made if isinstance(made, tuple) else ((), made)
    results = equation.primitive.bind(*functions, *operands, **parameters)
    return list(results) if equation.primitive.multiple_results else [results]


IGNORED = {"sharding", "out_sharding", "accuracy", "precision", "weak_type", "indices_are_sorted"}
HINTS = {"debug_callback": ": nothing is printed or called from a step", "debug_print": ": nothing is printed from a step",
         "pure_callback": ": a step does not call Python",
         "random_bits": ": raw bits of a key; expected uniform, normal, bernoulli, categorical, randint, permutation of jax.random"}
WITHIN = {"reshape", "broadcast_in_dim", "transpose", "slice", "squeeze", "concatenate", "stack", "unstack", "split", "expand_dims", "gather", "rev",
          "copy", "select_n", "max", "min", "clamp", "reduce_max", "reduce_min", "dynamic_slice", "dynamic_update_slice", "pad", "iota", "sort",
          "scatter", "rem", "tile", "and", "or", "xor", "cummax", "cummin"}  # their results are from the range of their operands
CALLS = {"jit", "pjit", "closed_call", "core_call", "remat2", "checkpoint", "custom_jvp_call", "custom_vjp_call",
         "sharding_constraint", "reshard"}  # known or not, they are walked
STRUCTURES: dict[str, Callable[[Translator, core.JaxprEqn, list[Any]], Sequence[Any]]] = {}


def structure(*primitives: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function (translator, equation, operands) -> results for primitives that hold jaxprs."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        STRUCTURES.update(dict.fromkeys(primitives, function))
        return function

    return register
