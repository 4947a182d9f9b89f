"""The grid of a problem, or the sentence that says why there is none."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...errors import SettingError
from ...features.choices import Leading
from ...features.grid import Grid
from ...problem import Problem


def grid_of(problem: Problem, points: int, spacing: str = "equispaced") -> Grid:
    """`points` an input, spaced equally or at quantiles.

    Raises SettingError for objects, KernelError for kernels that do not factor.
    """
    if not isinstance(problem.train.X, Tensor):
        raise SettingError("GP-GRIEF lays a grid over columns of numbers, but these inputs are objects.")
    grid = Grid(problem.kernel, problem.train.X, points, spacing)
    grid.factors(problem.theta)
    return grid


def leading(method: Any, problem: Problem, theta: Tensor) -> Leading:
    """The largest eigenfunctions at this theta, as many as the method asks for."""
    grid = grid_of(problem, method.grid_points, method.spacing)
    return Leading(grid, grid.spectrum(theta, method.num_eigenfunctions).made_of)
