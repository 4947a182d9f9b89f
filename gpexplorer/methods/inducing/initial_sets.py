"""Inducing sets by name: a method may start where another one ends, at the hyperparameters that it starts with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import param
import torch
from torch import Tensor

from ...errors import SettingError
from ...kernels.row_scaled import input_count
from ...problem import Problem, described_rows
from .distinct_rows import distinct_rows, random_order
from .lloyd import kmeans_centres, rows_near
from .selection.loop import grow
from .selection.titsias import BestCandidate
from .selection.unsupervised import InOrder, LargestVariance

CANDIDATES = 16  # of Titsias' selection
Start = str | list[int] | list[list[float]]
LEFT_SHARE = 0.14  # of the rows: those with the smallest first input, of which the start "left" takes m


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


def start(default: str) -> Any:
    """Return the setting that names the initial inducing set."""
    return InitialSet(
        default=default,
        objects=list(STARTS),
        doc="Initial points: random rows, k-means centres, greedy conditional variance, Titsias' greedy selection, or "
        "left: rows bunched at the smallest values of the first input, a poor start from which swaps are seen to work. "
        "In Python also a list of row numbers, or of points in the units of the file.",
    )


def start_rows(name: Start, problem: Problem, m: int, seed: int, objective: str = "vfe") -> Tensor:
    """Choose up to m rows of the training data; at most O(n m^2) flops.

    Parameters
    ----------
    name : str or list
        A key of `STARTS`, row numbers, or points in the units of the file, whose nearest rows are chosen.
    objective : {"vfe", "tight-vfe", "pp"}
        What Titsias' selection decreases.

    Returns
    -------
    Tensor [<= m]
        Fewer only where fewer rows are distinct to rounding.

    Raises
    ------
    SettingError
        "kmeans" and "left" need columns of numbers, and the inputs are objects.
    """
    if isinstance(name, str):
        return STARTS[name](problem, m, seed, objective)
    if isinstance(name[0], int):
        return _own_rows(name, problem)
    X, Z = _columns(problem, "A start from points"), _own_points(name, problem)
    near, others = rows_near(X, Z), random_order(problem, seed)
    is_other = others.new_ones(len(others)).bool()
    is_other[near] = False
    order = torch.cat([near, others[is_other[others]]])  # [n] near ones first; random rows replace equal ones
    return distinct_rows(problem.kernel, problem.theta, problem.train, order, len(name))


def _own_rows(rows: list[int], problem: Problem) -> Tensor:
    n = len(problem.train)
    if max(rows) >= n:
        raise SettingError(f"The start has row {max(rows)}, but there are {n} training rows, from 0 to {n - 1}.")
    return torch.tensor(rows, device=problem.train.y.device)


def _own_points(points: list[list[float]], problem: Problem) -> Tensor:
    """The points [m, d] in the scaled space, with a last column of ones where rows have one of their own noise."""
    train, d = problem.train, input_count(problem)
    if len(points[0]) != d:
        raise SettingError(f"The points of the start have {len(points[0])} numbers, but the data have {d} inputs.")
    Z = torch.tensor(points, dtype=torch.float64)
    if train.scale is not None:
        Z = train.scale.scaled_inputs(Z)
    return torch.cat([Z, Z.new_ones(len(Z), train.d - d)], 1).to(train.X)


def start_inputs(name: Start, problem: Problem, m: int, seed: int, objective: str = "vfe") -> Tensor:
    """Choose up to m inducing inputs [m, d]: rows of the data, the centres of k-means, or points of one's own."""
    X = _columns(problem)
    if name == "kmeans":
        return kmeans_centres(X, m, seed)
    if not isinstance(name, str) and not isinstance(name[0], int):
        return _own_points(name, problem)
    return X[start_rows(name, problem, m, seed, objective)].clone()


def _columns(problem: Problem, name: str = "k-means") -> Tensor:
    X = problem.train.X
    if not isinstance(X, Tensor):
        raise SettingError(
            f"{name} needs columns of numbers, but the inputs are {described_rows(X)}; "
            'start from "random", "greedy-variance" or "titsias".'
        )
    return X


def _random(problem: Problem, m: int, seed: int, _: str) -> Tensor:
    return distinct_rows(problem.kernel, problem.theta, problem.train, random_order(problem, seed), m)


def _kmeans(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    """Choose the rows nearest to the centres; random rows take the places of those that are explained."""
    X = _columns(problem)
    near, others = rows_near(X, kmeans_centres(X, m, seed)), random_order(problem, seed)
    is_other = others.new_ones(len(others)).bool()
    is_other[near] = False
    order = torch.cat([near, others[is_other[others]]])  # [n]
    return grow(problem, m, objective, InOrder(order))


def _greedy_variance(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    return grow(problem, m, objective, LargestVariance(seed))


def _titsias(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    return grow(problem, m, objective, BestCandidate(CANDIDATES, seed))


def _left(problem: Problem, m: int, seed: int, _: str) -> Tensor:
    """Choose m of the leftmost rows, evenly in their order; a row that those explain is replaced from the right."""
    order = torch.argsort(_columns(problem, 'The start "left"')[:, 0], stable=True)  # [n]
    n = len(order)
    last = min(n, max(m, int(LEFT_SHARE * n))) - 1
    places = torch.linspace(0, last, min(m, n), dtype=torch.float64, device=order.device).round().long()
    is_other = order.new_ones(n).bool()
    is_other[places] = False
    return distinct_rows(problem.kernel, problem.theta, problem.train, torch.cat([order[places], order[is_other]]), m)


STARTS: dict[str, Callable[[Problem, int, int, str], Tensor]] = {
    "random": _random,
    "kmeans": _kmeans,
    "greedy-variance": _greedy_variance,
    "titsias": _titsias,
    "left": _left,
}
