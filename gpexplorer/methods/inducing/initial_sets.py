"""Inducing sets by name: a method may start where another one ends, at the hyperparameters that it starts with.

One of them is the centres of k-means, by Lloyd's iterations:

    r2_ij = |x_i - z_j|^2,   label_i = argmin_j r2_ij,   z_j = mean of the rows with label j

Initial centres are drawn as in k-means++: each next centre is a row, with probability proportional to its squared
distance from the nearest centre so far (Arthur and Vassilvitskii 2007).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.randomness import generator, random_rows
from ...problem import Problem
from ..own_points import InitialSet, Start, columns_of_numbers, nearest, own_inputs, own_rows, rows_near
from .distinct_rows import distinct_rows, random_order
from .selection.loop import InOrder, grow
from .selection.titsias import BestCandidate
from .selection.unsupervised import LargestVariance

ITERATIONS = 20  # of Lloyd's algorithm, where k-means only initialises another method
CLUSTERED_ROWS, CLUSTERED_PER_CENTRE = 50_000, 100  # of more rows than both say, it uses that many, drawn at random


def spread_rows(X: Float[Tensor, "n d"], m: int, seed: int) -> Tensor:
    """Draw up to m distinct rows far from each other, by k-means++.

    Returns
    -------
    Tensor [<= m]
        Fewer where fewer rows are distinct.

    Notes
    -----
    n m d flops.
    """
    rng = generator(seed, "centres")
    rows = [int(torch.randint(len(X), (1,), generator=rng))]
    nearest = _squared_distances(X, X[rows[0]])  # [n] squared distance from the nearest centre
    draws = torch.rand(m, generator=rng, dtype=torch.float64).tolist()
    for draw in draws[1:]:
        cumulative = nearest.double().cumsum(0)  # [n]
        if float(cumulative[-1]) <= 0.0:
            break
        row = int(torch.searchsorted(cumulative, draw * cumulative[-1], right=True).clamp_max(len(X) - 1))
        rows.append(row)
        nearest = torch.minimum(nearest, _squared_distances(X, X[row]))
    return torch.tensor(rows, dtype=torch.int64, device=X.device)


def _squared_distances(X: Float[Tensor, "n d"], z: Float[Tensor, " d"]) -> Float[Tensor, " n"]:
    """The squared distance of each row from one point, with the temporaries of one block of rows."""
    r2 = X.new_empty(len(X))
    for rows in row_blocks(len(X), 2 * X.element_size() * X.shape[1], X):
        torch.sum((X[rows] - z).square_(), 1, out=r2[rows])
    return r2


def lloyd(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "m d"], float]:
    """Do one iteration.

    Returns
    -------
    centres : Tensor [m, d]
        The mean of the rows nearest to each centre; a centre without rows stays.
    spread : float
        Mean squared distance from the nearest centre, before the iteration.

    Notes
    -----
    2 n m d flops.
    """
    sums, counts, spread = torch.zeros_like(Z), Z.new_zeros(len(Z)), 0.0
    for rows in row_blocks(len(X), X.element_size() * len(Z), X):
        near = nearest(X[rows], Z)
        spread += float(near.values.sum())
        sums.index_add_(0, near.indices, X[rows])
        counts.index_add_(0, near.indices, torch.ones_like(X[rows, 0]))
    centres = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1.0)[:, None], Z)
    return centres, spread / len(X)


def kmeans_centres(X: Float[Tensor, "n d"], m: int, seed: int) -> Float[Tensor, "m d"]:
    """Return centres after a few iterations from a k-means++ start, on a sample of the rows where there are many."""
    whole, size = X, max(CLUSTERED_ROWS, CLUSTERED_PER_CENTRE * m)
    if len(X) > size:
        X = X[random_rows(len(X), size, generator(seed, "clustered rows")).to(X.device)]
    rows = spread_rows(X, min(m, len(X)), seed)
    if len(rows) < m and len(X) < len(whole):  # rows that differ are rare, and not in the sample
        X = whole
        rows = spread_rows(X, m, seed)
    Z = X[rows].clone()
    for _ in range(ITERATIONS):
        Z, _ = lloyd(X, Z)
    return Z


CANDIDATES = 16  # of Titsias' selection
LEFT_SHARE = 0.14  # of the rows: those with the smallest first input, of which the start "left" takes m


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
    chosen = own_rows(name, problem)
    if isinstance(name[0], int):
        return chosen
    order = random_order(problem, seed, chosen)  # random rows replace equal ones
    return distinct_rows(problem.kernel, problem.theta, problem.train, order, len(name))


def start_inputs(name: Start, problem: Problem, m: int, seed: int) -> Tensor:
    """Choose up to m inducing inputs [m, d]: rows of the data, the centres of k-means, or points of one's own."""
    if not isinstance(name, str):
        return own_inputs(name, problem)
    X = columns_of_numbers(problem)
    return kmeans_centres(X, m, seed) if name == "kmeans" else X[start_rows(name, problem, m, seed)].clone()


def _random(problem: Problem, m: int, seed: int, _: str) -> Tensor:
    return distinct_rows(problem.kernel, problem.theta, problem.train, random_order(problem, seed), m)


def _kmeans(problem: Problem, m: int, seed: int, objective: str) -> Tensor:
    """Choose the rows nearest to the centres; random rows take the places of those that are explained."""
    X = columns_of_numbers(problem)
    near = rows_near(X, kmeans_centres(X, m, seed))
    return grow(problem, m, objective, InOrder(random_order(problem, seed, near)))


def rows_before_work(name: Start, problem: Problem, m: int, seed: int) -> Tensor:
    """Return the m rows that step 0 shows: for "left" its own, else random ones, since none is chosen yet."""
    return (_leftmost_first(problem, m) if name == "left" else random_order(problem, seed))[:m].clone()


def _left(problem: Problem, m: int, seed: int, _: str) -> Tensor:
    """Choose m of the leftmost rows, evenly in their order; a row that those explain is replaced from the right."""
    return distinct_rows(problem.kernel, problem.theta, problem.train, _leftmost_first(problem, m), m)


def _leftmost_first(problem: Problem, m: int) -> Tensor:
    """All rows [n]: m of the leftmost ones, evenly in their order, then the others from the left."""
    order = torch.argsort(columns_of_numbers(problem, 'The start "left"')[:, 0], stable=True)  # [n]
    n = len(order)
    last = min(n, max(m, int(LEFT_SHARE * n))) - 1
    places = torch.linspace(0, last, min(m, n), dtype=torch.float64, device=order.device).round().long()
    is_other = order.new_ones(n).bool()
    is_other[places] = False
    return torch.cat([order[places], order[is_other]])


STARTS: dict[str, Callable[[Problem, int, int, str], Tensor]] = {
    "random": _random,
    "kmeans": _kmeans,
    "greedy-variance": lambda problem, m, seed, objective: grow(problem, m, objective, LargestVariance(seed)),
    "titsias": lambda problem, m, seed, objective: grow(problem, m, objective, BestCandidate(CANDIDATES, seed)),
    "left": _left,
}
