"""Why a run ended, in sentences a person can act on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ..errors import GPExplorerError, OutOfMemory
from ..problem import Outcome

FINAL = ("converged", "diverged", "failed")  # no further step can follow
WAY_OUT = "use fewer points, rows or features, or float32"


def stopped(steps: int) -> Outcome:
    """The run was asked to stop."""
    return Outcome("stopped", f"Stopped on request after {steps} steps; it can go on from there.")


def failed(error: Exception, steps: int) -> Outcome:
    """The method raised: its own sentence where it wrote one, else a constant one, as other texts may be anything."""
    kept = f"The {steps} steps before it are kept."
    if isinstance(error, GPExplorerError):
        return Outcome("failed", str(error))
    if is_memory(error):
        return Outcome("failed", f"Memory ran out at step {steps + 1}: {WAY_OUT}. {kept}")
    name = type(error).__name__
    return Outcome("failed", f"An unexpected {name} ended the method at step {steps + 1}; the log has it. {kept}")


@contextmanager
def enough_memory(step: int) -> Iterator[None]:
    """OutOfMemory, with a way out, where the answers of this step need more than there is."""
    try:
        yield
    except Exception as error:
        if isinstance(error, GPExplorerError) or not is_memory(error):
            raise
        raise OutOfMemory(f"Memory ran out for the answers of step {step}: {WAY_OUT}.") from error


def is_memory(error: BaseException) -> bool:
    """Whether this says that there is no memory left: torch has a RuntimeError of its own for it."""
    allocation = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return allocation or isinstance(error, (MemoryError, torch.OutOfMemoryError))
