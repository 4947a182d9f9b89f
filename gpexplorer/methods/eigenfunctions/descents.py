"""Minimisation of a likelihood, one evaluation at a time: of an exact GP, and of regression on a finite basis."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any, Protocol

from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice
from ...linalg.randomness import generator, random_rows
from ...linalg.replayed_descent import Evaluated, Replayed, replayed_descent
from ...problem import Dataset, Kernel, Problem
from ..fixed_subset import learn_on_subset
from .evidence import evidence_gradient, regress

PATIENCE = 6  # a descent stops when this many evaluations together gain too little


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


Descent = Generator[Replayed, None, None]  # `extra` is the data fit, if the descent computes it


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
