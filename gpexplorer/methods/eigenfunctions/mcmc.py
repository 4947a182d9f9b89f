"""GP-GRIEF, type I: the weights of the eigenfunctions and the noise are sampled and not optimised.

    1. theta on a subset of the rows: by an exact GP (section 6), and then as `learning.py` does for type II
    2. one pass over the rows: Phi'Phi, Phi'y, y'y, and a basis that is orthogonal on them          section 5
    3. MALA on z = (log w, log s2), several chains at once, O(p) per iteration for any n            section 6

A step is `per_step` iterations of all chains. During the warm-up, the step size and the scales of the proposals adapt;
afterwards both are fixed, and predictions average over the draws.

Section numbers refer to Evans and Nair (2018).
"""

from __future__ import annotations

import math
from collections.abc import Generator, Mapping
from contextlib import closing
from typing import Any, ClassVar

import param
from torch import Tensor

from ...features.basis_choices import Leading
from ...kernels.theta.restrictions import NoiseLimits, noise_limits
from ...linalg.replayed_descent import Watched
from ...objectives import noise_variance
from ...posteriors import DiagonalAndDirection, Posterior, exact_gp_posterior
from ...problem import Cost, Outcome, Problem, Step
from ..base import Steps, begun
from ..setting_kinds import count
from . import settings
from .chains import (
    ChainInfo,
    ChainState,
    LogNormal,
    Moments,
    Target,
    advance,
    cast,
    coefficient_covariance,
    given_noise_prior,
    initial_state,
    log_normal,
    mean_noise,
    moments_of,
    report,
)
from .grid_method import GridMethod, basis_setting, candidates_setting, spacing_setting
from .kept_variance import outcome_at, share_kept
from .learning import BasisState, initial_hyperparameters, subset_rows
from .orthogonal_basis import OrthogonalBasis
from .posteriors import orthogonal_basis, orthogonal_posterior, refitted_posterior

ITERATION_CALLS = 43.0  # tensor operations of one iteration of all chains
REPORT_CALLS = 90.0  # tensor operations of the channels of a step


class GriefMCMC(GridMethod):
    """Regression on the leading eigenfunctions of a full grid, averaged over the posterior of their weights.

    Parameters
    ----------
    num_eigenfunctions, grid_points, spacing : int, int, str
        The basis: p functions, mbar grid points per input, and where the grid points lie.
    basis, candidates : str, int
        How the functions are chosen, by their eigenvalues or by evidence, at the theta that was learned.
    learn, subset, starts, evaluations : bool or int
        theta is learned on `subset` random rows, by an exact GP and then with the basis functions; then it is fixed.
    chains, per_step, warm_up, samples, thin, acceptance : int or float
        How the chains are run.
    weight_mode, weight_variance, noise_prior : float
        The log-normal priors; the defaults are those of the paper.

    Notes
    -----
    The pass over the rows costs n p^2 flops once. An iteration costs O(p) per chain. The paper runs one chain for
    10,000 iterations; this method runs several at once, adapts the step size, scales the proposals by the Fisher
    information, and reports R-hat and the effective sample size. The paper keeps the theta of the exact GP, even if
    the functions represent almost nothing of its kernel; here the functions are tried at several theta first.

    Where functions outnumber the rows, weights of which the rows tell nothing are taken at the mode of their prior,
    which is the kernel itself. Their prior mean, 6.2 with the defaults, gives bands that are too wide.

    References
    ----------
    Evans and Nair (2018), sections 5 and 6; Girolami and Calderhead (2011).
    """

    key: ClassVar[str] = "grief-mcmc"
    added_settings: ClassVar[Mapping[str, Any]] = {
        "starts": 1, "basis": "eigenvalues", "candidates": 20_000, "points_per_input": "",
    }  # fmt: skip
    title: ClassVar[str] = "GP-GRIEF, type I"
    paper: ClassVar[str] = (
        "Evans and Nair (2018). Scalable Gaussian processes with grid-structured eigenfunctions. ICML."
    )
    State: ClassVar[type] = ChainState
    Info: ClassVar[type] = ChainInfo
    equations: ClassVar[dict[str, str]] = {
        "num_eigenfunctions": r"k(x,z) \approx \textstyle\sum_{j=1}^p w_j\,\psi_j(x)\,\psi_j(z)",
        "weight_variance": r"w_j \sim \mathrm{LN},\quad \mathrm{mode}\,w_j = 1",
        "acceptance": r"z' = z + \tfrac{\epsilon^2}{2} D\,\nabla\log p(z \mid y) + \epsilon D^{1/2}\xi",
    }

    num_eigenfunctions = param.Integer(1000)
    spacing: Any = spacing_setting()
    basis: Any = basis_setting()
    candidates = candidates_setting()
    subset = param.Integer(1000)
    starts = settings.starts()
    evaluations = param.Integer(30)
    chains = count(4, (2, 64), doc="Number of chains. R-hat needs two or more to be useful.")
    per_step = count(100, (10, 1000), doc="Iterations of every chain in one step.")
    warm_up = count(
        10, (2, 50),
        doc="Steps in which the step size and the scales adapt; their draws are discarded.",
    )  # fmt: skip
    samples = count(90, (10, 1000), doc="Steps whose draws are kept.")
    thin = count(10, (1, 50), doc="Iterations from one draw to the next.")
    acceptance = param.Number(
        0.574, bounds=(0.05, 0.99),
        doc="Acceptance rate to which the step size is tuned; 0.574 is optimal in many dimensions.",
    )  # fmt: skip
    weight_mode = param.Number(
        1.0, bounds=(1e-6, 1e6), softbounds=(0.1, 10.0),
        doc="Mode of the log-normal prior of a weight; 1 is the weight in the kernel.",
    )  # fmt: skip
    weight_variance = param.Number(
        100.0, bounds=(1e-6, 1e9), softbounds=(0.1, 1e4),
        doc="Variance of the prior of a weight; a small variance keeps the weights near the mode.",
    )  # fmt: skip
    noise_prior = param.Number(
        0.04, bounds=(1e-9, 1e6), softbounds=(1e-4, 1.0),
        doc="Variance of the prior of the noise variance. Its mode is the noise variance learned on the subset. "
        "Targets are scaled to standard deviation 1.",
    )  # fmt: skip

    max_rounds, tolerance = 1, 1e-4  # of learning theta, as the defaults of type II

    def steps(self, problem: Problem, resume: ChainState | None = None) -> Steps:
        state = yield from begun(resume, initial_state(problem), ChainInfo("start"))
        self.grid(problem)  # raises an error now if there is no grid for this problem
        if state.phase in ("subset", "trial", "search"):
            state = yield from self._learn_theta(problem, state)

        if state.functions is None and self.basis == "evidence":
            choice = self.select(problem, *self.origin(state))
            state = state._replace(**self.fields(choice))
        basis, choice = self.orthogonal(problem, state)
        target, total = self.target(problem, basis, state.theta), self.warm_up + self.samples
        state, share = state._replace(spacing=choice.grid.spacing), share_kept(problem, state.theta, choice)
        while state.position < total:
            state, acceptance = advance(self, target, state, warming_up=state.position < self.warm_up)
            yield Step(state, report(state, acceptance, share))
        if not math.isfinite(state.value):
            message = f"The log density of the chains is {state.value}. Choose a noise_prior nearer to 0.04."
            return Outcome("diverged", message)
        message = f"All {self.samples:,} steps of draws are done. Raise samples to continue."
        if state.is_cut:
            learned = f"All {self.evaluations} evaluations of a descent on the subset are done. Raise evaluations."
            message = f"{message} Learning ended before it converged. {learned}"
        return outcome_at("budget", message, problem, state, choice)

    def _learn_theta(self, problem: Problem, state: ChainState) -> Generator[Step, None, ChainState]:
        """Learn theta on the subset as type II does, with a trial of what the basis functions can represent."""
        learning = BasisState(**{name: getattr(state, name) for name in BasisState._fields})
        with closing(Watched(initial_hyperparameters(self, problem, learning))) as phases:
            for step in phases:
                state = state._replace(**step.state._asdict())
                yield Step(state, ChainInfo(state.phase, step.info.objective, evidence=step.info.evidence))
        return state._replace(**phases.result._asdict() | {"phase": "warm-up"})

    def origin(self, state: ChainState) -> tuple[Tensor, str]:
        return (state.theta if state.chosen is None else state.chosen), state.spacing

    def orthogonal(self, problem: Problem, state: ChainState) -> tuple[OrthogonalBasis, Leading]:
        """Return the orthogonal basis of a state, and the eigenfunctions from which it is made."""
        choice = self.eigenfunctions(problem, state)
        return orthogonal_basis(problem, choice, state.theta, self.map), choice

    def priors(self, theta: Tensor, limits: NoiseLimits | None = None) -> tuple[LogNormal, LogNormal]:
        """Return the prior of every weight, and that of the noise variance."""
        noise_prior = None if limits is None else given_noise_prior(limits, self.key)
        weight_prior = log_normal(self.weight_mode, self.weight_variance)
        return weight_prior, noise_prior or log_normal(noise_variance(theta), self.noise_prior)

    def target(self, problem: Problem, basis: OrthogonalBasis, theta: Tensor) -> Target:
        """Return the density that the chains sample, within the limits of the noise."""
        limits = noise_limits(problem.kernel, theta)
        target = Target(basis, *self.priors(theta, limits))
        return target if limits is None else target._replace(limits=(2.0 * limits.low, 2.0 * limits.high))

    def posterior(self, problem: Problem, state: ChainState) -> Posterior:
        """Return the distribution of f averaged over weights and noise; without draws, the start of the chains."""
        if self._is_before_functions(state):  # at an initial theta, the functions may represent next to nothing
            return exact_gp_posterior(problem.kernel, state.theta, subset_rows(self, problem))
        basis, choice = self.orthogonal(problem, state)
        if self.needs_refit(state):
            return refitted_posterior(problem, choice, state.theta, self.map)[0]
        moments = self._moments(basis, state)
        b = DiagonalAndDirection(moments.m, *coefficient_covariance(moments))
        posterior = orthogonal_posterior(problem, choice, state.theta, basis.V, b, unseen=self.weight_mode)
        return posterior.changed(noise_variance=mean_noise(moments))

    def noise_variance(self, problem: Problem, state: ChainState) -> float:
        """Return the noise variance of predictions of y: its mean over the draws."""
        if self._is_before_functions(state):
            return noise_variance(state.theta)
        basis, choice = self.orthogonal(problem, state)
        if self.needs_refit(state):
            return refitted_posterior(problem, choice, state.theta, self.map)[1]
        return mean_noise(self._moments(basis, state))

    def _is_before_functions(self, state: ChainState) -> bool:
        """Whether a state knows no basis functions yet: theta is being learned by an exact GP on the subset."""
        return bool(self.learn) and state.phase == "subset"

    def answer_note(self, problem: Problem, state: ChainState) -> str:
        """Which answer a state gives before the first draw; empty afterwards."""
        if self._is_before_functions(state):
            rows = min(int(self.subset), len(problem.train))
            return (
                f"The hyperparameters are still being learned: predictions are those of an exact GP on {rows:,} rows. "
                "Continue the run for those of the basis functions."
            )
        if state.moments.size:
            return ""
        return (
            "No draw has been kept so far: predictions are those of the kernel itself, with all weights 1. Continue "
            "the run for those of the chains."
        )

    def _moments(self, basis: OrthogonalBasis, state: ChainState) -> Moments:
        """Moments of the draws; without draws, of the weights 1 and the noise of theta."""
        if state.moments.size:
            return cast(state.moments, basis.e)
        z = basis.e.new_zeros(1, len(basis.e) + 1)
        z[0, -1] = 2.0 * state.theta[-1]
        return moments_of(basis, z)

    def cost(self, problem: Problem) -> Cost:
        """Return the cost of a step; the pass over the rows before the first one costs n p^2 flops more."""
        s = problem.train.y.element_size()
        p = min(self.num_functions(problem), float(len(problem.train)))
        size = self.chains * p
        arrays = {"chains": 80.0 * size, "normals": 12.0 * self.per_step * size, "Gram and its vectors": 3 * s * p * p}
        calls = ITERATION_CALLS * self.per_step + REPORT_CALLS
        return Cost(60.0 * self.per_step * size, 25 * 8.0 * self.per_step * size, arrays, calls)
