"""Inducing sets by name: a method may start where another one ends, at the hyperparameters that it starts with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import param
import torch
from torch import Tensor

from ...errors import SettingError
from ...problem import Problem, described_rows
from .distinct_rows import distinct_rows, random_order
from .lloyd import kmeans_centres, rows_near
from .selection.loop import grow
from .selection.titsias import BestCandidate
from .selection.unsupervised import InOrder, LargestVariance

CANDIDATES = 16  # of Titsias' selection
LEFT_SHARE = 0.14  # of the rows: those with the smallest first input, of which the start "left" takes m


def start(default: str) -> Any:
    """Return the setting that names the initial inducing set."""
    return param.Selector(
        default=default,
        objects=list(STARTS),
        doc="Initial points: random rows, k-means centres, greedy conditional variance, Titsias' greedy selection, or "
        "left: rows bunched at the smallest values of the first input, a poor start from which swaps are seen to work.",
    )


def start_rows(name: str, problem: Problem, m: int, seed: int, objective: str = "vfe") -> Tensor:
    """Choose up to m rows of the training data; at most O(n m^2) flops.

    Parameters
    ----------
    name : str
        A key of `STARTS`.
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
    return STARTS[name](problem, m, seed, objective)


def start_inputs(name: str, problem: Problem, m: int, seed: int, objective: str = "vfe") -> Tensor:
    """Choose up to m inducing inputs [m, d]: rows of the data, except for k-means, which gives its centres."""
    X = _columns(problem)
    if name == "kmeans":
        return kmeans_centres(X, m, seed)
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
