"""GP-GRIEF, type II: regression on the leading eigenfunctions of a grid, which may have 10^200 points.

    1. axes over the range of the data, and 1-D eigendecompositions               section 4
    2. the p largest of mbar^d eigenvalues                                        algorithm 1
    3. Phi [n, p], then theta by marginal likelihood of a p-dimensional problem   eqs 3, 4 and 15; eq 18 with W = I

Section, equation and algorithm numbers refer to Evans and Nair (2018). `learning.py` describes how theta is learned.

The setting `weights` adds a last step, which optimises one weight per function and the noise, as in section 5, for
their likelihood or for their posterior under the priors of type I:

    z <- z + a D grad,   z = (log w, log s2),   D the inverse Fisher information,   a the best of ten step lengths

By likelihood alone, w_i = max(u_i^2 - s2, 0) / e_i is 0 for every function that the noise explains, and the weights
overfit, as the paper warns. The log-normal prior keeps them near the weights of the kernel, which are 1. Logarithms
are bounded below, since these weights would reach 1e-129.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from ...features.basis_choices import Leading
from ...kernels.theta.restrictions import NoiseLimits, noise_limits
from ...objectives import noise_variance
from ...posteriors import DiagonalAndDirection, Posterior
from ...problem import Cost, Outcome, Problem, Step
from ..base import Steps, begun
from ..langevin import Density
from ..setting_kinds import choice
from . import settings
from .chains import LogNormal, Target, given_noise_prior, log_normal
from .evidence import FEW_ROWS, FOLDS, held_out_noise, regress
from .grid_method import GridMethod, basis_setting, candidates_setting, spacing_setting
from .kept_variance import outcome_at
from .learning import BasisInfo, BasisState, evaluation_cost, initial_state, learn_hyperparameters
from .orthogonal_basis import OrthogonalBasis, coefficient_posterior, fisher_information, likelihood, likelihood_terms
from .posteriors import orthogonal_basis, orthogonal_posterior

AXIS_CALLS = 175.0  # tensor operations per input: the eigenvectors of an axis, its part of Phi, and their derivatives
SMALLEST_LOG = -60.0  # lower bound of log w and log s2
FLAT = LogNormal(0.0, 1e8)  # a prior that leaves the likelihood as it is
MAX_ITERATIONS, SMALLEST_GAIN = 300, 1e-9  # of Fisher scoring; the gain is relative to the log density


class Grief(GridMethod):
    """Regression on the leading eigenfunctions of a full grid, with hyperparameters by marginal likelihood.

    Parameters
    ----------
    num_eigenfunctions, grid_points, spacing : int, int, str
        The basis: p functions, mbar grid points per input, and where the grid points lie.
    basis, candidates : str, int
        How the functions are chosen, by their eigenvalues or by evidence; see `evidence.py`.
    learn, subset, starts, evaluations, max_rounds, tolerance : bool or int or float
        How hyperparameters are learned; see `learning.py`.
    weights : {"kernel", "posterior", "likelihood"}
        The weights of the functions at the end.

    Notes
    -----
    One evaluation of the likelihood and its gradient costs 3 n p^2 flops for any number mbar^d of grid points,
    and O(p^2) memory. The paper starts from an exact GP on 1000 rows; this method also tries several initial values,
    and it chooses the functions again at the theta that it learned. If an input has rows far from all others, an
    equispaced grid may have no point near the rows; `spacing="by likelihood"` sees that. `basis="evidence"`
    predicts better on rows set aside where there are many more rows than functions (10 times as many or more). With
    fewer than 20 times as many, a last step replaces the learned noise by that of a cross-validation, since functions
    chosen for the same rows make it too small.

    References
    ----------
    Evans and Nair (2018), sections 3, 4 and 6.
    """

    uses_groups: ClassVar[bool] = True
    key: ClassVar[str] = "grief"
    title: ClassVar[str] = "GP-GRIEF, type II"
    paper: ClassVar[str] = (
        "Evans and Nair (2018). Scalable Gaussian processes with grid-structured eigenfunctions. ICML."
    )
    equations: ClassVar[dict[str, str]] = {
        "num_eigenfunctions": r"k(x,z) \approx \textstyle\sum_{j=1}^p \phi_j(x)\,\phi_j(z)",
        "grid_points": r"\phi_j(x) = \textstyle\prod_i k_i(x_i, U_i)\,q_{i j_i} / \sqrt{\lambda_{i j_i}}",
        "weights": r"k(x,z) \approx \textstyle\sum_j w_j\,\psi_j(x)\,\psi_j(z)",
    }
    added_settings: ClassVar[Mapping[str, Any]] = {"basis": "eigenvalues", "candidates": 20_000, "points_per_input": ""}

    spacing: Any = spacing_setting()
    basis: Any = basis_setting()
    candidates = candidates_setting()
    starts = settings.starts()
    max_rounds = settings.max_rounds()
    tolerance = settings.tolerance()
    weights: Any = choice(
        ["kernel", "posterior", "likelihood"],
        doc="Weights of the eigenfunctions at the end: those of the kernel, the mode of their posterior under the "
        "priors of type I, or those of highest likelihood, which overfit.",
    )

    def steps(self, problem: Problem, resume: BasisState | None = None) -> Steps:
        state = yield from begun(resume, initial_state(problem, self.spacing), BasisInfo("start"))
        self.grid(problem)  # raises an error now if there is no grid for this problem
        if state.phase == "noise" and self.weights == "kernel":
            return self._noise_outcome(problem, state)
        if state.phase not in ("noise", "weights"):
            state, outcome = yield from learn_hyperparameters(self, problem, state)
            state = state._replace(is_cut=outcome.reason != "converged")
            if self.cross_validates(problem):
                state = self._with_held_out_noise(problem, state)
                yield Step(state, BasisInfo("noise", state.objective))
                outcome = self._noise_outcome(problem, state)
            if self.weights == "kernel":
                return outcome
        if state.phase != "weights":
            basis, z, _ = self.optimised_weights(problem, state)
            objective = -float(likelihood(likelihood_terms(basis), z[None]).value)
            state = state._replace(step=state.step + 1, phase="weights", objective=objective)
            yield Step(state, BasisInfo("weights", state.objective))
        return _end(state, f"The weights are optimised. The NLML is {state.objective:.6g}.")

    def cross_validates(self, problem: Problem) -> bool:
        """Whether the noise is measured on rows that had no part in the choice of functions."""
        if noise_limits(problem.kernel, problem.theta) is not None:
            return False
        is_small = FOLDS <= len(problem.train) < FEW_ROWS * self.num_eigenfunctions
        return bool(self.learn) and self.basis == "evidence" and is_small

    def _with_held_out_noise(self, problem: Problem, state: BasisState) -> BasisState:
        """The state with the noise of `held_out_noise` in place of the learned one, and the NLML there."""
        choice, theta = self.eigenfunctions(problem, state), state.theta.clone()
        rows, count = self.choice_rows(problem), self.num_eigenfunctions
        s2 = held_out_noise(self.functions, choice.grid, theta, rows, count, self.candidates, self.seed)
        theta[-1] = 0.5 * math.log(s2)
        value = regress(choice, theta, problem.train, self.map).value
        return state._replace(step=state.step + 1, phase="noise", position=0, theta=theta, objective=value)

    def _noise_outcome(self, problem: Problem, state: BasisState) -> Outcome:
        s2 = noise_variance(state.theta)
        message = (
            f"The hyperparameters are learned. The noise variance {s2:.3g} is that under which rows are most likely "
            "that had no part in the choice of functions."
        )
        end = _end(state, message)
        return outcome_at(end.reason, end.message, problem, state, self.eigenfunctions(problem, state))

    def optimised_weights(self, problem: Problem, state: BasisState) -> tuple[OrthogonalBasis, Tensor, Leading]:
        """Return the orthogonal basis, the optimised z = (log w, log s2) [r + 1], and the eigenfunctions."""
        choice, theta = self.eigenfunctions(problem, state), state.theta
        basis = orthogonal_basis(problem, choice, theta, self.map)
        limits = noise_limits(problem.kernel, theta)
        return basis, optimise_weights(basis, *self.priors(theta, limits), limits), choice

    def priors(self, theta: Tensor, limits: NoiseLimits | None = None) -> tuple[LogNormal, LogNormal]:
        """Return the prior of every weight, and that of the noise variance (section 6)."""
        noise_prior = None if limits is None else given_noise_prior(limits, self.key)
        if self.weights == "likelihood":
            return FLAT, noise_prior or FLAT
        return log_normal(1.0, 100.0), noise_prior or log_normal(noise_variance(theta), 0.04)

    def posterior(self, problem: Problem, state: BasisState) -> Posterior:
        if state.phase == "weights":
            basis, z, choice = self.optimised_weights(problem, state)
            mean, var = coefficient_posterior(basis, z[None])
            b = DiagonalAndDirection(mean[0], var[0], torch.zeros_like(mean[0]))
            posterior = orthogonal_posterior(problem, choice, state.theta, basis.V, b)
            return posterior.changed(noise_variance=float(z[-1].exp()))
        return super().posterior(problem, state)

    def noise_variance(self, problem: Problem, state: BasisState) -> float:
        """Return the noise variance of predictions of y at this state."""
        if state.phase == "weights":
            return float(self.optimised_weights(problem, state)[1][-1].exp())
        return super().noise_variance(problem, state)

    def cost(self, problem: Problem) -> Cost:
        return evaluation_cost(problem, self.num_functions(problem), AXIS_CALLS * problem.train.d)


def _end(state: BasisState, message: str) -> Outcome:
    """The outcome of a phase after learning, which may have ended before it converged."""
    if not state.is_cut:
        return Outcome("converged", message)
    advice = "A run with more max_rounds or a lower tolerance goes on."
    return Outcome("budget", f"{message} Learning ended before it converged. {advice}")


def optimise_weights(
    basis: OrthogonalBasis, weight_prior: LogNormal, noise_prior: LogNormal, limits: NoiseLimits | None = None
) -> Tensor:
    """Return the mode z = (log w, log s2) [r + 1] of the posterior that is nearest to the mode of the prior.

    If both priors are FLAT, it is a mode of the likelihood. The cost is O(p) per iteration. The noise stays within its
    limits.
    """
    target = Target(basis, weight_prior, noise_prior)
    z = target.mode
    if weight_prior is FLAT:
        z = torch.zeros_like(z)
        z[-1] = math.log((basis.rest + float(basis.u.square().sum())) / (2.0 * basis.n))  # half the mean of y^2
    precision = target.prior[1].square().reciprocal()
    low, high = (-math.inf, math.inf) if limits is None else (2.0 * limits.low, 2.0 * limits.high)
    z[-1] = z[-1].clamp(low, high)
    return fisher_scoring(target.density(), z, lambda z: fisher_information(basis, z) + precision, (low, high))


def fisher_scoring(
    density: Callable[[Tensor], Density],
    z: Tensor,
    information: Callable[[Tensor], Tensor],
    last: tuple[float, float] = (-math.inf, math.inf),
) -> Tensor:
    """Maximise a log density by Fisher scoring; the density never decreases.

    Parameters
    ----------
    density : callable
        Points [C, q] -> log density and gradient.
    z : tensor [q]
        The initial point.
    information : callable
        Point [q] -> diagonal of the Fisher information [q].
    last : pair of float
        Bounds of the last entry of z.

    Notes
    -----
    The ten step lengths 1, 1/2, ..., 1/512 are evaluated at once.
    """
    lengths = 2.0 ** -torch.arange(10.0).to(z)[:, None]  # [10, 1]
    for _ in range(MAX_ITERATIONS):
        current = density(z[None])
        direction = current.gradient[0] / information(z).clamp_min(1e-3)  # [q]
        proposals = (z + lengths * direction.clamp(-4.0, 4.0)).clamp_min_(SMALLEST_LOG)  # [10, q]
        proposals[:, -1].clamp_(*last)
        values = density(proposals).value  # [10]
        best = int(values.nan_to_num(nan=-math.inf).argmax())
        gain = float(values[best] - current.value[0])
        if not gain > SMALLEST_GAIN * max(abs(float(values[best])), 1.0):
            return z
        z = proposals[best]
    return z
