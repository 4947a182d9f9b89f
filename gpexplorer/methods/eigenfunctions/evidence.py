"""Bayesian linear regression on p basis functions: likelihood and gradient in two passes over the rows.

    K ~ Phi Phi',  A = Phi'Phi + s2 I [p, p],  c = Phi'y [p],  w = A^-1 c [p]
    NLML = ((y'y - c'w) / s2 + (n - p) log s2 + log |A|) / 2                              eq 18 with W = I, P = A

Equation numbers refer to Evans and Nair (2018). The model and its gradient are those of `linalg.gaussian`. The rows are
read in strips, here or on the workers of a cluster, so that memory is O(p^2) and one block of Phi.

The descents at the end minimise this likelihood, or that of an exact GP on a few rows, one evaluation at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice
from ...linalg.blocks import Map, Sums, add_gram_, row_blocks, sum_of_squares, sum_over_rows, symmetric_from_lower
from ...linalg.gaussian import LinearGaussian, Pullback, linear_gaussian
from ...linalg.randomness import generator, random_rows
from ...linalg.replayed_descent import Evaluated, Replayed, replayed_descent
from ...objectives import noise_variance
from ...problem import Dataset, Kernel, Problem
from ..fixed_subset import learn_on_subset

AXIS_NUMBERS = 32  # numbers per row and input that an evaluation of Phi needs: about four per grid point of an axis
PATIENCE = 6  # a descent stops when this many evaluations together gain too little
Descent = Generator[Replayed, None, None]  # `extra` is the data fit, if the descent computes it


def regress(choice: Choice, theta: Tensor, train: Dataset, mapper: Map = map) -> LinearGaussian:
    """Fit the weights of the basis functions and evaluate the likelihood.

    Parameters
    ----------
    choice : Choice
        The p basis functions.
    theta : Tensor [P]
        Hyperparameters; the last entry is the log noise standard deviation.
    train : Dataset
        n rows.
    mapper : callable, default the builtin map
        Does the strips of rows, perhaps on a cluster.

    Raises
    ------
    NotPositiveDefinite
        If A has no Cholesky factor.

    Notes
    -----
    The cost is n p^2 flops and O(p^2 + block) memory.
    """
    A, c = gram_products(choice, theta, train, mapper)  # [p, p], [p]
    return linear_gaussian(A, c, len(train), sum_of_squares(train.y), noise_variance(theta))  # eq 18


def gram_products(choice: Choice, theta: Tensor, train: Dataset, mapper: Map = map) -> tuple[Tensor, Tensor]:
    """Return Phi'Phi [p, p] and Phi'y [p] from one pass over the rows. n p^2 flops; memory O(p^2 + block)."""
    A, c = sum_over_rows(partial(strip_products, choice, theta.detach()), (train.X, train.y), mapper)
    return symmetric_from_lower(A), c


def strip_products(choice: Choice, theta: Tensor, strip: tuple[Tensor, ...]) -> Sums:
    """Return the lower triangle of Phi'Phi [p, p], and Phi'y [p], of one strip of rows."""
    (X, y), p = strip, len(choice)
    A, c = y.new_zeros(p, p), y.new_zeros(p)
    with torch.no_grad():
        basis = choice(theta)
        for rows in row_blocks(len(y), _row_bytes(choice, X, 1.5), y):
            F = basis(X[rows])  # [p, block]
            add_gram_(A, F)
            c.addmv_(F, y[rows])
    return A, c


def evidence_gradient(
    choice: Choice, theta: Tensor, train: Dataset, regression: LinearGaussian, mapper: Map = map
) -> Tensor:
    """Return dNLML/dtheta [P] while the choice of functions stays the same.

    Parameters
    ----------
    choice, theta, train, mapper : Choice, Tensor, Dataset and Map
        As for `regress`.
    regression : LinearGaussian
        The result of `regress` at the same theta.

    Notes
    -----
    The cost is 2 n p^2 flops and a backward pass through Phi.
    """
    model = regression.pullback()
    part = partial(strip_gradient, choice, theta.detach(), model)
    gradient, beta_beta = sum_over_rows(part, (train.X, train.y), mapper)  # [P], []
    gradient[-1] += 2.0 * regression.s2 * model.by_noise(beta_beta)  # d s2 / d log s = 2 s2
    return gradient


def strip_gradient(choice: Choice, theta: Tensor, model: Pullback, strip: tuple[Tensor, ...]) -> Sums:
    """Return the part of dNLML/dtheta [P] that goes through Phi, and beta'beta, of one strip of rows."""
    (X, y), total, beta_beta = strip, torch.zeros_like(theta), torch.zeros_like(theta[0])
    for rows in row_blocks(len(y), _row_bytes(choice, X, 3.0), y):
        leaf = theta.clone().requires_grad_(True)
        with torch.enable_grad():
            F = choice(leaf)(X[rows])  # [p, block]
            beta = model.beta(F.detach(), y[rows])
            (gradient,) = torch.autograd.grad((F * model.columns(F.detach(), beta)).sum(), leaf)
        total += gradient
        beta_beta += beta @ beta
    return total, beta_beta


def _row_bytes(choice: Choice, X: Tensor, copies: float) -> int:
    """Bytes per row of a block: `copies` of its functions, and its covariances with the grid points of each axis."""
    return int(X.element_size() * (copies * len(choice) + AXIS_NUMBERS * X.shape[1]))


class Learner(Protocol):
    """The settings that learning reads from a method."""

    seed: Any  # int
    learn: Any  # bool
    subset: Any  # int, rows
    starts: Any  # int, initial values
    evaluations: Any  # int, per descent
    max_rounds: Any  # int
    tolerance: Any  # float, a fraction of the NLML

    @property
    def map(self) -> Callable[..., Iterable[Any]]:
        """Does independent pieces of work."""


def exact_descent(learner: Learner, problem: Problem, initial: Tensor) -> Descent:
    """Minimise the NLML of an exact GP on the random subset, from theta = `initial`. O(subset^3) per evaluation."""
    started = Problem(problem.train, problem.kernel, initial)
    return learn_on_subset(started, learner.seed, learner.subset, learner.evaluations)


def basis_descent(learner: Learner, kernel: Kernel, choice: Choice, rows: Dataset, initial: Tensor) -> Descent:
    """Minimise the NLML of regression on a fixed choice of functions. 3 n p^2 flops per evaluation.

    A theta has no value where no factor exists, or a chosen eigenvalue is below rounding error.
    """

    def likelihood(theta: Tensor) -> Evaluated:
        regression = regress(choice, theta, rows, learner.map)
        gradient = evidence_gradient(choice, theta, rows, regression, learner.map)
        return Evaluated(regression.value, gradient, regression.fit)

    limit = learner.evaluations if learner.learn else 1
    return replayed_descent(
        likelihood, initial, "L-BFGS-B", limit, undefined=(NotPositiveDefinite, IndexError),
        restrictions=getattr(kernel, "restrictions", None) if learner.learn else None,
    )  # fmt: skip


def subset_rows(learner: Learner, problem: Problem) -> Dataset:
    """Return the random rows on which initial values are tried."""
    sample = random_rows(len(problem.train), learner.subset, generator(learner.seed, "subset"))
    return problem.train.rows(sample.to(problem.train.y.device))


def until_no_gain(descent: Descent, tolerance: float) -> Descent:
    """Follow a descent until PATIENCE evaluations lower the NLML by no more than the fraction `tolerance` of it."""
    values: list[float] = []
    with closing(descent):
        for best in descent:
            yield best
            values.append(best.value)
            previous = values[-1 - PATIENCE] if len(values) > PATIENCE else float("inf")
            if previous - best.value <= tolerance * max(abs(best.value), 1.0):
                return
