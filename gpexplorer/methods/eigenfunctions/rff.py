"""Random Fourier features under the same likelihood: random frequencies in place of the eigenfunctions of a grid.

    k(x, z) ~ phi(x)'phi(z),   phi(x) = sqrt(2 v / D) [cos(Omega x / l), sin(Omega x / l)]    Rahimi and Recht (2007)

Symbols: D features, v prior variance, l lengthscales, Omega [D / 2, d] frequencies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from ...errors import KernelError, SettingError
from ...features.basis_choices import Basis, Choice, Fourier
from ...features.random_fourier import KINDS, RandomFourier
from ...kernels.row_scaled import input_count, unscaled_kernel
from ...posteriors import Posterior
from ...problem import Cost, Outcome, Problem, Step, described_rows
from ..base import Method, Steps
from ..setting_kinds import choice, count
from . import settings
from .learning import Info as BasisInfo
from .learning import State as BasisState
from .learning import evaluation_cost, initial_state, learn_hyperparameters, of_the_data, state_noise, state_posterior

FEATURE_CALLS = 20.0  # tensor operations: frequencies, all their rotations at once, features and their derivatives


@dataclass(frozen=True)
class SameFunctions:
    """The same functions for any theta, as `learning.Chooser` describes it."""

    choice: Choice
    spacings: tuple[str, ...] = ("",)

    def leading(self, theta: Tensor, spacing: str) -> Choice:
        """Return the functions."""
        return self.choice

    def selected(self, theta: Tensor, spacing: str, previous: Choice | None) -> Choice:
        """Return the functions."""
        return self.choice

    def of_state(self, state: Any) -> Choice:
        """Return the functions."""
        return self.choice

    def fields(self, choice: Choice) -> dict[str, Any]:
        """Return nothing, since a state needs no field to have the functions."""
        return {}


class RFF(Method):
    """Regression on random Fourier features of the Gaussian kernel, with theta by marginal likelihood.

    Parameters
    ----------
    num_features : int, default 500
        Number of features D.
    frequencies : {"orthogonal", "paired", "plain"}
        How the frequencies are drawn.
    learn, subset, starts, evaluations : bool or int
        How hyperparameters are learned; see `learning.py`. There is one round, because the frequencies never change.

    References
    ----------
    Rahimi and Recht (2007), algorithm 1.
    """

    key: ClassVar[str] = "rff"
    title: ClassVar[str] = "Random Fourier features"
    family: ClassVar[str] = "eigenfunctions"
    paper: ClassVar[str] = "Rahimi and Recht (2007). Random features for large-scale kernel machines. NIPS."
    State: ClassVar[type] = BasisState
    Info: ClassVar[type] = BasisInfo
    equations: ClassVar[dict[str, str]] = {"num_features": r"k(x,z) \approx \phi(x)^\top \phi(z)"}
    row_noise: ClassVar[tuple[str, ...]] = ("relative",)

    num_features = count(
        500,
        (10, 2000),
        least=2,
        doc="Number of features D, an even number. More features fit better and cost n D^2 flops per pass.",
    )
    frequencies: Any = choice(
        list(KINDS),
        doc="How frequencies are drawn. orthogonal and paired features have less variance than plain ones.",
    )
    learn = settings.learn()
    subset = settings.subset()
    starts = settings.starts()
    evaluations = settings.evaluations(30)

    max_rounds, tolerance = 1, 0.0  # one round, because the features never change

    def steps(self, problem: Problem, resume: BasisState | None = None) -> Steps:
        state = resume
        if state is None:
            state = initial_state(problem)
            yield Step(state, BasisInfo("start"))
        choice = self._features(problem, problem.theta)
        state, outcome = yield from learn_hyperparameters(self, problem, state, SameFunctions(choice))
        if self.learn:
            value = of_the_data(problem, state)
            message = f"The descent is done, and the frequencies are fixed. The NLML is {value:.6g}."
            return Outcome("converged", message)
        return outcome

    def _features(self, problem: Problem, like: Tensor) -> Fourier:
        if not isinstance(problem.train.X, Tensor):
            raise SettingError(
                "Random Fourier features are functions of columns of numbers, but the inputs are "
                f"{described_rows(problem.train.X)}. Choose a method of the family inducing."
            )
        kernel = unscaled_kernel(problem.kernel)
        if kernel.key not in ("se", "se-ard"):
            raise KernelError(
                f"Random Fourier features here are those of the Gaussian kernel, not of {kernel.key!r}; choose "
                "se or se-ard."
            )
        return Fourier(RandomFourier(input_count(problem), self.num_features, self.frequencies, self.seed).to(like))

    def posterior(self, problem: Problem, state: BasisState) -> Posterior:
        return state_posterior(self, problem, lambda: self._features(problem, state.theta), state)

    def feature_map(self, problem: Problem, state: BasisState) -> Basis:
        """Return the function from rows X [b, d] to the features [D, b] of this state."""
        return self._features(problem, state.theta)(state.theta)

    def noise_variance(self, problem: Problem, state: BasisState) -> float:
        """Return the noise variance of predictions of y at this state."""
        return state_noise(self, problem, lambda: self._features(problem, state.theta), state)

    def cost(self, problem: Problem) -> Cost:
        return evaluation_cost(problem, float(self.num_features), FEATURE_CALLS)
