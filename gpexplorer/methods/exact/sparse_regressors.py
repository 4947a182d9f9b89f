"""Sparse models whose regressors are training rows: a random subset, or the best of a random pool (matching pursuit).

    f(x) = k(x, Z) a,   a = argmin |y - K_nm a|^2 / 2 + s2 a'K_mm a / 2           Z = X[inducing]

theta is learned first, on a random subset. Then a few rows become regressors at every step, until there are
`num_regressors`. Subclasses of `SparseModel` choose the rows.

    f = K_nm a,   E = |y - f|^2 / 2 + s2 a'K_mm a / 2                       least squares with the GP's own prior
    V = L_mm^-1 K_mn,   min E = (y'y - h'h) / 2                             h of `linalg.gaussian` with Phi = V'
    gain_i = (k_i'(y - f) - s2 f_i)^2 / (2 (|k_i|^2 + s2 k_ii))             decrease of E if row i alone joins

The gain is that of Keerthi and Chu (2006). Both factors, L_mm of K_mm and that of A = V V' + s2 I, grow by borders.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky, independent_rows
from ...linalg.gaussian import GrowingGaussian
from ...linalg.randomness import generator
from ...objectives import noise_variance, nystrom
from ...posteriors import Posterior, PriorPosterior, nystrom_posterior
from ...problem import Cost, Outcome, Problem, Step, channel, take
from ..base import Steps, begun
from ..setting_kinds import count
from .settings import LearnsOnSubset
from .system import CALLS_PER_GAINS, CALLS_PER_JOIN, FLOPS_PER_ENTRY, fill_calls


class GrowingFit:
    """The penalised least-squares fit of a set of regressors to which rows are added.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    theta : Tensor [p]
        Log-hyperparameters.
    most : int
        Largest number of regressors; memory for them is allocated at once, n numbers each.

    Attributes
    ----------
    rows : Tensor [m]
        The regressors, in the order in which they joined.
    f : Tensor [n]
        The fit at the training rows.
    residual_variance : Tensor [n]
        Prior variance that the regressors do not explain.
    jitter : float
        Largest jitter that a border of K_mm needed.
    skipped : int
        Rows that were to join and did not, because the regressors before them explain them to rounding.
    """

    def __init__(self, problem: Problem, theta: Tensor, most: int) -> None:
        self.kernel, self.theta, self.train = problem.kernel, theta, problem.train
        self.s2, self.m, self.jitter, self.skipped = noise_variance(theta), 0, 0.0, 0
        y, most = problem.train.y, min(most, len(problem.train))
        self.rows = torch.zeros(0, dtype=torch.int64, device=y.device)
        self.V, self.f = y.new_empty(most, len(y)), torch.zeros_like(y)
        self.L_mm, self.gaussian = y.new_zeros(most, most), GrowingGaussian(most, self.s2, y)
        self.diag = problem.kernel.diag(theta, problem.train.X)  # [n]
        self.residual_variance = self.diag.clone()

    @property
    def residual_floor(self) -> float:
        """Residual variance at or below which a row adds nothing but rounding."""
        return 1e3 * torch.finfo(self.diag.dtype).eps * float(self.diag.max())

    def columns(self, rows: Tensor) -> Tensor:
        """Kernel rows K[rows] [c, n]."""
        return self.kernel(self.theta, take(self.train.X, rows), self.train.X)

    def join(self, new: Tensor) -> None:
        """Add rows [c]: extend both factors by a border and fit again. n m c flops, n c kernel entries.

        Rows that the regressors and the rows before them explain are skipped, so that the border of K_mm has a factor.
        """
        V, K = self.V[: self.m], self.columns(new)  # [m, n], [c, n]
        l = V[:, new].T  # noqa: E741 - [c, m], the border of L_mm
        border = K.index_select(1, new) - l @ l.T  # [c, c]
        trial, failed = torch.linalg.cholesky_ex(border)
        if bool(failed) or bool((trial.diagonal().square() <= self.residual_floor).any()):
            kept = independent_rows(border, torch.full_like(self.f[: len(new)], self.residual_floor))
            explained = torch.ones_like(new, dtype=torch.bool).index_fill_(0, kept, False)
            self.residual_variance[new[explained]] = 0.0
            self.skipped += len(new) - len(kept)
            new, K, l, border = new[kept], K[kept], l[kept], border[kept][:, kept]  # noqa: E741
        if not len(new):
            return
        m, end = self.m, self.m + len(new)
        L, jitter = cholesky(border, "K_mm of the regressors [border]", largest=1e-2)
        self.L_mm[m:end, :m], self.L_mm[m:end, m:end] = l, L
        self.V[m:end] = torch.linalg.solve_triangular(L, K.addmm_(l, V, alpha=-1.0), upper=False)

        V_new = self.V[m:end]  # [c, n]
        self.gaussian.join(V @ V_new.T, V_new @ V_new.T, V_new @ self.train.y, "V V' + s2 I [border]")
        self.m, self.rows, self.jitter = end, torch.cat([self.rows, new]), max(self.jitter, jitter)
        self.f = self.V[:end].T @ self.gaussian.weights
        self.residual_variance = (self.residual_variance - V_new.square().sum(0)).clamp_min_(0.0)
        self.residual_variance[new] = 0.0

    @property
    def value(self) -> float:
        """The minimum of E over the weights of these regressors: (y'y - h'h) / 2."""
        return 0.5 * (float(self.train.y @ self.train.y) - float(self.gaussian.h.square().sum()))

    def gains(self, rows: Tensor) -> Tensor:
        """Decrease of E [c] if each row alone joined; -inf for a row that adds nothing. n kernel entries per row."""
        residual, gain = self.train.y - self.f, self.f.new_empty(len(rows))
        for block in row_blocks(len(rows), self.f.element_size() * len(self.f), self.f):
            index = rows[block]
            K = self.columns(index)  # [block, n]
            derivative = K @ residual - self.s2 * self.f[index]
            gain[block] = derivative.square() / (2.0 * (K.square().sum(1) + self.s2 * self.diag[index]))
        return gain.masked_fill(self.residual_variance[rows] <= self.residual_floor, -torch.inf)


class SparseState(NamedTuple):
    """All that the rest of a run depends on."""

    step: int
    phase: str  # what the step was part of: "learn" (hyperparameters) or "grow" (regressors)
    position: int  # steps done in this phase
    theta: Tensor  # [p]
    inducing: Tensor  # int64 [m] the regressors, in the order in which they joined
    slope: float = 0.0  # largest derivative of the likelihood of the subset at theta, if too large for an optimum
    unlearned: str = ""  # why learning on the subset ended before an optimum; empty if it did not


class SparseInfo(NamedTuple):
    """What a step reports. Channels that do not apply are nan."""

    phase: str
    # E at its minimum over the weights
    objective: Annotated[float, channel("penalised squares E", monotone=True)] = math.nan
    # negative log marginal likelihood on the subset, while theta is learned
    evidence: Annotated[float, channel("NLML on the subset", "nat")] = math.nan
    jitter: Annotated[float, channel("jitter on K_mm", log=True)] = math.nan  # the largest
    active: Tensor = torch.zeros(0, dtype=torch.int64)  # the rows that joined


class SparseModel(LearnsOnSubset):
    """Base class of models with few regressors; a subclass chooses the rows that join (`choose`).

    Notes
    -----
    A step adds `growth` rows, in chunks; the fit is updated after each chunk. Memory: num_regressors numbers per row.
    """

    family: ClassVar[str] = "exact"
    State: ClassVar[type] = SparseState
    Info: ClassVar[type] = SparseInfo

    num_regressors = count(
        500,
        (50, 2000),
        doc="Number of rows that become regressors. The paper uses 2000. Each takes n numbers of memory.",
    )
    growth = count(50, (1, 200), doc="Number of rows that join in one step.")
    chunk: Any  # number of rows that join before the fit is updated, a setting of each subclass

    @abstractmethod
    def choose(self, fit: GrowingFit, count: int) -> Tensor:
        """The rows that join next: `count` of them, or fewer if no other row adds anything."""

    def steps(self, problem: Problem, resume: SparseState | None = None) -> Steps:
        """Learn theta on a subset, one evaluation per step; then add `growth` rows per step."""
        empty_fit = 0.5 * float(problem.train.y @ problem.train.y)  # E of no regressor, for every theta
        no_rows = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device)
        first = SparseState(step=0, phase="learn", position=0, theta=problem.theta.clone(), inducing=no_rows)
        state = yield from begun(resume, first, SparseInfo("start", empty_fit))
        if state.phase == "learn":
            state = yield from self.learning_phase(
                problem, state, lambda best: SparseInfo("learn", objective=empty_fit, evidence=best.value)
            )
            state = state._replace(phase="grow", position=0)

        outcome = yield from self._growing_phase(problem, state)
        return self.with_end_of_learning(outcome, state)

    def _growing_phase(self, problem: Problem, state: SparseState) -> Steps:
        """Add `growth` rows per step, until there are enough or none adds anything."""
        most = min(self.num_regressors, len(problem.train))
        fit = GrowingFit(problem, state.theta, most)
        for rows in state.inducing.split(self.chunk):  # a resumed run
            fit.join(rows)
        while fit.m < most:
            count_before = fit.m
            while fit.m < min(count_before + self.growth, most):
                rows = self.choose(fit, min(self.chunk, count_before + self.growth - fit.m, most - fit.m))
                if not len(rows):
                    break
                fit.join(rows)
            if fit.m == count_before:
                return Outcome(
                    "converged", f"{fit.m} regressors explain every other row: no further row adds anything."
                )
            state = state._replace(step=state.step + 1, position=state.position + 1, inducing=fit.rows.clone())
            yield Step(state, SparseInfo("grow", fit.value, jitter=fit.jitter, active=fit.rows[count_before:].clone()))
        return Outcome(
            "converged",
            f"All {most} regressors are chosen, and their weights are the least-squares ones."
            + f" {fit.skipped:,} rows were skipped, because others explain them to rounding." * (fit.skipped > 0),
        )

    def posterior(self, problem: Problem, state: SparseState) -> Posterior:
        """Mean of the least-squares fit; variance of the projected process, which is the prior's far from the rows."""
        kernel, theta = problem.kernel, state.theta
        if not len(state.inducing):
            return PriorPosterior(kernel, theta)
        Z = problem.train.rows(state.inducing).X
        return nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, problem.train, Z))

    def _step_cost(self, problem: Problem, candidates: int) -> Cost:
        """Cost of a step half way: rows join in chunks, each after the gains of `candidates` rows are computed."""
        n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
        m, c = min(self.num_regressors, n), min(self.growth, self.num_regressors, n)
        chunks = max(1.0, c / min(self.chunk, c))
        entries = 1.0 * n * (c + candidates * chunks)
        flops = 2.0 * n * m * c + chunks * n * m + entries * (FLOPS_PER_ENTRY + 2.0 * d + 4.0)
        arrays = {"V [m, n]": 1.0 * s * n * m, "m x m factors": 2.0 * s * m * m, "vectors": 6.0 * s * n}
        calls = chunks * (CALLS_PER_JOIN + (CALLS_PER_GAINS if candidates else 0.0)) + fill_calls(s * entries)
        return Cost(flops, s * (2.0 * entries + chunks * n * m * 1.5), arrays, calls)


class SubsetOfRegressors(SparseModel):
    """Subset of regressors: a sum over random rows, fitted to all rows.

    References
    ----------
    Smola and Bartlett (2001). Sparse greedy Gaussian process regression. NIPS 13.
    """

    key: ClassVar[str] = "subset-of-regressors"
    title: ClassVar[str] = "Subset of regressors"
    paper: ClassVar[str] = "Smola and Bartlett (2001). Sparse greedy Gaussian process regression. NIPS 13."
    equations: ClassVar[dict[str, str]] = {
        "num_regressors": r"\min_a\ \tfrac12\|y-K_{nm}a\|^2+\tfrac{\sigma^2}{2}a^\top K_{mm}a"
    }

    chunk = count(50, (1, 500), doc="Number of rows that join together. It changes the time, not the fit.")

    def choose(self, fit: GrowingFit, count: int) -> Tensor:
        """The next rows of a random order, without those that add nothing."""
        order = torch.randperm(len(fit.f), generator=generator(self.seed, "regressors")).to(fit.f.device)
        return order[fit.residual_variance[order] > fit.residual_floor][:count]

    def cost(self, problem: Problem) -> Cost:
        """Cost of one step: kernel rows of the regressors, and the borders of both factors."""
        return self._step_cost(problem, candidates=0)


class MatchingPursuit(SparseModel):
    """Matching pursuit: a sum over rows that are chosen for the decrease of E that each alone would bring.

    References
    ----------
    Keerthi and Chu (2006). A matching pursuit approach to sparse Gaussian process regression. NIPS 18.
    """

    key: ClassVar[str] = "matching-pursuit"
    title: ClassVar[str] = "Matching pursuit"
    paper: ClassVar[str] = "Keerthi and Chu (2006). A matching pursuit approach to sparse GP regression. NIPS 18."
    equations: ClassVar[dict[str, str]] = {
        "pool": r"s = \arg\max_i\ \frac{(k_i^\top(y-f)-\sigma^2 f_i)^2}{2(k_i^\top k_i+\sigma^2 k_{ii})}"
    }

    chunk = count(5, (1, 50), doc="Number of rows that join before the fit is updated. 1 is the published method.")
    pool = count(
        60,
        (10, 600),
        doc="Number of random candidates each time that rows join, at n kernel entries per candidate. The paper uses "
        "59.",
    )

    def choose(self, fit: GrowingFit, count: int) -> Tensor:
        """The rows with the largest gains in a new random pool."""
        order = torch.randperm(len(fit.f), generator=generator(self.seed, "pool", fit.m)).to(fit.f.device)
        candidates = order[fit.residual_variance[order] > fit.residual_floor][: max(self.pool, count)]
        best = fit.gains(candidates).topk(min(count, len(candidates)))
        return candidates[best.indices[best.values > 0.0]]

    def cost(self, problem: Problem) -> Cost:
        """Cost of one step: kernel rows of the regressors and of the candidates, and the borders of both factors."""
        return self._step_cost(problem, candidates=self.pool)
