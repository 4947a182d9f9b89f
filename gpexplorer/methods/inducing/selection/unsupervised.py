"""Three methods that choose inducing points by the inputs alone and never look at the targets.

    random            rows in random order, except those already explained
    greedy-variance   j = argmax D_j,   D = diag(K - K_hat)                                     pivoted Cholesky
    ivm               j = argmax 1/2 log(1 + zeta_j / s2),   zeta = diag(K - K_I (K_II + s2 I)^-1 K_I')
                      u = (k_j - U u_j) / sqrt(zeta_j + s2),   zeta <- zeta - u^2

Random rows are the baseline for every choice. Greedy conditional variance takes the row that the points so far explain
least (Fine and Scheinberg 2001; Burt, Rasmussen and van der Wilk 2020, whose bounds make it the usual choice today).
The informative vector machine takes the row whose noisy observation decreases the entropy most (Lawrence, Seeger and
Herbrich 2003). With one noise variance for all rows this is the row of largest zeta; in contrast to greedy variance, a
chosen row is known only up to its noise. In all three the hyperparameters are learned on the objective of the family,
as in Cao et al. (2013), section 4.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....objectives import is_kept, noise_variance
from ....problem import Cost, Problem
from .. import settings
from ..distinct_rows import random_order
from ..reporting import entry_flops
from .loop import SHORTLIST, InOrder, RowRule, RowSelection, choosing_cost
from .streamed_gp import GrowingGP, GrowingModel, StreamedGP

TIE = 1e-9  # values that differ by less than this, relatively, are equal
NOISY_FACTOR_CALLS = 35.0  # tensor operations per point for the noisy factor U of the informative vector machine


class Random(RowSelection):
    """Rows drawn at random, except those already explained; then hyperparameters on the same objective."""

    key: ClassVar[str] = "random"
    title: ClassVar[str] = "Random rows"
    paper: ClassVar[str] = "Cao et al. (2013). Efficient optimization for sparse Gaussian process regression. NIPS."
    equations: ClassVar[dict[str, str]] = {"num_inducing": r"\hat K = K_{nm} K_{mm}^{-1} K_{mn}"}

    def rule(self, problem: Problem, theta: Tensor) -> RowRule:
        return InOrder(random_order(problem, self.seed))

    def cost(self, problem: Problem) -> Cost:
        m = self.num_points(len(problem.train))
        return choosing_cost(problem, m, 0, passes=1.0 / m)


class GreedyVariance(RowSelection):
    """The row with the largest conditional variance, one after another; ties are broken at random."""

    key: ClassVar[str] = "greedy-variance"
    title: ClassVar[str] = "Greedy conditional variance"
    paper: ClassVar[str] = "Burt, Rasmussen & van der Wilk (2020). Convergence of sparse variational inference. JMLR."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"i_{k+1} = \arg\max_j \left[k(x_j,x_j) - \hat K_{jj}\right]"
    }

    again = settings.again()

    def rule(self, problem: Problem, theta: Tensor) -> RowRule:
        return LargestVariance(self.seed)


class LargestVariance(RowRule):
    """Takes the row of largest conditional variance."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def choose(self, model: GrowingModel, epoch: int) -> int:
        if not bool(model.is_eligible.any()):
            return -1
        return argmax_of_ties(model.D.where(model.is_eligible, 0.0), self.seed, epoch, len(model.rows))

    def choose_several(self, model: StreamedGP, epoch: int) -> list[int]:
        """Return the row of largest variance, and those after it that follow from a shortlist."""
        return shortlisted_rows(model, model.D, (self.seed, epoch), lambda some, _: lambda: some.D)


class IVM(RowSelection):
    """The row whose noisy observation decreases the entropy of the posterior most, one after another."""

    key: ClassVar[str] = "ivm"
    title: ClassVar[str] = "Informative vector machine"
    paper: ClassVar[str] = "Lawrence, Seeger & Herbrich (2003). The informative vector machine. NIPS."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"i_{k+1} = \arg\max_j \tfrac12\log\left(1 + \zeta_j/\sigma^2\right)"
    }

    again = settings.again()

    def rule(self, problem: Problem, theta: Tensor) -> RowRule:
        n, m = len(problem.train), self.num_points(len(problem.train))
        keeps_columns = is_kept(n, m, problem.train.y.element_size())
        return LargestEntropyReduction(problem, theta, m, self.seed, keeps_columns)

    def cost(self, problem: Problem) -> Cost:
        n, s = len(problem.train), problem.train.y.element_size()
        m = self.num_points(n)
        cost = choosing_cost(problem, m, 0)
        if not is_kept(n, m, s):
            return cost.plus(cost.flops, cost.bytes, cost.calls)  # as many passes again, for zeta
        arrays = {"noisy factor U": 1.0 * s * n * m}
        return cost.plus(n * (m + entry_flops(problem)), s * n * (0.5 * m + 12.0), NOISY_FACTOR_CALLS, **arrays)


class LargestEntropyReduction(RowRule):
    """Takes the row of largest variance given noisy observations of the rows so far.

    Parameters
    ----------
    theta : Tensor [p]
    most : int
        Largest number of rows that can join.
    keeps_columns : bool, default True
        Without the columns of U, zeta is computed by passes over the rows.

    Notes
    -----
    Memory is n m numbers. A row that joins costs one kernel column and one read of U.
    """

    def __init__(self, problem: Problem, theta: Tensor, most: int, seed: int, keeps_columns: bool = True) -> None:
        self.problem, self.theta, self.seed = problem, theta, seed
        self.s2, self.count = noise_variance(theta), 0
        self.zeta, self.Ut = problem.train.y.new_zeros(0), problem.train.y.new_zeros(0, 0)
        self.keeps_columns = keeps_columns
        if keeps_columns:
            self.zeta = problem.kernel.diag(theta, problem.train.X).clone()  # [n] is changed in place
            self.Ut = problem.train.y.new_zeros(most, len(problem.train))  # [m, n]

    def choose(self, model: GrowingModel, epoch: int) -> int:
        if not bool(model.is_eligible.any()):
            return -1
        return argmax_of_ties(self.zeta.where(model.is_eligible, 0.0), self.seed, epoch, self.count)

    def choose_several(self, model: StreamedGP, epoch: int) -> list[int]:
        """Return several rows as greedy variance does: the variances given noisy observations only decrease too."""

        def values_on(some: GrowingGP, index: Tensor) -> Callable[[], Tensor]:
            rows = Problem(model.train.rows(index), model.kernel, model.theta)
            rule = LargestEntropyReduction(rows, model.theta, model.most, self.seed)

            def values() -> Tensor:
                for row in some.rows[rule.count :].tolist():
                    rule.joined(row)
                return rule.zeta

            return values

        return shortlisted_rows(model, model.variances(self.s2), (self.seed, epoch), values_on)

    def joined(self, row: int) -> None:
        train, k = self.problem.train, self.count
        self.count += 1
        if not self.keeps_columns:
            return
        X = train.rows(torch.tensor([row], device=self.zeta.device)).X
        column = self.problem.kernel(self.theta, X, train.X)[0] - self.Ut[:k, row] @ self.Ut[:k]  # [n]
        u = column / (self.zeta[row] + self.s2).sqrt()
        self.Ut[k] = u
        self.zeta.addcmul_(u, u, value=-1.0).clamp_min_(0.0)


def shortlisted_rows(
    model: StreamedGP,
    values: Tensor,
    seed_and_epoch: tuple[int, int],
    values_on: Callable[[GrowingGP, Tensor], Callable[[], Tensor]],
) -> list[int]:
    """Return the row of largest value, and those after it as long as no row outside a shortlist can have a larger one.

    A value only decreases when points join. So a row of the shortlist whose value is still larger than all outside the
    shortlist were before is the next one for certain.

    Parameters
    ----------
    values : Tensor [n]
        Of all rows, at present.
    seed_and_epoch : tuple of two int
        They determine the choice among equal values.
    values_on : callable
        Takes a model of some rows, and their indices; returns a function that gives their values at present.
    """
    values = values.where(model.is_eligible, 0.0)
    if float(values.max()) <= 0.0:
        return []
    first = argmax_of_ties(values, *seed_and_epoch, len(model.rows))
    top = values.topk(min(SHORTLIST + 1, len(values)))
    outside = float(top.values[SHORTLIST]) if len(values) > SHORTLIST else 0.0
    some, index = model.among([first], top.indices[:SHORTLIST])
    of_some, chosen = values_on(some, index), [first]
    while len(some.rows) < model.most:
        present = of_some().where(some.is_eligible, 0.0)
        if not float(present.max()) * (1.0 - TIE) > outside:
            break
        row = argmax_of_ties(present, *seed_and_epoch, len(some.rows))
        some.add(row)
        chosen.append(int(index[row]))
    return chosen


def argmax_of_ties(values: Tensor, seed: int, *place: int) -> int:
    """Return the index of the largest value [n]; a random one of them if several are equal to rounding.

    Parameters
    ----------
    values : Tensor [n]
    *place : int
        With the seed, they determine the random choice.
    """
    largest = float(values.max())
    tied = torch.nonzero(values >= largest - TIE * abs(largest))[:, 0]
    if len(tied) == 1:
        return int(tied[0])
    return int(tied[int(torch.randint(len(tied), (1,), generator=generator(seed, "ties", *place)))])
