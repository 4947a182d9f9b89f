"""Why a run ended, in sentences a person can act on."""

from __future__ import annotations

import torch

from ..errors import GPExplorerError
from ..problem import Outcome

FINAL = ("converged", "diverged", "failed")  # no further step can follow


def stopped(steps: int) -> Outcome:
    """The run was asked to stop."""
    return Outcome("stopped", f"Stopped on request after {steps} steps; it can go on from there.")


def failed(error: Exception, steps: int) -> Outcome:
    """The method raised: its own sentence where it wrote one, else a constant one, as other texts may be anything."""
    kept = f"The {steps} steps before it are kept."
    if isinstance(error, GPExplorerError):
        return Outcome("failed", str(error))
    if _memory(error):
        way_out = "use fewer points, rows or features, or float32"
        return Outcome("failed", f"Memory ran out at step {steps + 1}: {way_out}. {kept}")
    name = type(error).__name__
    return Outcome("failed", f"An unexpected {name} ended the method at step {steps + 1}; the log has it. {kept}")


def _memory(error: Exception) -> bool:
    allocation = isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error)
    return allocation or isinstance(error, (MemoryError, torch.OutOfMemoryError))
