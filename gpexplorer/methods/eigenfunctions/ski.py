"""Structured kernel interpolation in any number of inputs: the kernel is read off a full grid by cubics.

k(x, z) ~ e(x)' K_UU e(z) with e a product of 1-D interpolations; by theorem 2 of Evans and Nair (2018) the products
with K_UU's leading eigenvectors cost what they cost on one axis, so that a grid of mbar^d points is no obstacle.
"""

from __future__ import annotations

from functools import partial
from typing import ClassVar

from torch import Tensor

from ...features.basis_choices import Interpolated
from ...problem import Channel, Cost, Posterior, Problem, Step
from ..base import Method, Steps
from . import settings
from .evidence import gram
from .grids import SPACINGS, grid_of
from .learning import CHANNELS, cost, learned, opened
from .posteriors import beyond, plain_answers
from .state import Info as Report
from .state import State as At

AN_INPUT = 335.0  # calls: the weights of interpolation on an axis, its covariances and their slopes


class SKI(Method):
    """Regression on the leading part of a kernel interpolated from a grid; hyperparameters by marginal likelihood."""

    key: ClassVar[str] = "ski"
    title: ClassVar[str] = "Kernel interpolation (SKI)"
    family: ClassVar[str] = "eigenfunctions"
    paper: ClassVar[str] = (
        "Wilson and Nickisch (2015). Kernel interpolation for scalable structured Gaussian processes. ICML."
    )
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {"grid_points": r"k(x,z) \approx e(x)^\top K_{UU}\,e(z)"}
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_eigenfunctions = settings.num_eigenfunctions()
    grid_points = settings.grid_points()
    learn = settings.learn()
    subset = settings.subset()
    starts = settings.starts()
    evaluations = settings.evaluations()
    max_rounds = settings.max_rounds()
    tolerance = settings.tolerance()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        state = resume
        if state is None:
            state = opened(problem, SPACINGS[0])
            yield Step(state, Report("start"))
        grid_of(problem, self.grid_points)
        choose = partial(self._choice, problem)
        _, outcome = yield from learned(self, problem, state, choose, SPACINGS[:1])
        return outcome

    def _choice(self, problem: Problem, theta: Tensor, spacing: str = SPACINGS[0]) -> Interpolated:
        grid = grid_of(problem, self.grid_points, spacing)
        return Interpolated(grid, grid.spectrum(theta, self.num_eigenfunctions).made_of)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        choice = self._choice(problem, state.chosen)
        return plain_answers(problem, choice, state.theta, gram(choice, state.theta, problem.train, self.map))

    def beyond(self, problem: Problem, X: Tensor) -> Tensor:
        """Which rows [t] lie beyond the grid: no eigenfunction reaches them, and the prior answers."""
        return beyond(self.grid_points, problem, X)

    def cost(self, problem: Problem) -> Cost:
        return cost(
            problem, float(min(self.num_eigenfunctions, self.grid_points**problem.train.d)), AN_INPUT * problem.train.d
        )
