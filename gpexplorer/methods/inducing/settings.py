"""Settings that methods of this family share: blocks that they inherit, and functions for what only some have."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from typing import Any, ClassVar

import param
from torch import Tensor

from ...kernels.theta.restrictions import largest_derivative, log_prior
from ...noise_floor import noise_floor
from ...objectives import Terms, nystrom, nystrom_gradient
from ...problem import CONVERGED, Outcome, Problem, Step
from ..base import Method, Steps, end_of_descent
from ..own_points import number_of_points
from ..setting_kinds import choice, count, share

FEWEST = 64  # inducing points that a method has by default, unless there are fewer rows
SETTLED = 0.1 * CONVERGED  # nat by which a last epoch lowers the objective; later ones brought up to twice as much
MOST_ENTRIES = 4e7  # entries of an n x m factor to which the default number of inducing points is limited: 320 MB


def num_inducing() -> Any:
    """Return the setting m, the number of inducing points."""
    return count(
        0,
        (0, 512),
        doc="Inducing points m: more of them fit better; choosing costs m per row, and learning m^2 per row. "
        "0 is automatic: the square root of the number of rows, but at least 64.",
    )


def resolve_num_inducing(setting: int, n: int) -> int:
    """Return the number of inducing points for n rows.

    Parameters
    ----------
    setting : int
        The setting `num_inducing`; 0 chooses from n.
    n : int
        Number of training rows.

    Returns
    -------
    int
        At most n. By default it is the square root of n, at least 64, and at most 4e7 / n: an evaluation of the
        objective costs 6 n m^2 = 6 n^2 flops then, which is less than a second for up to 1e5 rows.

    Examples
    --------
    >>> [resolve_num_inducing(0, n) for n in (50, 1000, 10_000, 36_000, 1_000_000)]
    [50, 64, 100, 189, 64]
    >>> resolve_num_inducing(32, 1000)
    32
    """
    if setting > 0:
        return min(setting, n)
    return min(n, max(FEWEST, min(math.isqrt(n), int(MOST_ENTRIES / max(n, 1)))))


def objective() -> Any:
    """Return the setting that chooses between VFE, tight VFE and PP."""
    return choice(
        ["vfe", "tight-vfe", "pp"],
        doc="vfe is a bound of the evidence, and cannot overfit by its inducing points; tight-vfe is a closer bound "
        "(Titsias 2025); pp is no bound and can overfit.",
    )


def again() -> Any:
    """Return the setting that says whether points are chosen again after learning."""
    return param.Boolean(
        True, doc="Choose all points again after learning; a new set replaces the old one if its objective is lower."
    )


class LearningMethod(Method):
    """A method that learns hyperparameters in epochs, until one decreases the objective by too little."""

    family: ClassVar[str] = "inducing"
    objective: Any  # the setting; each method declares it, or names its likelihood

    learn = param.Boolean(True, doc="Learn the hyperparameters once points are chosen; off keeps their initial values.")
    optimiser: Any = choice(["CG", "L-BFGS-B"], doc="SciPy's optimiser for the hyperparameters; the paper uses CG.")
    evaluations: Any = count(
        0,
        (0, 50),
        doc="Evaluations of the objective per epoch for learning hyperparameters. 0 is automatic: "
        "min(20, max(15, 2 p)).",
    )
    max_epochs = count(100, (1, 200), doc="Largest number of epochs; each chooses points, then learns.")
    tolerance = share(1e-4, doc="Stop when an epoch decreases the objective by less than this fraction.")

    @property
    def likelihood_name(self) -> str:
        """Return "pp", "vfe", "tight-vfe" or "fitc"."""
        return str(self.objective)

    def epochs(self, problem: Problem, state: Any, phase: Callable[[Any], Generator[Step, None, Any]]) -> Steps:
        """Yield the steps of one phase per epoch, until one decreases the objective by too little."""
        while state.epoch < self.max_epochs:
            state = yield from phase(state)
            objective = state.terms.total(self.likelihood_name)
            if outcome := self.ending(problem, state, objective):
                return outcome
            begun = {"epoch": state.epoch + 1, "position": 0, "epoch_begin": objective, **self.epoch_fields(state)}
            state = state._replace(theta_begin=state.theta.clone(), **begun)
        return self.out_of_epochs()

    def epoch_fields(self, state: Any) -> dict[str, Any]:
        """Return further fields of a state with which another epoch begins after this one."""
        return {}

    def ending(self, problem: Problem, state: Any, objective: float) -> Outcome | None:
        """Return why the epoch of a state, at whose end the objective has this value, is the last one; None if not.

        Gains of epochs decrease slowly, so that it has converged if the last one is far below CONVERGED, unless a
        derivative says that the optimiser has failed: the second ones are about 2 n at most, that in the noise, so that
        a step along a derivative g lowers the objective by g^2 / (4 n) or more.
        """
        decrease = state.epoch_begin - objective
        decrease += log_prior(problem.kernel, state.theta) - log_prior(problem.kernel, state.theta_begin)
        if not decrease <= self.tolerance * max(abs(objective), 1.0):
            return None
        message = (
            f"Epoch {state.epoch + 1} improved the objective by {max(decrease, 0.0):.2g}, less than the tolerance "
            f"{self.tolerance:g} of {abs(objective):.4g}."
        )
        if decrease <= SETTLED:
            allowed = math.sqrt(4.0 * len(problem.train) * CONVERGED)
            end = end_of_descent(self.optimiser, self._slope(problem, state), allowed, state.position)
            return Outcome(end.reason, message if end.reason == "converged" else f"{message} {end.message}")
        rest = f"Later epochs may lower it by more than {CONVERGED:g} nat together: lower tolerance to go on."
        return Outcome("budget", f"{message} {rest}")

    def _slope(self, problem: Problem, state: Any) -> float:
        """The largest derivative of the objective in a log-hyperparameter; 0 if none is learned."""
        gradient = self.theta_gradient(problem, state) if self.learn else None
        if gradient is None:
            return 0.0
        theta = state.theta.cpu()
        return largest_derivative(problem.kernel, theta, noise_floor(problem).along(theta, gradient(state.theta).cpu()))

    def out_of_epochs(self) -> Outcome:
        """Return the outcome after the last epoch that is allowed."""
        return Outcome("budget", f"All {self.max_epochs} epochs are done; raise max_epochs to continue.")


class SparseMethod(LearningMethod):
    """A method with inducing points."""

    num_inducing = num_inducing()

    def inducing_inputs(self, problem: Problem, state: Any) -> Any:
        """The inducing inputs [m, d]: those of rows, or the state's own where they are no longer rows."""
        Z = getattr(state, "Z", None)
        return problem.train.rows(state.inducing).X if Z is None else Z

    def bound_terms(self, problem: Problem, state: Any) -> Terms:
        """The terms of the objective at this state; see `HasMovablePoints`."""
        Z = self.inducing_inputs(problem, state)
        return nystrom(problem.kernel, state.theta, problem.train, Z, self.likelihood_name).terms

    def theta_gradient(self, problem: Problem, state: Any) -> Callable[[Tensor], Tensor] | None:
        """Return the gradient of the objective at the inducing points of this state."""
        Z = self.inducing_inputs(problem, state)
        if not state.step or not len(Z):
            return None
        return lambda theta: nystrom_gradient(problem.kernel, theta, problem.train, Z, self.likelihood_name)[1]

    def num_points(self, n: int) -> int:
        """Number of inducing points for n training rows."""
        return number_of_points(getattr(self, "start", ""), resolve_num_inducing(self.num_inducing, n), n)
