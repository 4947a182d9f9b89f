"""The grid of a problem, or the sentence that says why there is none."""

from __future__ import annotations

from torch import Tensor

from ...errors import SettingError
from ...features.choices import Leading
from ...features.grid import Grid
from ...problem import Problem


def grid_of(problem: Problem, points: int) -> Grid:
    """`points` an input. Raises SettingError for objects, KernelError for kernels that do not factor."""
    if not isinstance(problem.train.X, Tensor):
        raise SettingError("GP-GRIEF lays a grid over columns of numbers, but these inputs are objects.")
    grid = Grid(problem.kernel, problem.train.X, points)
    grid.factors(problem.theta)
    return grid


def leading(problem: Problem, theta: Tensor, points: int, p: int) -> Leading:
    """The p largest eigenfunctions at this theta."""
    grid = grid_of(problem, points)
    return Leading(grid, grid.spectrum(theta, p).made_of)
