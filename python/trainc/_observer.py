"""Looking at the commands of a step while they run: which of them writes a NaN, and how long each takes."""
import ctypes
import json
import os
from collections import Counter
from typing import Any

from . import _runtime
from ._arrays import DTYPES, SIZES, first_not_finite
from ._files import beside
from .errors import InvalidArgumentError, NotFiniteError

_PIECE = 1 << 20  # bytes that are looked at together


class Observer:
    """Sees each command of a step within `with`, of which a step has one at a time. What is raised there is raised after the call."""

    def __init__(self, step):
        self._step, self._callback, self._raised = step, _runtime.OBSERVER(self._observe), None

    def __enter__(self):
        trainer = self._step._trainer
        with trainer.lock:
            if self._step._observer:
                raise InvalidArgumentError("this step is within another check_finite() or profile(): expected one at a time")
            trainer.call("trainc_set_observer", self._callback, None)
            self._step._observer = self
        return self

    def __exit__(self, *_):
        trainer = self._step._trainer
        with trainer.lock:
            self._step._observer = None
            if trainer.trainer:
                trainer.call("trainc_set_observer", None, None)

    def _observe(self, _, event):
        try:
            self.see(event.contents, event.contents.command.contents)
        except BaseException as error:  # not through C; KeyboardInterrupt, too
            self._raised = self._raised or error
        return 0

    def end(self) -> None:
        """A call of the step is done."""
        raised, self._raised = self._raised, None
        if raised:
            raise raised

    def see(self, event: Any, command: Any) -> None:
        raise NotImplementedError


class CheckFinite(Observer):
    """`Step.check_finite`."""

    def __init__(self, step, infinities: bool):
        super().__init__(step)
        self._infinities = infinities

    def see(self, event: Any, command: Any) -> None:
        if not event.end or self._raised:
            return
        written = [i for i in range(command.num_operands) if command.operands[i].access & _runtime.WRITE]
        read = [i for i in range(command.num_operands) if command.operands[i].access == _runtime.READ]
        if wrong := next(filter(None, (self._wrong(event, i) for i in written)), None):
            label, location = (command.label or b"?").decode(), (command.location or b"an unknown location").decode()
            cause = next(filter(None, (self._wrong(event, i) for i in read)), None)
            reads = f"; it reads {' of '.join(cause)}" if cause else ""
            self._raised = NotFiniteError(f"'{label}' at {location} wrote {' to '.join(wrong)}{reads}")

    def _wrong(self, event, i):
        """The first NaN or infinity of an operand: which it is, and where; or None."""
        trainer, operand = self._step._trainer, event.command.contents.operands[i]
        size, dtype = SIZES[operand.dtype], DTYPES[operand.dtype]
        for begin in range(0, operand.bytes, _PIECE):
            piece = ctypes.create_string_buffer(min(_PIECE, operand.bytes - begin))
            trainer.call("trainc_operand_read", event.entry, event.command, i, begin, piece, len(piece))
            if found := first_not_finite(dtype, piece, self._infinities):
                index, value = found
                return value, f"{self._place(event.entry, operand, begin + index * size)} (element {begin // size + index} of {dtype})"
        return None

    def _place(self, entry, operand, begin):
        """What is at a byte of an operand."""
        d = self._step._trainer.descriptor
        ports, at = d.entries[entry], operand.base - d.num_arenas
        if at >= 0:
            return (f"input {ports.inputs[at].name.decode()}" if at < ports.num_inputs else
                    f"output {ports.outputs[at - ports.num_inputs].name.decode()}")
        place = operand.offset + begin
        if operand.base == d.scalar_arena and place // 8 < d.num_scalars:
            return f"scalar {d.scalars[place // 8].name.decode()}"
        for t in d.tensors[:d.num_tensors]:
            if t.arena == operand.base and t.offset <= place < t.offset + t.bytes:
                role = {"compute": "compute copy"}.get(_runtime.ROLES[t.role], _runtime.ROLES[t.role])
                return " ".join([role, t.name.decode(), *([t.state.decode()] if t.state else [])])
        return "an activation"


class Profile(Observer):
    """`Step.profile`: what has run within it, and how long it took."""

    def __init__(self, step):
        super().__init__(step)
        self._events, self._begin = [], 0

    def see(self, event: Any, command: Any) -> None:
        if not event.end:
            self._begin = event.time_ns
            return
        kind = _runtime.COMMANDS[command.kind]
        entry = self._step._trainer.descriptor.entries[event.entry].name.decode()
        label, location = (text.decode() if text else "" for text in (command.label, command.location))
        self._events.append((label or kind, location, self._begin, event.time_ns - self._begin, dict(entry=entry, kind=kind, flops=command.flops)))

    def table(self, rows: int = 20) -> str:
        """The operations that took longest, by their lines in the model."""
        times, counts = Counter(), Counter()
        for label, location, _, duration, _ in self._events:
            times[label, location] += duration
            counts[label, location] += 1
        total = sum(times.values())
        lines = [f"{time / 1e6:12.3f} {100 * time / max(total, 1):5.1f} % {counts[key]:7}  {' at '.join(filter(None, key))}"
                 for key, time in times.most_common(rows)]
        return "\n".join([f"{'ms':>12} {'of all':>7} {'times':>7}  operation", *lines, f"{total / 1e6:12.3f} in all"])

    def export_chrome_trace(self, path: str | os.PathLike) -> None:
        """Writes what chrome://tracing and Perfetto show."""
        start = min((begin for _, _, begin, _, _ in self._events), default=0)
        spans = [dict(name=label, ph="X", pid=1, tid=1, ts=(begin - start) / 1e3, dur=duration / 1e3, args=more | dict(location=location))
                 for label, location, begin, duration, more in self._events]
        with beside(path) as new, open(new, "w", encoding="utf-8") as file:
            json.dump(dict(displayTimeUnit="ns", traceEvents=spans), file)
