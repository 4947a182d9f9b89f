"""A descent in theta whose evaluations are part of the state of a method, so that it resumes without repeating them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any, ClassVar

import param
import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.states.transitions import TooManyStates
from ...kernels.theta.descent_units import descent_units
from ...kernels.theta.restrictions import largest_derivative
from ...linalg.replayed_descent import Recorded, Replayed, recorded_gradient, replayed_descent
from ...noise_floor import descent_limits, noise_floor
from ...problem import Outcome, Problem
from ..base import Method, end_of_descent
from ..setting_kinds import amount, count

NegativeLogLikelihood = Callable[[Tensor], tuple[float, Tensor]]  # theta [p] -> value, and gradient [p]
UNDEFINED = (NotPositiveDefinite, TooManyStates)  # errors of a likelihood that has no value
DISTANCE = 3.0  # of a log-hyperparameter from its initial value, beyond which it may lie on a plateau


class DescendingMethod(Method):
    """Base class of the methods that learn theta by a recorded descent.

    Their states have `step`, `theta` (the best point [p]), `objective` (the value there), `begin` (where the descent
    began [p]) and `answers` (value and gradient [k, p + 1] of every evaluation; nan where there is no value).
    """

    family: ClassVar[str] = "neighbours"

    learn: Any = param.Boolean(True, doc="Whether hyperparameters are learned, or stay at their initial values.")
    evaluations: Any = count(40, (10, 100), doc="Evaluations of the likelihood per descent, at most.")
    tolerance: Any = amount(
        1e-4,
        (1e-6, 1e-1),
        doc="A descent ends when no derivative in a log-hyperparameter exceeds this share of the objective.",
    )

    def descent(self, problem: Problem, evaluate: NegativeLogLikelihood, state: Any) -> Iterator[Any]:
        """Continue the descent of a state, and yield the state after each evaluation."""
        recorded = Recorded(evaluate, state.answers, UNDEFINED)
        for best in recorded_descent(problem, recorded, state, self.evaluations if self.learn else 1, self.tolerance):
            after = {"theta": best.theta, "objective": best.of_the_data, "answers": torch.stack(recorded.rows)}
            state = state._replace(step=state.step + 1, **after)
            yield state

    def ended(self, problem: Problem, state: Any, rounds: str = "", other_limit: str = "") -> Outcome:
        """Return why learning has ended; `other_limit` names a setting, if one beside `evaluations` ended it."""
        if not self.learn:
            return Outcome("converged", "The hyperparameters kept their initial values. Turn on learn to learn them.")
        slope, allowed = slope_of(problem, state), self.tolerance * max(abs(state.objective), 1.0)
        is_used = len(state.answers) >= self.evaluations
        if not is_used and not other_limit:
            if slope <= allowed < slope_nearby(problem, state.theta, state.objective, state.answers):
                message = (
                    "A hyperparameter has moved so far from its initial value that its derivative, at most "
                    f"{slope:.2g} after {state.step} evaluations{rounds}, does not say where the minimum is. Choose "
                    "other initial values, or bounds."
                )
                return Outcome("budget", message)
            return end_of_descent("L-BFGS-B", slope, allowed, state.step, rounds)
        lever = "evaluations" if is_used else other_limit
        message = (
            f"All {lever} are used after {state.step:,} steps; the largest derivative is {slope:.2g}. Raise {lever}."
        )
        return Outcome("budget", message)


def recorded_descent(
    problem: Problem, recorded: Recorded, state: Any, limit: int, tolerance: float
) -> Iterator[Replayed]:
    """Continue a descent by L-BFGS, and yield the best point so far after each evaluation.

    Parameters
    ----------
    problem : Problem
        Its kernel may restrict theta.
    recorded : Recorded
        theta [p] -> value and gradient [p], with the evaluations of the state.
    state : NamedTuple
        Where the descent stands.
    limit : int
        Evaluations of the whole descent, at most; with 1, theta keeps its value.
    tolerance : float
        It ends when no derivative exceeds this share of the value.
    """

    def is_flat(theta: Tensor, value: float, answers: Sequence[Tensor] | Tensor) -> bool:
        return slope_nearby(problem, theta, value, answers) <= tolerance * max(abs(value), 1.0)

    units = descent_units(problem.kernel, state.begin, problem.train)
    limits = descent_limits(problem, limit > 1, torch.float64)
    done = int(state.answers[:, 0].isfinite().sum())
    if done and is_flat(state.theta, state.objective, state.answers):
        return
    descent = replayed_descent(recorded, state.begin, "L-BFGS-B", limit, done, units=units, **limits)
    with closing(descent):
        for best in descent:
            yield best
            if is_flat(best.theta, best.of_the_data, recorded.rows):
                return


def no_answers(theta: Float[Tensor, " p"]) -> Float[Tensor, "0 q"]:
    """The record of a descent that has not begun."""
    return torch.zeros(0, len(theta) + 1, dtype=torch.float64, device=theta.device)


def slope_of(problem: Problem, state: Any) -> float:
    """The largest absolute derivative at the best point, in the numbers that may move."""
    gradient = recorded_gradient(state.answers, state.objective, len(state.theta))
    floor = noise_floor(problem, torch.float64)
    return largest_derivative(problem.kernel, state.theta, floor.along(state.theta, gradient))


def slope_nearby(problem: Problem, theta: Tensor, value: float, answers: Sequence[Tensor] | Tensor) -> float:
    """The largest derivative as it would be at DISTANCE from the initial values, where a descent leads back to them.

    A lengthscale l that has grown long enters by l^-2, and a small standard deviation by its square: there derivatives
    fall by exp(2) per unit of the logarithm, so that a small one may lead back to a much lower value.
    """
    gradient = noise_floor(problem, torch.float64).along(theta, recorded_gradient(answers, value, len(theta)))
    moved = (theta - problem.theta).to(gradient)
    farther = (moved.abs() - DISTANCE).clamp_min(0.0) * (gradient * moved > 0.0)
    return largest_derivative(problem.kernel, theta, gradient * torch.exp(2.0 * farther))
