"""GP-GRIEF, type II: the leading eigenfunctions of a grid larger than the universe, weights fixed by the kernel.

    1. axes from the range of the data, 1-D eigendecompositions                    section 3.1
    2. the p largest of mbar^d eigenvalues, by algorithm 1
    3. Phi [n, p], then theta by marginal likelihood in the p-dimensional problem  section 3.2

The eigenfunctions are chosen anew whenever the best theta moved; their number stays p.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, ClassVar

import numpy as np
import param
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.grid import Grid
from ...linalg.blocks import row_blocks
from ...linalg.descent import Evaluated, descend
from ...objectives import noise_variance
from ...problem import Channel, Cost, Outcome, Posterior, Prediction, Problem, Step, channel
from ..base import Method, Steps
from ..subset import learn_on_subset
from .answers import Known, answers, basis_of
from .evidence import gradient, gram
from .laid import grid_of
from .priors import log_normal
from .rotated import Rotated, coefficients, halves, likelihood
from .state import Info as Report
from .state import State as At
from .weights import FLAT, chosen

Phase = Generator[Step, None, At]


class Grief(Method):
    """Regression on the leading eigenfunctions of a full grid, hyperparameters by marginal likelihood."""

    key: ClassVar[str] = "grief"
    title: ClassVar[str] = "GP-GRIEF, type II"
    family: ClassVar[str] = "grief"
    paper: ClassVar[str] = (
        "Evans and Nair (2018). Scalable Gaussian processes with grid-structured eigenfunctions. ICML."
    )
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_eigenfunctions": r"k(x,z) \approx \textstyle\sum_{j=1}^p \phi_j(x)\,\phi_j(z)",
        "grid_points": r"\phi_j(x) = \textstyle\prod_i k_i(x_i, U_i)\,q_{i j_i} / \sqrt{\lambda_{i j_i}}",
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "NLML", "nat"),
        channel("evidence", "NLML on the subset", "nat"),
        channel("fit", "data fit", "nat"),
        channel("smallest", "smallest eigenvalue kept", log=True),
        channel("kept", "share of the prior variance kept"),
    )

    num_eigenfunctions = param.Integer(
        500, bounds=(1, None), softbounds=(10, 1000), doc="Eigenfunctions p: more fit better, at n p^2 an evaluation."
    )
    grid_points = param.Integer(
        10, bounds=(2, None), softbounds=(5, 40), doc="Grid points an input: the grid has that many to the power d."
    )
    learn = param.Boolean(True, doc="Learn the hyperparameters by marginal likelihood; off keeps them as they start.")
    subset = param.Integer(
        500, bounds=(2, None), softbounds=(100, 2000), doc="Random rows on which the hyperparameters are learned first."
    )
    evaluations = param.Integer(
        15, bounds=(1, None), softbounds=(5, 50), doc="Evaluations before the eigenfunctions are chosen anew."
    )
    max_rounds = param.Integer(
        10, bounds=(1, None), softbounds=(1, 20), doc="Times the eigenfunctions are chosen, at most."
    )
    tolerance = param.Number(
        1e-4, bounds=(0.0, 1.0), doc="Stop when a round improves the likelihood by less than this fraction."
    )

    weights: Any = param.Selector(
        default="kernel", objects=["kernel", "posterior", "likelihood"],
        doc="Weights of the eigenfunctions at the end: the kernel's own, the mode under type I's priors, or those of "
        "highest likelihood, which fit too much.",
    )  # fmt: skip

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        state = resume
        if state is None:
            theta = problem.theta.clone()
            state = At(0, "subset", 0, 0, theta, theta.clone(), math.inf, math.inf)
            yield Step(state, Report("start"))

        grid = grid_of(problem, self.grid_points)
        if state.phase == "subset":
            state = yield from self._on_subset(problem, state)
        if state.phase != "weights":
            outcome = yield from self._rounds(problem, grid, state)
            if self.weights == "kernel":
                return outcome[1]
            state = self._weighted(problem, outcome[0])
            yield Step(state, Report("weights", state.objective))
        return Outcome("converged", f"With weights of their own the NLML is {state.objective:.6g}.")

    def _rounds(self, problem: Problem, grid: Grid, state: At) -> Generator[Step, None, tuple[At, Outcome]]:
        """Rounds until choosing the eigenfunctions anew gains nothing."""
        while state.round < self.max_rounds:
            state = yield from self._round(problem, grid, state)
            if not self.learn:
                return state, Outcome("converged", "The weights are found; the hyperparameters stay as they started.")
            gain = state.round_begin - state.objective
            if gain <= self.tolerance * max(abs(state.objective), 1.0):
                return state, Outcome("converged", f"Choosing the eigenfunctions anew gained {max(gain, 0.0):.2g} nat.")
            state = state._replace(
                round=state.round + 1, position=0, theta_begin=state.theta.clone(), round_begin=state.objective
            )
        return state, Outcome("budget", f"All {self.max_rounds} rounds are done; raise max_rounds to go on.")

    def _on_subset(self, problem: Problem, state: At) -> Phase:
        """Where to begin; resumed by replaying its evaluations."""
        found = learn_on_subset(problem, self.seed, self.subset, self.evaluations) if self.learn else ()
        for k, best in enumerate(found):
            if k < state.position:
                continue
            state = state._replace(step=state.step + 1, position=k + 1, theta=best.theta)
            yield Step(state, Report("subset", best.value, evidence=best.value))
        return state._replace(phase="learn", position=0, theta_begin=state.theta.clone())

    def _round(self, problem: Problem, grid: Grid, state: At) -> Phase:
        """Evaluations with one choice of eigenfunctions; resumed by replaying them."""
        train, like = problem.train, problem.theta
        spectrum = grid.spectrum(state.theta_begin, self.num_eigenfunctions)

        def evaluate(point: np.ndarray) -> Evaluated | None:
            theta = torch.as_tensor(point).to(like)
            try:
                now = gram(grid, theta, train, spectrum.made_of, self.map)
                slope = gradient(grid, theta, train, spectrum.made_of, now, self.map)
            except (NotPositiveDefinite, IndexError):  # no factor there, or an eigenvalue fell below rounding
                return None
            return Evaluated(now.value, slope.double().cpu().numpy(), now.fit)

        limit = self.evaluations if self.learn else 1
        begin = state.theta_begin.double().cpu().numpy()
        smallest, kept = float(spectrum.log[-1].exp()), self._kept(grid, problem, state.theta_begin, spectrum.made_of)
        for k, best in enumerate(descend(evaluate, begin, "L-BFGS-B", limit)):
            if k < state.position:
                continue
            better = best.value < state.objective or state.round == 0
            theta = torch.as_tensor(best.point).to(like) if better else state.theta
            state = state._replace(
                step=state.step + 1, position=k + 1, theta=theta, objective=min(best.value, state.objective)
            )
            yield Step(state, Report("learn", state.objective, best.extra or math.nan, smallest, kept))
        return state

    def _kept(self, grid: Grid, problem: Problem, theta: Tensor, index: Tensor) -> float:
        """Share of the prior variance that the eigenfunctions carry, over at most 500 rows."""
        X = problem.train.X[:500]
        with torch.no_grad():
            carried = grid.features(theta, X, index).square().sum()
        return float(carried / problem.kernel.diag(theta, X).sum())

    def chosen(self, problem: Problem, theta: Tensor) -> tuple[Rotated, Tensor, Tensor]:
        """The orthogonal basis, (log w, log s2) in it, and which products [p, d] the eigenfunctions are made of."""
        grid = grid_of(problem, self.grid_points)
        index = grid.spectrum(theta, self.num_eigenfunctions).made_of
        basis = basis_of(problem, grid, theta, index, self.map)
        if self.weights == "likelihood":
            return basis, chosen(basis, FLAT, FLAT), index
        return basis, chosen(basis, log_normal(1.0, 100.0), log_normal(noise_variance(theta), 0.04)), index

    def _weighted(self, problem: Problem, state: At) -> At:
        basis, z, _ = self.chosen(problem, state.theta)
        objective = -float(likelihood(halves(basis), z[None]).value)
        return state._replace(step=state.step + 1, phase="weights", objective=objective)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        grid, theta = grid_of(problem, self.grid_points), state.theta
        if state.phase == "weights":
            basis, z, index = self.chosen(problem, theta)
            m, v = coefficients(basis, z[None])
            return answers(problem, grid, theta, index, basis.V, Known(m[0], v[0], torch.zeros_like(m[0])))
        with torch.no_grad():
            index = grid.spectrum(theta, self.num_eigenfunctions).made_of
            now = gram(grid, theta, problem.train, index, self.map)

        def predict(X: Any) -> Prediction:
            mean, var = problem.train.y.new_empty(len(X)), problem.kernel.diag(theta, X)
            for rows in row_blocks(len(X), 3 * mean.element_size() * len(index)):
                with torch.no_grad():
                    Phi = grid.features(theta, X[rows], index)
                mean[rows] = Phi @ now.w
                half = torch.linalg.solve_triangular(now.L, Phi.T, upper=False)
                carried = Phi.square().sum(1)
                var[rows] = (var[rows] - carried).clamp_min(0.0) + now.s2 * half.square().sum(0)
            return Prediction(mean, var)

        return predict

    def cost(self, problem: Problem) -> Cost:
        n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
        p = float(min(self.num_eigenfunctions, self.grid_points**d))
        flops = 4.0 * n * p * p + 8.0 * n * p * d + p**3
        arrays = {"Gram matrix and factors": 4.0 * s * p * p, "block of Phi": 8.0 * min(n * s * p, 24.0 * 2**20)}
        return Cost(flops, 6.0 * s * n * p, arrays)
