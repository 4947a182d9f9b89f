"""Random Fourier features under the same likelihood: waves drawn blindly, where the grid's are the kernel's own.

k(x, z) ~ phi(x)'phi(z),  phi = sqrt(2 v / D) [cos Omega x / l, sin Omega x / l]          Rahimi and Recht (2007)
"""

from __future__ import annotations

from typing import Any, ClassVar

import param
from torch import Tensor

from ...errors import KernelError, SettingError
from ...features.basis_choices import Fourier
from ...features.random_fourier import KINDS, RandomFourier
from ...problem import Channel, Cost, Outcome, Posterior, Problem, Step
from ..base import Method, Steps
from . import settings
from .evidence import gram
from .learning import CHANNELS, cost, learned, opened
from .posteriors import plain_answers
from .state import Info as Report
from .state import State as At

DRAWN = 20.0  # calls: frequencies, all rotations of them at once, and the waves with their slopes


class RFF(Method):
    """Regression on random waves of the Gaussian kernel; hyperparameters by marginal likelihood."""

    key: ClassVar[str] = "rff"
    title: ClassVar[str] = "Random Fourier features"
    family: ClassVar[str] = "eigenfunctions"
    paper: ClassVar[str] = "Rahimi and Recht (2007). Random features for large-scale kernel machines. NIPS."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {"num_features": r"k(x,z) \approx \phi(x)^\top \phi(z)"}
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_features = param.Integer(
        500,
        bounds=(2, None),
        softbounds=(10, 2000),
        doc="Features D, an even number: more fit better, at n D^2 a pass.",
    )
    frequencies: Any = param.Selector(
        default="orthogonal", objects=list(KINDS), doc="orthogonal and paired waves vary less than plain ones."
    )
    learn = settings.learn()
    subset = settings.subset()
    starts = settings.starts()
    evaluations = settings.evaluations(30)

    max_rounds, tolerance = 1, 0.0  # the waves never change: one round is all

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        state = resume
        if state is None:
            state = opened(problem)
            yield Step(state, Report("start"))
        choice = self._choice(problem, problem.theta)
        state, outcome = yield from learned(self, problem, state, lambda theta, spacing: choice, ("",))
        if self.learn:
            return Outcome(
                "converged", f"The waves stay as drawn, so one descent is all; the NLML is {state.objective:.6g}."
            )
        return outcome

    def _choice(self, problem: Problem, like: Tensor) -> Fourier:
        if not isinstance(problem.train.X, Tensor):
            raise SettingError(
                "Random Fourier features are waves over columns of numbers, but these inputs are objects."
            )
        if problem.kernel.key not in ("se", "se-ard"):
            raise KernelError(
                f"Random Fourier features here are those of the Gaussian kernel, not of {problem.kernel.key!r}; choose "
                "se or se-ard."
            )
        return Fourier(RandomFourier(problem.train.d, self.num_features, self.frequencies, self.seed).to(like))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        choice = self._choice(problem, state.theta)
        return plain_answers(problem, choice, state.theta, gram(choice, state.theta, problem.train, self.map))

    def cost(self, problem: Problem) -> Cost:
        return cost(problem, float(self.num_features), DRAWN)
