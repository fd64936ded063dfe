"""`export`: a loss function of pytrees, with its parameters and optimizer, as the text and weights of a module."""
from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..emit import FLOATS, Builder, Type, Value, listed, quoted, symbol
from ..errors import InvalidArgumentError, UnsupportedError, warn
from ..exported import Exported as Base
from ..exported import clauses_of, labelled, listed_entries, mesh_lines, refuse_other, warn_of_version
from ..functions import from_uint8
from ..step import Step
from . import matrices, rules, structures  # noqa: F401, registers them
from .capture import Batch, Traced, Tree, abstract, is_float, trace, with_results
from .keys import Count, Keys, is_key, keys_of
from .optim import Optimizer, groups_of
from .ranks import Ranks
from .translate import Translator, Unsupported, dtype_of, stored_type

TESTED = (0, 10), (0, 10)  # the oldest and the newest version of jax


@dataclass(repr=False)
class Exported(Base):
    """A module as text, with the initial values of its tensors.

    inputs: of each entry, name -> type. frozen: parameters that the loss reads without a gradient. unused: those that it does not read; they
    are not in the module.
    """

    inputs: dict[str, dict[str, Type]] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    unsigned: dict[str, set[str]] = field(default_factory=dict)
    parameters: Tree | None = None
    states: Tree | None = None
    frozen: list[str] = field(default_factory=list)
    unused: list[str] = field(default_factory=list)
    narrows: bool = False  # without jax_enable_x64
    log: list[tuple[str, str]] = field(default_factory=list)

    def __repr__(self) -> str:
        return (f"<trainc.jax.Exported: {len(self.weights)} tensors, {len(self.frozen)} parameters frozen, {len(self.unused)} unused; "
                f"{listed_entries(self.inputs)}>")

    def _read(self, weight: np.ndarray) -> tuple[str, Sequence[int], memoryview]:
        return dtype_of(weight.dtype), weight.shape, np.ascontiguousarray(weight).reshape(-1).view(np.uint8).data

    def load(self, library: str | os.PathLike, **options: Any) -> Step:
        step = super().load(library, **options)
        refuse_other(step, self.inputs, self.mesh)
        for entry, batch in self.batches.items():
            step.expect(entry, batch.order, batch.constants, self.unsigned[entry], batch.items, narrows=self.narrows,
                        shapes=batch.shapes)
        return step

    def params(self, step: Step) -> Any:
        """The parameters of a step as the pytree that was exported, of NumPy arrays; those that the module has not are as they were."""
        return self._tree(step, self.parameters)

    def set_params(self, step: Step, params: Any) -> None:
        """Gives a step the parameters of a pytree like the one that was exported, as `load_state_dict` does."""
        leaves, structure = jax.tree_util.tree_flatten(params)
        if structure != self.parameters.structure:
            raise InvalidArgumentError(f"expected parameters as {self.parameters.structure}, got {structure}")
        named = zip(self.parameters.names, leaves)
        step.load_state_dict({name: np.asarray(x) for name, x in named if name in self.weights}, strict=False)

    def state(self, step: Step) -> Any:
        """The same of its state. Random keys and counts of draws are as they were: a step counts its draws itself."""
        return self._tree(step, self.states)

    def _tree(self, step: Step, tree: Tree) -> Any:
        return tree.filled([step.read(name) if name in self.weights else x for name, x in tree.arrays()])

    def report(self) -> str:
        """Every equation and what it became, and what is not trained."""
        lines = [f"{operation:40} {text or '(nothing)'}" for operation, text in self.log]
        lines += [f"not in the module, the loss does not read it: {name}" for name in self.unused]
        return "\n".join(lines + [f"frozen: {name}" for name in self.frozen]) + "\n"


@dataclass
class _Model:
    """What the entries share."""

    trees: list[Tree]
    tensors: dict[str, Any]  # parameters and state by name
    ranks: Ranks
    constants: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass
class _Entry:
    """An entry of the module: what it is traced to, and its body."""

    name: str
    batch: Batch
    traced: Traced
    t: Translator
    inputs: dict[str, Type] = field(default_factory=dict)
    unsigned: set[str] = field(default_factory=set)
    result: Any = None
    body: list[str] = field(default_factory=list)
    replaced: set[str] = field(default_factory=set)

    def value(self, label: str, x: Any) -> Value:
        try:
            return self.t.value(x if isinstance(x, Value | Keys | Count) else np.asarray(x))
        except (Unsupported, TypeError) as error:
            raise UnsupportedError(f"{label} of {self.name}: {error}") from None

    def outputs(self, results: Any, name: str) -> list[tuple[str, Value]]:
        items = labelled(results, name)
        labels = [label for label, _ in items]
        if twice := sorted({label for label in labels if labels.count(label) > 1}):
            raise UnsupportedError(f"two outputs of {self.name} are called {', '.join(twice)}: expected keys of their own")
        return [(label, self.value(label, x)) for label, x in items]

    def text(self, head: str, ranks: Ranks) -> list[str]:
        ports = ", ".join(f"%{name}: {type}{ranks.of_input(name)}" for name, type in self.inputs.items())
        return [head.replace("()", f"({ports})", 1) + " {", *self.body, "}"]

    def held(self) -> dict[str, Type]:
        """The tensors that the body reads, or replaces."""
        used = {line.split("train.read ")[1].partition(" loc(")[0].rpartition(" : ")[0] for line in self.body if " = train.read " in line}
        return {name: type for name, type in self.t.read.items() if symbol(name) in used or name in self.replaced}


def export(loss_fn: Callable[..., Any], params: Any, example_batch: Any, *, optimizer: Optimizer, state: Any = None,
           rng_args: Collection[str | int] = (), clip_grad_norm: float | None = None, clip_grad_value: float | None = None,
           accumulate: int = 1, precision: str | None = None, shapes: Sequence[Any] = (), evals: Mapping[str, Any] | None = None,
           ema: float | None = None, mesh: Any = None, param_specs: Any = None, batch_specs: Any = None) -> Exported:
    """Translates one training step.

    loss_fn: a function of `params`, `state` if there is one, and the batch, that returns a scalar, the mean over the batch; or a pair of it
        and, if there is a state, the new one, else more arrays, which are outputs of each call; with both (loss, (state, more)).
    params: a pytree. Its arrays of floats are trained, all else in it is a constant of the step. Their paths are their names: "dense.kernel".
    example_batch: a tuple of the arguments behind, or a dict of their names, of arrays and pytrees of them; what is no array is a constant.
    optimizer: of trainc.jax, with optax's names and formulas.
    state: a pytree of what the loss replaces and the optimizer does not train, such as running statistics.
    rng_args: arguments that are raw random keys, by name or number; those of type key are found. A key says which draws are the same; what
        is drawn follows from the step's seed and is new in each call, so keys are no inputs. Two draws from one key are refused.
    clip_grad_norm, clip_grad_value: as optax.clip_by_global_norm and optax.clip before the optimizer.
    accumulate: micro-batches per update, whose losses are averaged, as optax.MultiSteps.
    precision: "bf16" computes products, attention and convolutions in bf16; None as the function is.
    shapes: more example batches, of other shapes or with other constants: a step for each, with the same parameters.
    evals: name -> function of params, state and `example_batch`, or a pair of a function and a batch. It returns an array, a tuple, or a
        dict of names.
    ema: the decay of a moving average of each parameter.
    mesh: the ranks: a mesh of JAX, or a dict {"data": 2, "model": 2}. The example batches are those of one rank, the loss is a function of
        all ranks' as one batch.
    param_specs, batch_specs: PartitionSpecs for parameters and the batch, each a pytree prefix of them; None is replicated. Other batches
        are sharded by the names of their inputs.

    UnsupportedError lists all equations that cannot be translated, each with its line in the user's program.
    """
    warn_of_version("jax", jax.__version__, TESTED)
    trees = [Tree.of(params, "params", lambda x: not is_float(x))]
    if state is not None:
        trees.append(Tree.of(state, "state", lambda x: False))
    model = _Model(trees, {}, Ranks.of(mesh, param_specs, batch_specs, trees[0], Batch.of(loss_fn, example_batch, len(trees), rng_args)))
    for name, x in [pair for tree in trees for pair in tree.arrays()]:
        if name in model.tensors:
            raise UnsupportedError(f"parameters and state both have {name}: expected names of their own")
        model.tensors[name] = x
    steps = [_entry(f"step_{i}" if i else "step", loss_fn, batch, model, rng_args) for i, batch in enumerate([example_batch, *shapes])]
    _refuse(steps, "the loss")
    if steps[0].t.drawn:
        warn("the step draws by its own seed, not by the bits of its random keys: other numbers of the same distributions")
    named = {*(evals or {}), *(step.name for step in steps)}
    if same := sorted(named & model.tensors.keys()):
        raise UnsupportedError(f"a parameter or state is called {', '.join(same)}, as an entry is: expected another name")
    taken = {*model.tensors, *named}
    is_clipped = clip_grad_norm not in (None, np.inf)
    groups = groups_of(optimizer, trees[0].filled([abstract(x) for _, x in trees[0].arrays()]), trees[0].names, taken, ema, is_clipped)
    losses = [_loss(step) for step in steps]
    carried = frozenset().union(*(step.t.carried(loss) for step, (loss, _) in zip(steps, losses)))
    # With weight decay also what the loss does not depend on, as with optax.
    group_of = {p: group.name for group in groups for p in group.parameters if group.decays or symbol(p) in carried}
    if not any(symbol(p) in carried for p in group_of):
        raise UnsupportedError("nothing is trained: the loss has no gradient for any parameter of the optimizer")
    heads = [_yield_loss(step, model, loss, more, group_of) for step, (loss, more) in zip(steps, losses)]
    entries = list(steps)
    for name, given in (evals or {}).items():
        function, batch = given if isinstance(given, tuple) else (given, example_batch)
        if name in (e.name for e in entries):
            raise UnsupportedError(f"an eval is called {name}, as another entry is: expected another name")
        entry = _entry(name, function, batch, model, rng_args, evaluated=True)
        _refuse([entry], f"eval '{name}'")
        outputs = entry.outputs(entry.result, name)
        entry.t.b.write(f"train.yield {', '.join(v.name for _, v in outputs)} : {', '.join(str(v.type) for _, v in outputs)}")
        entries.append(entry)
        heads.append(f" -> ({', '.join(quoted(label) for label, _ in outputs)})")
    for entry in entries:
        entry.body = entry.t.b.body()
        _refuse_wide(entry, precision)
    ends = clauses_of(clip_grad_norm, clip_grad_value, accumulate, precision, ["bf16"])
    heads[:len(steps)] = [head + ends for head in heads[:len(steps)]]
    lines = mesh_lines(model.ranks.mesh) + [g.text for g in groups if g.name in group_of.values()]
    exported = _module(model, entries, heads, len(steps), lines, group_of)
    exported.kinds = {g.name: g.kind for g in groups}
    return exported


def _module(model: _Model, entries: Sequence[_Entry], heads: Sequence[str], steps: int, lines: list[str], group_of: Mapping[str, str]) -> Exported:
    held = {name: type for e in entries for name, type in e.held().items()}
    parameters = dict(model.trees[0].arrays())
    for name, type in held.items():
        kind = "param" if name in parameters else "buffer"
        end = "" if kind == "buffer" else f" optimizer({symbol(group_of[name])})" if name in group_of else " frozen"
        init = listed(model.constants[name].tobytes(), type) if name in model.constants else "zeros"
        lines.append(f"train.{kind} {symbol(name)} : {type} init({init}){end}{model.ranks.of_parameter(name)}")
    for i, (entry, head) in enumerate(zip(entries, heads)):
        lines += entry.text(f"train.{'step' if i < steps else 'eval'} {symbol(entry.name)}(){head}", model.ranks)
    tensors = {**model.tensors, **model.constants}
    weights = {name: np.array(tensors[name], abstract(tensors[name]).dtype) for name in held}
    return Exported("\n".join(lines) + "\n", weights, inputs={e.name: e.inputs for e in entries},
                    batches={e.name: e.batch for e in entries}, unsigned={e.name: e.unsigned for e in entries}, parameters=model.trees[0],
                    states=model.trees[1] if len(model.trees) > 1 else Tree.of((), "state", is_key),
                    frozen=[name for name in parameters if name in held and name not in group_of],
                    unused=[name for name in parameters if name not in held], narrows=not jax.config.jax_enable_x64,
                    mesh=model.ranks.mesh, log=[line for e in entries for line in e.t.log])


def _entry(name: str, function: Callable[..., Any], example: Any, model: _Model, rng_args: Collection[str | int], evaluated: bool = False) -> _Entry:
    batch = Batch.of(function, example, len(model.trees), rng_args)
    model.ranks.whole(batch)
    traced = trace(function, model.trees, batch)
    t = Translator(Builder(), model.constants, model.tensors, not evaluated, model.ranks)
    entry = _Entry(name, batch, traced, t)
    arguments = [_tensor(t, tensor, x) for tree in model.trees for tensor, x in tree.arrays()]
    arguments += [_input(entry, key, x) for key, x in batch.arrays.items()]
    results = t.run(traced.closed.jaxpr, traced.closed.consts, arguments)
    if not t.findings:
        entry.result = with_results(traced.results, results)
    return entry


def _tensor(t: Translator, name: str, x: Any) -> Any:
    if is_key(x):
        return keys_of(name, x.shape, False)
    if x.dtype == np.uint32:
        return Count(name) if x.ndim == 0 else keys_of(name, x.shape, True)
    try:
        type = Type(tuple(x.shape), stored_type(jax.dtypes.canonicalize_dtype(x.dtype)))
    except Unsupported as error:
        raise UnsupportedError(f"{name}: {error}") from None
    if type.elements == 0:
        return np.asarray(x)
    if type.dtype in FLOATS and bool(jnp.isnan(x).any()):
        raise UnsupportedError(f"{name} holds NaN: nothing that is trained from there has a value")
    t.read[name] = type
    value = t.b.read(name, type)
    gathered = t.ranks.used(name)
    return value if gathered is None else t.b.constrain(value, gathered)


def _input(entry: _Entry, name: str, x: Any) -> Any:
    if name in entry.batch.keys:
        return keys_of(name, x.shape, not is_key(x)) if is_key(x) or x.shape else Count(name)
    dtype = jax.dtypes.canonicalize_dtype(x.dtype)
    try:
        type = Type(tuple(x.shape), "i8" if dtype == np.uint8 else stored_type(dtype))
    except Unsupported as error:
        raise UnsupportedError(f"input {name}: {error}" + (" (a random key is named in rng_args)" if dtype == np.uint32 else "")) from None
    if type.elements == 0:
        return np.zeros(type.shape, dtype)
    entry.inputs[name] = type
    value = Value(f"%{name}", type)
    if dtype != np.uint8:
        return value
    entry.unsigned.add(name)
    return from_uint8(entry.t.b, value)


def _refuse(entries: Sequence[_Entry], what: str) -> None:
    if unique := list(dict.fromkeys(f for e in entries for f in e.t.findings)):
        raise UnsupportedError(f"{len(unique)} equation{'s' * (len(unique) > 1)} of {what} cannot be translated\n"
                               + "\n".join(f"  {f}" for f in unique) + "\nnothing was exported", unique)


def _refuse_wide(entry: _Entry, precision: str | None) -> None:
    line = next((line for line in entry.body if precision and "f64" in line), None)
    if line:
        operation, _, place = line.partition(" = ")[2].partition(" loc(")
        at = f" ({place[:-1]})" if place else ""
        raise UnsupportedError(f"precision={precision!r} and f64 in {entry.name}: {operation}{at}; remainders of floats and the gamma function are "
                               "computed in f64")


def _loss(step: _Entry) -> tuple[Value, Any]:
    """The loss, and what else is returned."""
    result = step.result
    first, more = result if isinstance(result, tuple | list) and len(result) == 2 else (result, None)
    loss = step.value("the loss", first)
    if loss.dtype not in FLOATS or loss.type.elements != 1:
        raise UnsupportedError(f"the loss must be one floating-point number, got {loss.type}")
    return step.t.b.cast(step.t.b.reshape(loss, []), "f64" if loss.dtype == "f64" else "f32"), more


def _yield_loss(step: _Entry, model: _Model, loss: Value, more: Any, trained: Collection[str]) -> str:
    """Ends the step: the state is replaced, all that is trained has a gradient, what else is returned are outputs; their clause."""
    b = step.t.b
    b.location = b.region = None
    if len(model.trees) > 1:
        more = _write_state(step, model.trees[1], more)
    outputs, carried = step.outputs(more, "output"), step.t.carried(loss)
    for name in trained:
        if symbol(name) not in carried:  # its gradient is 0
            value = _tensor(step.t, name, model.tensors[name])
            zero = b.reduce("sum", b.binary("mul", value, b.like(0, value)), range(value.rank))
            loss = b.binary("add", loss, b.cast(zero, loss.dtype))
    names = ", ".join(v.name for _, v in outputs)
    types = ", ".join(str(v.type) for v in (*(v for _, v in outputs), loss))
    b.write(f"train.yield {names + ' ' if names else ''}loss({loss.name}) : {types}")
    return f" -> ({', '.join(quoted(label) for label, _ in outputs)})" if outputs else ""


def _write_state(step: _Entry, tree: Tree, more: Any) -> Any:
    """Replaces the state; what else the loss returns."""
    def structure(x: Any) -> Any:
        return jax.tree_util.tree_structure(x, is_leaf=lambda leaf: isinstance(leaf, Value | Keys | Count))

    if structure(more) == tree.structure:
        new, more = more, None
    elif isinstance(more, tuple | list) and len(more) == 2 and structure(more[0]) == tree.structure:
        new, more = more
    else:
        raise UnsupportedError(f"with a state the loss function returns (loss, state) or (loss, (state, more)): expected {tree.structure}, got "
                               f"{structure(more)}")
    leaves = jax.tree_util.tree_leaves(new, is_leaf=lambda leaf: isinstance(leaf, Value | Keys | Count))
    for name, old, x, fixed in zip(tree.names, tree.leaves, leaves, tree.fixed):
        if fixed:
            if isinstance(x, Value | Keys | Count) or not (x is old or np.all(x == old)):
                raise UnsupportedError(f"the new {name} is not {old!r}, as before: what is replaced is an array, as np.asarray({old!r})")
            continue
        if isinstance(x, Keys | Count):
            continue
        value, before = step.value(f"the new {name}", x), _tensor(step.t, name, old)
        if value.type != before.type:
            raise UnsupportedError(f"the new {name} is {value.type}: expected {before.type}, as before")
        if value.name != before.name:
            step.replaced.add(name)
            step.t.b.write(f"train.write {value.name} to {symbol(name)} : {value.type}")
    return more
