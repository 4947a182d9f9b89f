"""Inducing sets by name: any rival may start where another one ends, at the hyperparameters it starts with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import param
from torch import Tensor

from ...errors import SettingError
from ...problem import Problem
from .distinct_rows import distinct_rows
from .lloyd import lloyd, rows_near, spread_rows
from .selection.greedy_variance import largest_variance
from .selection.loop import grown, random_order
from .selection.random_rows import in_order
from .selection.titsias import best_candidate

CANDIDATES, ITERATIONS = 16, 20  # of Titsias' selection, of Lloyd's


def start(default: str) -> Any:
    """The setting that names one."""
    return param.Selector(
        default=default,
        objects=list(STARTS),
        doc="Where the points start: random rows, k-means, greedy conditional variance, or Titsias' greedy selection.",
    )


def start_rows(name: str, problem: Problem, m: int, seed: int, objective: str = "vfe") -> Tensor:
    """Up to m rows of the training data: fewer only where fewer are distinct to rounding. At most O(n m^2)."""
    return STARTS[name](problem, m, seed, objective)


def start_inputs(name: str, problem: Problem, m: int, seed: int, objective: str = "vfe") -> Tensor:
    """Up to m inducing inputs [m, d]: the rows so named, or the centres themselves where they are k-means'."""
    X = _columns(problem)
    return centres(X, m, seed) if name == "kmeans" else X[start_rows(name, problem, m, seed, objective)].clone()


def centres(X: Tensor, m: int, seed: int) -> Tensor:
    """k-means centres after a few iterations [m, d]: 2 n m d flops each."""
    Z = X[spread_rows(X, min(m, len(X)), seed)].clone()
    for _ in range(ITERATIONS):
        Z, _ = lloyd(X, Z)
    return Z


def _columns(problem: Problem) -> Tensor:
    X = problem.train.X
    if not isinstance(X, Tensor):
        raise SettingError(
            f"Distances between inputs take columns of numbers, but the inputs are {type(X[0]).__name__} objects; "
            'start from "random", "greedy-variance" or "titsias".'
        )
    return X


def _random(problem: Problem, m: int, seed: int, _: str) -> Tensor:
    return distinct_rows(problem.kernel, problem.theta, problem.train, random_order(problem, seed), m)


def _kmeans(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    X = _columns(problem)
    order = rows_near(X, centres(X, m, seed))
    rest = random_order(problem, seed)
    return grown(problem, m, objective, in_order(_first(order, rest)))


def _first(rows: Tensor, rest: Tensor) -> Tensor:
    """These rows, then all others."""
    keep = rest.new_ones(len(rest)).bool()
    keep[rows] = False
    return rows.new_tensor([*rows.tolist(), *rest[keep[rest]].tolist()])


def _greedy_variance(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    return grown(problem, m, objective, largest_variance(seed))


def _titsias(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    return grown(problem, m, objective, best_candidate(CANDIDATES, seed))


STARTS: dict[str, Callable[[Problem, int, int, str], Tensor]] = {
    "random": _random,
    "kmeans": _kmeans,
    "greedy-variance": _greedy_variance,
    "titsias": _titsias,
}
