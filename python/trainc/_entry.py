"""One entry of an artifact: its inputs bound without copies, its runs, its outputs."""
import ctypes
import weakref
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import byref, c_void_p
from typing import Any

from ._arrays import DTYPES, NUMPY, TORCH, empty, pointer_of, view
from ._runtime import EVAL
from ._trainer import Trainer, shape_of
from .errors import InvalidArgumentError, warn


NARROWED = {"float64": "float32", "int64": "int32"}
OPENED: dict[type, Callable[[Any], tuple[Sequence[tuple[str, Any]], Any]]] = {}  # gives of a pytree the leaves by name, and its structure


def mapped(value: Any, name: str, change: Callable[[str, Any], Any]) -> Any:
    """An item of a batch with change(name, leaf) in place of its leaves, which are all but dicts, lists, tuples and types of `OPENED`. To the
    name of an item a leaf has its keys, fields and numbers added."""
    if type(value) in OPENED:
        leaves, structure = OPENED[type(value)](value)
        change(f"{name}.structure", structure)
        items = [mapped(leaf, f"{name}_{key}", change) for key, leaf in leaves]
        # A constructor of the user's is not called with nothing.
        return None if items and all(item is None for item in items) else structure.unflatten(items)
    if isinstance(value, Mapping):
        return {key: mapped(item, f"{name}_{key}", change) for key, item in value.items()}
    if isinstance(value, tuple | list):
        fields = getattr(value, "_fields", None)  # of a named tuple
        items = [mapped(item, f"{name}_{key}", change) for key, item in (zip(fields, value) if fields else enumerate(value))]
        return type(value)(*items) if fields else type(value)(items)
    return change("".join(c if c.isalnum() or c == "_" else "_" for c in name), value)


def _is(value: Any, constant: Any) -> bool:
    """Whether a value is a constant; 1 is 1.0, but not True. An array of several elements is none."""
    try:
        equal = value is constant or value == constant
    except ValueError:  # arrays in them
        return False
    if getattr(equal, "shape", ()) or not bool(equal):
        return False
    number = value.item() if hasattr(value, "item") else value
    return isinstance(number, bool) == isinstance(constant, bool)


def _shape(value: Any) -> Any:
    """Of an array, or a number; else None."""
    try:
        return value.shape
    except AttributeError:
        return () if isinstance(value, (int, float, complex)) else None


class Port:
    """An output: name, type, shape, bytes."""

    def __init__(self, port):
        self.name, self.dtype = port.name.decode(), DTYPES[port.dtype]
        self.shape, self.bytes = shape_of(port), port.bytes

    def __str__(self):
        return f"{self.name}: {self.dtype}{list(self.shape)}"


class Input(Port):
    """An input, and what is bound to it.

    value: the array, to see that it is given again; None if it is copied, or not an array of NumPy or torch.
    array_dtype, pointer: of the value, as it gives them.
    library: NUMPY, TORCH or None.
    held: what keeps other memory alive; of an array of NumPy a weak reference, with which it is not resized in place.
    """

    def __init__(self, port, index):
        super().__init__(port)
        self.index, self.said = index, False
        self.value = self.array_dtype = self.pointer = self.library = self.held = None


class EntryPoint:
    """Entry `name` of a trainer. What is bound stays alive until something else is bound in its place."""

    def __init__(self, trainer: Trainer, name: str):
        self.trainer, self.name, self.index = trainer, name, trainer.entries[name]
        entry = trainer.descriptor.entries[self.index]
        self.is_eval, self.accumulate, self.window = entry.kind == EVAL, entry.accumulate, entry.window
        self.inputs = [Input(port, i) for i, port in enumerate(entry.inputs[:entry.num_inputs])]
        self.outputs = [Port(port) for port in entry.outputs[:entry.num_outputs]]
        self._batch, self._constants, self._nested, self._examples, self._narrows = None, {}, frozenset(), None, False
        self.advice = ""
        self._shapes = {port.name: port.shape for port in self.inputs}
        self._unread: dict[str, tuple] = {}  # shapes of what a batch has that is no input
        self._known = frozenset(self._shapes)  # names that a batch may have
        self._items = [port.name for port in self.inputs]
        self._bind_input, self._handle = trainer.runtime.library.trainc_bind_input, trainer.trainer

    def __str__(self):
        outputs = f" -> {', '.join(map(str, self.outputs))}" if self.outputs else ""
        others = [f"{name}: {list(shape)}" for name, shape in self._unread.items()]
        others += [f"{name} = {value!r}" for name, value in self._constants.items()]
        return f"{self.name}({', '.join([*map(str, self.inputs), *others])}){outputs}"

    def bind(self, inputs: tuple, named: dict) -> None:
        """Binds the inputs, in order or by name. The caller holds the trainer's lock, and the trainer is open."""
        if self._batch is not None:
            inputs, named = (), self._of_batch(inputs, named)
        if named or len(inputs) != len(self.inputs):
            inputs = self._ordered(inputs, named)
        for port, value in zip(self.inputs, inputs):
            if value is port.value:
                # The object may have been given other memory, type or strides in place.
                if port.library is TORCH:
                    if (value.data_ptr() == port.pointer and value.dtype is port.array_dtype
                            and value.shape == port.shape and value.is_contiguous() and not value.is_neg()):
                        continue
                elif port.library is NUMPY:
                    if value.dtype is port.array_dtype and value.shape == port.shape and value.flags.c_contiguous:
                        continue
            self._bind(port, value)
        if self._examples:
            self._examples.taken()

    def fits(self, inputs: tuple, named: dict, filled: bool = False) -> bool:
        """Whether every input is given and has the entry's shape, with `filled` also one of fewer examples, and what else is given is
        known and as the entry has it."""
        given, shapes = self._leaves(inputs, named), self._shapes
        if len(inputs) > len(self._items) or not self._known.issuperset(given):
            return False
        if self._examples:
            expected = self._examples.expected(shapes, given)
            shapes = expected if filled else {name: shapes[name] for name in expected}
        return (all(getattr(given.get(name), "shape", None) == shape for name, shape in shapes.items())
                and all(_is(given[name], constant) for name, constant in self._constants.items() if name in given)
                and not (self._unread and self._unlike(given)))

    def expect(self, names: Sequence[str], constants: Mapping[str, Any], unsigned: Collection[str], items: Sequence[str] | None,
               examples: Any, narrows: bool, shapes: Mapping[str, Sequence[int]], unsigned_outputs: Collection[str], advice: str) -> None:
        """Of what a batch consists: its items in order, by default `names`, which are the leaves'. What is no input may be given, too:
        a constant as it is here, an array of the shape that it has in `shapes`, on which the step may depend; all else is not looked at.
        `examples`, if there are any, completes a batch. With `narrows` arrays of 64 bits are taken for inputs of 32. `advice` says what
        takes other shapes."""
        self._narrows, self.advice = narrows, advice and f"; {advice}"
        self._items, ports = list(names if items is None else items), [port.name for port in self.inputs]
        self._batch = None if ports == list(names) == self._items else list(names)
        self._constants, self._nested, self._examples = dict(constants), frozenset(self._items) - frozenset(names), examples
        self._known = frozenset(ports).union(names)
        self._unread = {name: tuple(shape) for name, shape in shapes.items() if name not in ports}
        for port in (*(p for p in self.inputs if p.name in unsigned), *(p for p in self.outputs if p.name in unsigned_outputs)):
            port.dtype = "uint8"

    def _leaves(self, inputs, named):
        """The leaves of a batch by name."""
        given = dict(zip(self._items, inputs)) | named
        for name in self._nested & given.keys():
            mapped(given.pop(name), name, given.__setitem__)
        return given

    def _unlike(self, given):
        """What is no input, and has another shape than it should."""
        return [name for name, shape in self._unread.items() if name in given and (got := _shape(given[name])) != shape
                and not (self._examples and self._examples.fewer(name, shape, got, given))]

    def _of_batch(self, inputs, named):
        """The inputs of a batch by name."""
        self._refuse_whole(inputs, named)
        if len(inputs) > len(self._items) or named.keys() & set(self._items[:len(inputs)]):
            raise InvalidArgumentError(f"{self.name} takes {', '.join(self._items)}, each once, got {len(inputs)} by position and "
                                       f"{', '.join(named) or 'none'} by name")
        given = self._leaves(inputs, named)
        for name, constant in self._constants.items():
            if name in given and not _is(given[name], constant):
                raise InvalidArgumentError(f"{name} of {self.name} is a constant: expected {constant!r}, got {given[name]!r}")
        for name in self._unlike(given) if self._unread else ():
            got = _shape(given[name])
            raise InvalidArgumentError(f"{name} of {self.name} is no input, but the step may depend on its shape: expected {self._unread[name]}, got "
                                       f"{type(given[name]).__name__ if got is None else tuple(got)}; it may be left out{self.advice}")
        if self._examples:  # the weights are the last input
            given = self._examples.complete(self.inputs[-1].shape[0], given)
        return {name: value for name, value in given.items() if name in self._shapes or name not in self._batch}

    def _refuse_whole(self, inputs, named):
        """Of an entry with several items, a batch as one."""
        if len(inputs) == 1 and not named and len(self._items) > 1 and isinstance(inputs[0], Mapping | list | tuple):
            stars = "**" if isinstance(inputs[0], Mapping) else "*"
            raise InvalidArgumentError(f"{self.name} takes {', '.join(self._items)}, got one {type(inputs[0]).__name__}: expected {stars}batch "
                                       "instead of batch")

    def _ordered(self, inputs, named):
        self._refuse_whole(inputs, named)
        names = [port.name for port in self.inputs]
        if len(inputs) > len(names):
            raise InvalidArgumentError(f"{self.name} takes {len(names)} inputs ({', '.join(names)}), "
                                       f"got {len(inputs)}")
        if unknown := [name for name in named if name not in names]:
            raise InvalidArgumentError(f"{self.name} has no input {', '.join(unknown)}: expected "
                                       f"{', '.join(names) or 'none'}")
        if twice := [name for name in names[:len(inputs)] if name in named]:
            raise InvalidArgumentError(f"{self.name}: got input {', '.join(twice)} by position and by name")
        if missing := [name for name in names[len(inputs):] if name not in named]:
            got = names[:len(inputs)] + list(named)
            raise InvalidArgumentError(f"{self.name}: input {', '.join(missing)} is missing: expected "
                                       f"{', '.join(names)}, got {', '.join(got) or 'none'}")
        return (*inputs, *(named[name] for name in names[len(inputs):]))

    def _bind(self, port, value):
        try:
            dtype, shape, pointer, owner, library, copied = view(value)
        except InvalidArgumentError as error:
            raise InvalidArgumentError(f"input {port.name} of {self.name}: {error}") from None
        if self._narrows and NARROWED.get(dtype) == port.dtype and library is NUMPY:
            reason = f"it is {dtype}, and {port.dtype} in the step"
            dtype, shape, pointer, owner, library, copied = view(owner.astype(port.dtype))
            copied = reason
        if dtype != port.dtype or shape != port.shape:
            raise InvalidArgumentError(f"input {port.name} of {self.name}: expected {port.dtype} of shape "
                                       f"{port.shape}, got {dtype} of shape {tuple(shape)}{self.advice if shape != port.shape else ''}")
        # When Ctrl-C ends this, either may be bound: both stay alive until the next call, which binds anew.
        before = port.held if port.value is None else port.value
        port.held = before, owner
        port.value = port.library = None
        status = self._bind_input(self._handle, self.index, port.index, pointer, port.bytes)
        if status:
            port.held = before
            raise self.trainer.runtime.error(status)
        port.library, port.pointer = library, pointer
        if copied or library is None:
            port.value, port.held = None, owner
            if copied and not port.said:
                port.said = True
                warn(f"input {port.name} of {self.name} is copied in each call: {copied}")
            return
        port.value, port.array_dtype = owner, owner.dtype
        port.held = weakref.ref(owner) if library is NUMPY else None

    def read_outputs(self) -> dict:
        """Copies of the outputs by name: torch tensors if an input is one that was given, else NumPy arrays. As `bind`."""
        results: dict[str, Any] = {}
        as_torch = any(port.library is TORCH and not (self._examples and self._examples.owns(port.value)) for port in self.inputs)
        for i, port in enumerate(self.outputs):
            data, array = c_void_p(), empty(port.dtype, port.shape, as_torch)
            self.trainer.call("trainc_output_data", self.index, i, byref(data))
            ctypes.memmove(pointer_of(array), data.value, port.bytes)
            results[port.name] = array
        return self._examples.cut(results) if self._examples else results
