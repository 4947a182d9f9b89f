"""Jitter that a method's factors needed, told whichever of them it was: also of those that no channel is about."""

from __future__ import annotations

from ..linalg.cholesky import noticed
from ..methods.base import Steps


def watched(steps: Steps, found: dict[str, float]) -> Steps:
    """The same steps; the largest jitter of each matrix goes into `found`. What workers elsewhere add is not seen."""
    try:
        while True:
            with noticed(found):
                try:
                    step = next(steps)
                except StopIteration as end:
                    return end.value
            yield step
    finally:
        steps.close()


def told(found: dict[str, float]) -> str:
    """What was found, as a sentence; empty where no jitter was needed."""
    if not found:
        return ""
    each = ", ".join(f"{jitter:.1e} on {name}" for name, jitter in sorted(found.items()))
    return f"Jitter was needed: {each}. Raise the noise or drop duplicate rows if that matters."
