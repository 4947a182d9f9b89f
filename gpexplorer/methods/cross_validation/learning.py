"""Minimising an exact objective of all rows over theta, one evaluation per step: what `ml` and `loo` share.

Every evaluation costs n^3, so that the state keeps all results: a resumed run repeats the arithmetic of the optimiser
on theta, but no evaluation.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

import param
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.theta.restrictions import largest_derivative
from ...linalg.blocks import BLOCK_BYTES
from ...linalg.randomness import generator
from ...linalg.replayed_descent import GRADIENT_DESCENT, Evaluated, Replayed, replayed_descent
from ...posteriors import Posterior
from ...problem import Cost, Outcome, Problem, Step, channel
from ..base import Method, Steps
from . import settings
from .exact_posterior import exact_posterior
from .scale_direction import scale_direction

ENTRY = 100.0  # flops per kernel entry, the time of its exponential included, in addition to 2 d for the distance
EVALUATION_CALLS = 60.0  # calls per exact objective
BLOCK_CALLS = 40.0  # calls per block of rows in the kernel's gradient


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    theta: Tensor  # [p] the best so far
    objective: float  # there
    answers: Tensor  # [k, p + 2] value, log scale and gradient of every evaluation; nan where the objective has none


class Info(NamedTuple):
    """What a step reports."""

    phase: str
    objective: Annotated[float, channel("objective", monotone=True)] = math.nan
    slope: Annotated[float, channel("largest derivative", log=True)] = math.nan
    scale: Annotated[float, channel("log scale of all sds")] = math.nan


LearningState: TypeAlias = State  # a class attribute of ExactLearning is called State too
LearningInfo: TypeAlias = Info


class Objective(NamedTuple):
    """An objective of theta.

    Attributes
    ----------
    evaluate : callable
        theta [p] -> value, log scale of all sds, gradient [p]. It raises NotPositiveDefinite where it has no value.
    has_free_scale : bool
        Whether the value does not depend on the scale of the covariance, so that the log scale is added to theta.
    """

    evaluate: Callable[[Tensor], tuple[float, float, Tensor]]
    has_free_scale: bool = False


class ExactLearning(Method):
    """An exact GP whose hyperparameters minimise an objective with dense algebra: n^3 per evaluation."""

    family: ClassVar[str] = "cross_validation"
    State: ClassVar[type] = LearningState
    Info: ClassVar[type] = LearningInfo

    optimiser: Any = param.Selector(
        default="L-BFGS-B",
        objects=["L-BFGS-B", "CG", GRADIENT_DESCENT],
        doc="How theta moves. Gradient descent with Armijo's rule is the benchmark of the paper, and the slowest.",
    )
    evaluations: Any = param.Integer(
        60, bounds=(1, None), softbounds=(10, 200), doc="Evaluations of the objective at most, n^3 flops each."
    )
    tolerance: Any = param.Number(
        1e-4,
        bounds=(0.0, None),
        softbounds=(1e-6, 1e-1),
        doc="Stop when no derivative in a log-hyperparameter exceeds this share of the objective.",
    )
    restarts = settings.restarts()
    refit = settings.refit("cholesky")
    memory = settings.memory()

    @abstractmethod
    def objective(self, problem: Problem) -> Objective:
        """Return the objective that the method minimises on this problem."""

    def steps(self, problem: Problem, resume: LearningState | None = None) -> Steps:
        return learn(self, problem, resume, self.objective(problem))

    def theta_gradient(self, problem: Problem, state: LearningState) -> Callable[[Tensor], Tensor]:
        """Return the gradient of the objective."""
        evaluate = self.objective(problem).evaluate
        return lambda theta: evaluate(theta)[2]

    def posterior(self, problem: Problem, state: LearningState) -> Posterior:
        return exact_posterior(problem, state.theta, self.refit, self.memory)


def learn(method: ExactLearning, problem: Problem, resume: State | None, objective: Objective) -> Steps:
    """Minimise `objective` from the theta of the problem and from `restarts` random ones.

    Each descent has at most `evaluations` evaluations. A step is one evaluation; its state holds the best theta.
    """
    like, state = problem.theta, resume
    if state is None:
        state = State(0, like.clone(), math.inf, like.new_zeros(0, len(like) + 2))
        yield Step(state, Info("start"))
    direction = scale_direction(problem) if objective.has_free_scale else None
    results = list(state.answers)
    earlier_results = iter(state.answers)

    def evaluate(theta: Tensor) -> Evaluated:
        result = next(earlier_results, None)
        if result is None:
            result = _evaluation(objective, theta)
            results.append(result)
        value, log_scale, *gradient = result.tolist()  # one read
        return Evaluated(value, torch.tensor(gradient, dtype=torch.float64), log_scale)

    lowest, k = Replayed(0, like, math.inf, 0.0), 0  # by the value with the penalty of the priors
    for k, best in enumerate(_descents(method, problem, evaluate), 1):
        lowest = best if best.value < lowest.value else lowest
        if k > state.step:
            theta = lowest.theta if direction is None else lowest.theta + lowest.extra * direction
            state = State(k, theta, lowest.of_the_data, torch.stack(results))
            yield Step(state, Info("learn", state.objective, _largest_derivative(problem, state), lowest.extra))
    return _outcome(method, problem, state)


def initial_values(problem_theta: Tensor, restarts: int, seed: int) -> Iterator[Tensor]:
    """Yield the theta of the problem, then `restarts` random ones.

    Every log-hyperparameter of a random one differs by a standard normal number, a factor of about e.
    """
    yield problem_theta
    for k in range(restarts):
        change = torch.randn(len(problem_theta), generator=generator(seed, "restart", k), dtype=torch.float64)
        yield problem_theta + change.to(problem_theta)


def _descents(method: ExactLearning, problem: Problem, evaluate: Callable[[Tensor], Evaluated]) -> Iterator[Replayed]:
    """Yield the best point so far of each descent in turn; a descent ends where its gradient is small enough."""
    restrictions = getattr(problem.kernel, "restrictions", None)
    for theta in initial_values(problem.theta, method.restarts, method.seed):
        if getattr(problem.kernel, "noise_is_known", False):
            theta = torch.cat([theta[:-1], problem.theta[-1:]])
        largest = math.inf

        def watched(theta: Tensor) -> Evaluated:
            nonlocal largest
            result = evaluate(theta)
            largest = largest_derivative(problem.kernel, theta, result.gradient)
            return result

        descent = replayed_descent(watched, theta, method.optimiser, method.evaluations, restrictions=restrictions)
        with closing(descent):
            for best in descent:
                yield best
                if largest <= method.tolerance * max(abs(best.value), 1.0):
                    break


def _largest_derivative(problem: Problem, state: State) -> float:
    """Return the largest absolute derivative at the best point."""
    restrictions = getattr(problem.kernel, "restrictions", None)
    if restrictions is None:
        best = int(state.answers[:, 0].nan_to_num(math.inf).argmin())
    else:
        best = int((state.answers[:, 0] - state.objective).abs().nan_to_num(math.inf).argmin())
    return largest_derivative(problem.kernel, state.theta, state.answers[best, 2:])


def _outcome(method: ExactLearning, problem: Problem, state: State) -> Outcome:
    if not state.step:
        message = "K + s2 I has no Cholesky factor at any initial theta. Choose other initial values, or more noise."
        return Outcome("failed", message)
    largest, evaluations = _largest_derivative(problem, state), len(state.answers)
    if largest <= method.tolerance * max(abs(state.objective), 1.0):
        return Outcome("converged", f"The largest derivative is {largest:.2g} after {evaluations} evaluations.")
    message = f"All {evaluations} evaluations are done; the largest derivative is {largest:.2g}. Raise evaluations."
    return Outcome("budget", message)


def _evaluation(objective: Objective, theta: Tensor) -> Tensor:
    """Evaluate once, as a row [p + 2] of the results; all nan where there is no value."""
    try:
        value, log_scale, gradient = objective.evaluate(theta)
    except NotPositiveDefinite:
        return torch.full((len(theta) + 2,), math.nan).to(theta)
    row = torch.cat([theta.new_tensor([value, log_scale]), gradient])
    return row if bool(row.isfinite().all()) else torch.full_like(row, math.nan)


def dense_cost(problem: Problem, flops: float, matrices: int) -> Cost:
    """Predict the cost of an evaluation that stores `matrices` n x n matrices.

    `flops` are those of the algebra; the kernel and its gradient are added.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    entries = 1.0 * n * n
    memory = {"n x n matrices": matrices * s * entries}
    calls = EVALUATION_CALLS + BLOCK_CALLS * (1.0 + 4.0 * s * entries / BLOCK_BYTES)
    return Cost(flops + 2.0 * entries * (ENTRY + 4.0 * d), 10.0 * s * entries, memory, calls)
