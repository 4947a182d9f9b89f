"""What is said where swaps end by themselves: what the last epoch gained, and what could gain more."""

from __future__ import annotations

from typing import Any

from ....problem import Problem
from ..moving.state import points_can_move
from .state import State

BEYOND = " Points that leave their rows may reach what no choice of rows does: setting polish lets them."


def settled(method: Any, problem: Problem, state: State, gain: float) -> str:
    """Why no further epoch follows."""
    said = (
        f"Epoch {state.epoch + 1} improved the objective by {max(gain, 0.0):.2g}, less than the tolerance "
        f"{method.tolerance:g} of {abs(state.objective):.4g}."
    )
    if not len(state.pivots):
        precision = str(problem.train.y.dtype).removeprefix("torch.")
        said = f"No row is left to swap in: the inducing points explain each to the rounding of {precision}."
    return said if method.polish or not points_can_move(problem) else said + BEYOND
