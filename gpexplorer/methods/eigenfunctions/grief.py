"""GP-GRIEF, type II: the leading eigenfunctions of a grid larger than the universe, weights fixed by the kernel.

    1. axes from the range of the data, 1-D eigendecompositions                    section 3.1
    2. the p largest of mbar^d eigenvalues, by algorithm 1
    3. Phi [n, p], then theta by marginal likelihood in the p-dimensional problem  section 3.2

The eigenfunctions are chosen anew at the best theta as long as that makes the rows likelier; their number stays p.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...features.basis_choices import Leading
from ...objectives import noise_variance
from ...problem import Channel, Cost, Outcome, Posterior, Problem, Step
from ..base import Method, Steps
from . import settings
from .evidence import gram
from .grids import grid_of, leading, spacings
from .learning import CHANNELS, cost, learned, opened
from .orthogonal_basis import Rotated, coefficients, halves, likelihood
from .posteriors import Known, answers, basis_of, beyond, plain_answers
from .sampling.priors import log_normal
from .state import Info as Report
from .state import State as At
from .weights import FLAT, chosen

AN_INPUT = 175.0  # calls: the eigenvectors of an axis, its part of Phi and their slopes


class Grief(Method):
    """Regression on the leading eigenfunctions of a full grid, hyperparameters by marginal likelihood."""

    key: ClassVar[str] = "grief"
    title: ClassVar[str] = "GP-GRIEF, type II"
    family: ClassVar[str] = "eigenfunctions"
    paper: ClassVar[str] = (
        "Evans and Nair (2018). Scalable Gaussian processes with grid-structured eigenfunctions. ICML."
    )
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_eigenfunctions": r"k(x,z) \approx \textstyle\sum_{j=1}^p \phi_j(x)\,\phi_j(z)",
        "grid_points": r"\phi_j(x) = \textstyle\prod_i k_i(x_i, U_i)\,q_{i j_i} / \sqrt{\lambda_{i j_i}}",
        "weights": r"k(x,z) \approx \textstyle\sum_j w_j\,\psi_j(x)\,\psi_j(z)",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_eigenfunctions = settings.num_eigenfunctions()
    grid_points = settings.grid_points()
    spacing: Any = settings.spacing()
    learn = settings.learn()
    subset = settings.subset()
    starts = settings.starts()
    evaluations = settings.evaluations()
    max_rounds = settings.max_rounds()
    tolerance = settings.tolerance()
    weights: Any = param.Selector(
        default="kernel", objects=["kernel", "posterior", "likelihood"],
        doc="Weights of the eigenfunctions at the end: the kernel's own, the mode under type I's priors, or those of "
        "highest likelihood, which fit too much.",
    )  # fmt: skip

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        state = resume
        if state is None:
            state = opened(problem, self.spacing)
            yield Step(state, Report("start"))
        grid_of(problem, self.grid_points)
        if state.phase != "weights":
            choose = partial(leading, self, problem)
            state, outcome = yield from learned(self, problem, state, choose, spacings(self))
            if self.weights == "kernel":
                return outcome
            state = self._weighted(problem, state)
            yield Step(state, Report("weights", state.objective))
        return Outcome("converged", f"With weights of their own the NLML is {state.objective:.6g}.")

    def chosen(self, problem: Problem, state: At) -> tuple[Rotated, Tensor, Leading]:
        """The orthogonal basis, (log w, log s2) in it, and the eigenfunctions it is made of."""
        choice, theta = leading(self, problem, state.chosen, state.spacing), state.theta
        basis = basis_of(problem, choice, theta, self.map)
        if self.weights == "likelihood":
            return basis, chosen(basis, FLAT, FLAT), choice
        return basis, chosen(basis, log_normal(1.0, 100.0), log_normal(noise_variance(theta), 0.04)), choice

    def _weighted(self, problem: Problem, state: At) -> At:
        basis, z, _ = self.chosen(problem, state)
        objective = -float(likelihood(halves(basis), z[None]).value)
        return state._replace(step=state.step + 1, phase="weights", objective=objective)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        if state.phase == "weights":
            basis, z, choice = self.chosen(problem, state)
            m, v = coefficients(basis, z[None])
            return answers(problem, choice, state.theta, basis.V, Known(m[0], v[0], torch.zeros_like(m[0])))
        choice = leading(self, problem, state.chosen, state.spacing)
        return plain_answers(problem, choice, state.theta, gram(choice, state.theta, problem.train, self.map))

    def beyond(self, problem: Problem, X: Tensor) -> Tensor:
        """Which rows [t] lie beyond the grid: no eigenfunction reaches them, and the prior answers."""
        return beyond(self.grid_points, problem, X)

    def cost(self, problem: Problem) -> Cost:
        return cost(
            problem, float(min(self.num_eigenfunctions, self.grid_points**problem.train.d)), AN_INPUT * problem.train.d
        )
