"""Why a run ended, in sentences that say what a person can do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import GPExplorerError, OutOfMemory
from ..problem import Outcome

FINAL = ("converged", "diverged", "failed")  # after these no further step can follow
WAY_OUT = "use fewer points, rows or features, or float32"


def stopped(steps: int) -> Outcome:
    """The outcome of a run that was asked to stop after so many steps."""
    return Outcome("stopped", f"Stopped on request after {steps} steps; it can go on from there.")


def failed(error: Exception, steps: int) -> Outcome:
    """The outcome of a run whose method raised an error.

    An error of this package brings its own sentence. The text of any other error is not shown, because it may contain
    anything: the message then names only the error's type.
    """
    kept = f"The {steps} steps before it are kept."
    if isinstance(error, GPExplorerError):
        return Outcome("failed", str(error))
    if is_memory(error):
        return Outcome("failed", f"Memory ran out at step {steps + 1}: {WAY_OUT}. {kept}")
    name = type(error).__name__
    return Outcome("failed", f"An unexpected {name} ended the method at step {steps + 1}; the log has it. {kept}")


@contextmanager
def enough_memory(step: int) -> Iterator[None]:
    """Turn an error of memory allocation into OutOfMemory, which names the step and the way out."""
    try:
        yield
    except Exception as error:
        if isinstance(error, GPExplorerError) or not is_memory(error):
            raise
        raise OutOfMemory(f"Memory ran out for the answers of step {step}: {WAY_OUT}.") from error


def is_memory(error: BaseException) -> bool:
    """Whether this error says that no memory is left. On the CPU, torch raises a RuntimeError for it."""
    allocation = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return allocation or isinstance(error, (MemoryError, torch.OutOfMemoryError))
