"""Hyperparameters by maximum likelihood of an exact GP on a random subset of the rows."""

from __future__ import annotations

from collections.abc import Generator

from jaxtyping import Int
from torch import Tensor

from ..kernels.theta.restrictions import largest_derivative
from ..linalg.randomness import generator, random_rows
from ..linalg.replayed_descent import Evaluated, Replayed, replayed_descent
from ..noise_floor import descent_limits, noise_floor
from ..objectives import evidence
from ..problem import Problem


def subset_rows(problem: Problem, seed: int, size: int) -> Int[Tensor, " s"]:
    """Return the rows that `learn_on_subset` draws with this seed and size."""
    train = problem.train
    return random_rows(len(train), size, generator(seed, "subset")).to(train.y.device)


def learn_on_subset(
    problem: Problem, seed: int, size: int, evaluations: int, done: int = 0
) -> Generator[Replayed, None, bool | None]:
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
    done : int, default 0
        Evaluations that were yielded before; they are repeated, and not yielded again.

    Yields
    ------
    Replayed
        The best theta so far, with its negative log marginal likelihood on the subset, after each evaluation. The
        restrictions of the kernel hold. `extra` is the largest derivative there.

    Notes
    -----
    A theta at which the kernel matrix is not positive definite counts as very bad.
    """
    rows, floor = problem.train.rows(subset_rows(problem, seed, size)), noise_floor(problem)

    def likelihood(theta: Tensor) -> Evaluated:
        value, gradient = evidence(problem.kernel, theta, rows)
        theta, gradient = theta.cpu(), gradient.cpu()
        return Evaluated(value, gradient, largest_derivative(problem.kernel, theta, floor.along(theta, gradient)))

    return replayed_descent(likelihood, problem.theta, "L-BFGS-B", evaluations, done, **descent_limits(problem))
