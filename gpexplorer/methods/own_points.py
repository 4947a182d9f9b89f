"""Inducing points of a person's own: row numbers, or points in the units of the file, also those of another run.

Each method with inducing points has the setting `start`, which takes such a list beside the names of its own initial
sets. A method that chooses among the rows takes the rows nearest to the points.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import param
import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import SettingError
from ..kernels.row_scaled import input_count
from ..problem import Problem, described_rows

Start = str | list[int] | list[list[float]]
IN_PYTHON = "In Python a list of row numbers, or of points in the units of the file."


class InitialSet(param.Selector):  # type: ignore[type-arg]
    """The name of an initial set, or one's own: row numbers [m], or points [m, d] in the units of the file."""

    lists: ClassVar[str] = "a list of row numbers, or of points with one number per input"

    def _validate(self, val: Any) -> None:
        if isinstance(val, str) or val is None:
            super()._validate(val)
        else:
            self.checked(val)

    def checked(self, value: Any) -> str | list[int] | list[list[float]]:
        """Return the value with lists as JSON has them; ValueError if it is neither a name nor such a list."""
        if isinstance(value, str) and value in self.objects:
            return value
        try:
            points = np.asarray(value)
        except ValueError:  # lists of different lengths
            points = np.empty(0)
        if points.dtype.kind == "i" and points.ndim == 1 and len(points) == len(set(points.tolist())) > 0:
            if (points >= 0).all():
                return [int(row) for row in points]
        elif points.dtype.kind in "if" and points.ndim == 2 and points.size and np.isfinite(points).all():
            return [[float(number) for number in point] for point in points]
        raise ValueError(f"{self.name} is none of {', '.join(self.objects)}, nor {self.lists}")


def own_start(default: str, what: str) -> Any:
    """Return the setting of a method that has one initial set of its own, which the page does not ask for."""
    return InitialSet(default=default, objects=[default], precedence=-1, doc=f"{what} {IN_PYTHON}")


def number_of_points(start: Start, otherwise: int, n: int) -> int:
    """Return how many points there are: as many as are given, or `otherwise`, and no more than the n rows."""
    return min(otherwise if isinstance(start, str) else len(start), n)


def own_rows(start: Start, problem: Problem) -> Tensor:
    """Return the rows that are given, or those nearest to the points that are given; none for a name.

    Returns
    -------
    Tensor [<= m]
        Distinct rows; fewer than m where several points are near to one row.

    Raises
    ------
    SettingError
        If there is no such row, or a point has another number of inputs than the data.
    """
    if isinstance(start, str):
        return torch.zeros(0, dtype=torch.int64, device=problem.train.y.device)
    if not isinstance(start[0], int):
        X = columns_of_numbers(problem, "A start from points")
        return rows_near(X, own_inputs(start, problem))
    n = len(problem.train)
    if max(start) >= n:
        raise SettingError(f"The start has row {max(start)}, but there are {n:,} training rows, from 0 to {n - 1}.")
    return torch.tensor(start, device=problem.train.y.device)


def own_inputs(start: Any, problem: Problem) -> Float[Tensor, "m d"]:
    """Return points, or the inputs of rows, in the scaled space.

    Where rows have a noise of their own, their inputs have a last column, which is one for the points.
    """
    train, d = problem.train, input_count(problem)
    if isinstance(start[0], int):
        return columns_of_numbers(problem, "A start from rows")[own_rows(start, problem)].clone()
    if len(start[0]) != d:
        raise SettingError(f"The points of the start have {len(start[0]):,} numbers, but the data have {d} inputs.")
    Z = torch.tensor(start, dtype=torch.float64)
    if train.scale is not None:
        Z = train.scale.scaled_inputs(Z)
    return torch.cat([Z, Z.new_ones(len(Z), train.d - d)], 1).to(train.X)


def rows_near(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> Tensor:
    """Return the distinct rows of X nearest to the points Z: at most m of them, in the order of Z."""
    rows = nearest(Z, X).indices.tolist()
    return torch.tensor(list(dict.fromkeys(rows)), dtype=torch.int64, device=X.device)


def nearest(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> torch.return_types.min:
    """Find the nearest of Z for each row of X: squared distances (`values`) and indices (`indices`), each [n]."""
    centre = Z.mean(0)
    A, B = X - centre, Z - centre
    r2 = torch.addmm(B.square().sum(1).expand(len(A), -1), A, B.T, alpha=-2.0) + A.square().sum(1)[:, None]  # [n, m]
    return r2.clamp_min_(0.0).min(1)


def columns_of_numbers(problem: Problem, name: str = "k-means") -> Tensor:
    """Return the inputs [n, d]; SettingError if they are objects."""
    X = problem.train.X
    if not isinstance(X, Tensor):
        raise SettingError(
            f"{name} needs columns of numbers, but the inputs are {described_rows(X)}; "
            'start from "random", "greedy-variance" or "titsias".'
        )
    return X
