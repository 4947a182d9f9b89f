"""The grid of a problem, or the sentence that says why there is none."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

from ...errors import NotPositiveDefinite, SettingError
from ...features.basis_choices import Leading
from ...features.grid_eigenfunctions import Grid
from ...problem import Problem
from .evidence import gram

SPACINGS = ("equispaced", "quantile")


def grid_of(problem: Problem, points: int, spacing: str = "equispaced") -> Grid:
    """`points` an input, spaced equally or at quantiles.

    Raises SettingError for objects, KernelError for kernels that do not factor.
    """
    if not isinstance(problem.train.X, Tensor):
        raise SettingError("GP-GRIEF lays a grid over columns of numbers, but these inputs are objects.")
    grid = Grid(problem.kernel, problem.train.X, points, spacing)
    grid.factors(problem.theta)
    return grid


def spacings(method: Any) -> tuple[str, ...]:
    """Those that the method may choose from."""
    return SPACINGS if method.spacing == "by likelihood" else (method.spacing,)


def leading(method: Any, problem: Problem, theta: Tensor, spacing: str = "") -> Leading:
    """The largest eigenfunctions at this theta, as many as the method asks for, on a grid of this spacing.

    Spaced "by likelihood", or as the method has it where none is given, they lie on the grid under which the training
    rows are the likelier: n p^2 flops a grid.
    """
    tried = (spacing,) if spacing in SPACINGS else spacings(method)
    found = [_on(grid_of(problem, method.grid_points, one), method.num_eigenfunctions, theta) for one in tried]
    return found[0] if len(found) == 1 else min(found, key=lambda choice: _value(method, choice, theta, problem))


def _on(grid: Grid, p: int, theta: Tensor) -> Leading:
    return Leading(grid, grid.spectrum(theta, p).made_of)


def _value(method: Any, choice: Leading, theta: Tensor, problem: Problem) -> float:
    """NLML; infinite where there is no factor."""
    try:
        return gram(choice, theta, problem.train, method.map).value
    except NotPositiveDefinite:
        return math.inf
