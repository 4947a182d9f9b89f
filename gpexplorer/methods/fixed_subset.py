"""Hyperparameters by maximum likelihood of an exact GP on a random subset of the rows."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from ..errors import NotPositiveDefinite
from ..linalg.randomness import generator, random_rows
from ..linalg.scipy_descent import Evaluated, descend
from ..objectives import evidence
from ..problem import Problem


class Learned(NamedTuple):
    """The best theta so far, and its negative log marginal likelihood on the subset."""

    theta: Tensor  # [p]
    value: float


def subset_rows(problem: Problem, seed: int, size: int) -> Int[Tensor, " s"]:
    """Return the rows that `learn_on_subset` draws with this seed and size."""
    train = problem.train
    return random_rows(len(train), size, generator(seed, "subset")).to(train.y.device)


def learn_on_subset(problem: Problem, seed: int, size: int, evaluations: int) -> Generator[Learned, None, None]:
    """Minimise the negative log marginal likelihood of a random subset by L-BFGS.

    Parameters
    ----------
    problem : Problem
        The descent begins at its theta.
    seed : int
        The same seed draws the same rows.
    size : int
        Rows of the subset; all rows if there are fewer.
    evaluations : int
        Upper limit on the number of evaluations, each of size^3 flops.

    Yields
    ------
    Learned
        The best theta so far, after each evaluation. Its value never rises.

    Notes
    -----
    A theta at which the kernel matrix is not positive definite counts as very bad.
    """
    train, theta = problem.train, problem.theta
    rows = train.rows(subset_rows(problem, seed, size))

    def evaluate(point: np.ndarray) -> Evaluated | None:
        try:
            value, gradient = evidence(problem.kernel, torch.as_tensor(point).to(theta), rows)
        except NotPositiveDefinite:
            return None
        return Evaluated(value, gradient.double().cpu().numpy(), None)

    iterates = descend(evaluate, theta.double().cpu().numpy(), "L-BFGS-B", evaluations)
    try:
        for best in iterates:
            yield Learned(torch.as_tensor(best.point).to(theta), best.value)
    finally:
        iterates.close()
