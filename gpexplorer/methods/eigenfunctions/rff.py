"""Random Fourier features under the same likelihood: random frequencies in place of the eigenfunctions of a grid.

    k(x, z) ~ phi(x)'phi(z),   phi(x) = sqrt(2 v / D) [cos(Omega x / l), sin(Omega x / l)]    Rahimi and Recht (2007)

Symbols: D features, v prior variance, l lengthscales, Omega [D / 2, d] frequencies.
"""

from __future__ import annotations

from typing import Any, ClassVar

from torch import Tensor

from ...errors import KernelError, SettingError
from ...features.basis_choices import Basis, Fourier
from ...features.random_fourier import KINDS, RandomFourier
from ...kernels.row_scaled import input_count, unscaled_kernel
from ...problem import Cost, Outcome, Problem, described_rows
from ..base import Steps, begun
from ..setting_kinds import choice, count
from . import settings
from .kept_variance import outcome_at
from .learning import (
    LEAST_GAIN,
    BasisInfo,
    BasisMethod,
    BasisState,
    evaluation_cost,
    initial_hyperparameters,
    initial_state,
    learning_round,
    of_the_data,
)

FEATURE_CALLS = 20.0  # tensor operations: frequencies, all their rotations at once, features and their derivatives


class RFF(BasisMethod):
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
    paper: ClassVar[str] = "Rahimi and Recht (2007). Random features for large-scale kernel machines. NIPS."
    equations: ClassVar[dict[str, str]] = {"num_features": r"k(x,z) \approx \phi(x)^\top \phi(z)"}

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

    tolerance = 0.0  # a descent goes on as long as it gains

    def steps(self, problem: Problem, resume: BasisState | None = None) -> Steps:
        state = yield from begun(resume, initial_state(problem), BasisInfo("start"))
        self.choose(problem, problem.theta)  # raises an error now if there are no features for this problem
        state = yield from initial_hyperparameters(self, problem, state)
        features = self.choose(problem, state.chosen)
        state, rest = yield from learning_round(self, problem, state, features)
        if not self.learn:
            message = "The weights are computed. The hyperparameters keep their initial values."
            return outcome_at("converged", message, problem, state, features)
        message = f"The frequencies are fixed, and the NLML is {of_the_data(problem, state):.6g}."
        if rest.whole > LEAST_GAIN:
            return Outcome("budget", f"All {self.evaluations} evaluations are done. {message} Raise them to go on.")
        return Outcome("converged", f"The descent is done. {message}")

    def choose(self, problem: Problem, theta: Tensor, spacing: str = "") -> Fourier:
        """Return the features, which are the same at any theta."""
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
        return Fourier(RandomFourier(input_count(problem), self.num_features, self.frequencies, self.seed).to(theta))

    def feature_map(self, problem: Problem, state: BasisState) -> Basis:
        """Return the function from rows X [b, d] to the features [D, b] of this state."""
        return self.choose(problem, state.theta)(state.theta)

    def cost(self, problem: Problem) -> Cost:
        return evaluation_cost(problem, float(self.num_features), FEATURE_CALLS)
