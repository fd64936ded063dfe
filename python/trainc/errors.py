"""What trainc raises. `except trainc.Error` catches all of it."""
import os
import sys
import warnings

_PACKAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "")


class Error(Exception):
    """Something was refused or failed; the text says what was found and what was expected.

    `status` is the name of the C status ("TRAINC_IO_ERROR"), see runtime.h.
    """

    status = "TRAINC_INVALID_ARGUMENT"

    def __init__(self, text: str, status: str | None = None):
        super().__init__(text)
        if status:
            self.status = status


class InvalidArgumentError(Error, ValueError):
    """An argument has a wrong name, type, shape or value, or the step is closed."""


class NotFoundError(Error):
    """There is no such file, entry, tensor or scalar."""

    status = "TRAINC_NOT_FOUND"


class OutOfMemoryError(Error, MemoryError):
    """More than the machine has, or than `memory_limit` allows; the text says how much is needed."""

    status = "TRAINC_OUT_OF_MEMORY"


class OutOfRangeError(Error, IndexError):
    """An index input (a label, a token) has a value out of its range; the state is untouched."""

    status = "TRAINC_OUT_OF_RANGE"


class MismatchError(Error):
    """A checkpoint or state dict does not fit the artifact; the text lists all differences."""

    status = "TRAINC_MISMATCH"


class UnsupportedError(Error):
    """Something that trainc, this machine or an installed package cannot do.

    `findings` lists all that was found, one entry for each; empty if the text says it all.
    """

    status = "TRAINC_UNSUPPORTED"

    def __init__(self, text: str, findings=(), status: str | None = None):
        super().__init__(text, status)
        self.findings = list(findings)


class NotFiniteError(Error, FloatingPointError):
    """Within `Step.check_finite`: an operation wrote a NaN or an infinity; the text says which, and where in the model it is."""

    status = "TRAINC_CANCELLED"


class CommError(Error):
    """A collective failed: a peer is gone, too late, or does something else."""

    status = "TRAINC_COMM_FAILED"


class DeviceError(Error):
    """A GPU refused, failed, or was too late."""

    status = "TRAINC_DEVICE_FAILED"


class CompileError(Error):
    """The compiler refused a module. `diagnostics` is what it wrote: lines `file:line:column: error: ...` and notes. `advice` says before
    it what to do, in the words of a front end."""

    def __init__(self, diagnostics: str, advice: str = ""):
        super().__init__("\n".join(filter(None, (advice, diagnostics.strip()))) or "the compiler failed without a message")
        self.diagnostics = diagnostics


_BY_STATUS = {kind.status: kind for kind in (InvalidArgumentError, NotFoundError, OutOfMemoryError, OutOfRangeError,
                                             MismatchError, UnsupportedError, CommError, DeviceError)}


def error_of(status: str, text: str) -> Error:
    """The exception for a C status, by name."""
    return _BY_STATUS.get(status, Error)(text, status=status)


def warn(text: str) -> None:
    """A warning at the line of the user's program that has called the package."""
    level, frame = 1, sys._getframe()
    while frame and os.path.abspath(frame.f_code.co_filename).startswith(_PACKAGE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
