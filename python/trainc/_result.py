"""What one call of a step gave."""


class StepResult:
    """What one call of a step gave. `loss`, `weight` and `micro_step` are of the call (one micro-batch), `window_loss`
    and `window_weight` of the accumulation window so far or just closed, the others of the last update.

    On a GPU the numbers are waited for when the first of them is read; that must be before the next call of the step.
    `outputs` are copied when they are first read, on all devices before the next call.
    """

    __slots__ = ("_values", "_outputs", "_step", "_number")

    def __init__(self, values, step=None, number=0):
        self._values, self._outputs, self._step, self._number = values, None, step, number

    def _get(self):
        if self._values is None:
            self._values = self._step._read_result(self._number)
        return self._values

    @property
    def outputs(self) -> dict:
        """The step's outputs by name, of this micro-batch and the parameters before its update: torch tensors if an input is
        one, else NumPy arrays; empty if it has none."""
        if self._outputs is None:
            self._outputs = self._step._read_outputs(self._number) if self._step else {}
        return self._outputs

    @property
    def loss(self) -> float:
        """The mean loss of this micro-batch, on several ranks of what this one has of it; NaN if its weight is 0."""
        return self._get().loss

    @property
    def weight(self) -> float:
        """The loss terms of this micro-batch that counted."""
        return self._get().weight

    @property
    def window_loss(self) -> float:
        """The mean loss of the window; over all ranks once it is closed."""
        return self._get().window_loss

    @property
    def window_weight(self) -> float:
        """The loss terms of the window that counted."""
        return self._get().window_weight

    @property
    def grad_norm(self) -> float:
        """L2 norm of the averaged, unscaled gradients, before the clip."""
        return self._get().grad_norm

    @property
    def clip_factor(self) -> float:
        """What the clip multiplied the gradients with; 1: not clipped."""
        return self._get().clip_factor

    @property
    def loss_scale(self) -> float:
        return self._get().loss_scale

    @property
    def update(self) -> int:
        """Updates done so far, with this one."""
        return self._get().update

    @property
    def skipped(self) -> int:
        """Updates skipped so far, because a gradient was not finite."""
        return self._get().skipped

    @property
    def micro_step(self) -> int:
        """Micro-batches in the open window; 0 after its end."""
        return self._get().micro_step

    @property
    def closed(self) -> bool:
        """Whether this call closed a window: its update ran."""
        return bool(self._get().closed)

    @property
    def updated(self) -> bool:
        """Whether it did, and the update was not skipped."""
        return bool(self._get().updated)

    @property
    def finite(self) -> bool:
        """Whether all gradients of the last window were finite."""
        return bool(self._get().finite)

    @property
    def stop(self) -> int:
        """After a window: how many ranks have called `Step.request_stop`."""
        return self._get().stop

    def __repr__(self):
        return (f"StepResult(loss={self.loss:.6g}, grad_norm={self.grad_norm:.6g}, update={self.update}, "
                f"updated={self.updated})")
