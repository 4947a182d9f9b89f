"""Minimising an exact objective of all rows over theta, one evaluation per step: maximum likelihood and leave-one-out.

Every evaluation costs n^3, so that the state keeps all results: a resumed run repeats the arithmetic of the optimiser
on theta, but no evaluation.

Maximum likelihood, the benchmark of Xu, Yin, Zhang, Luo and Cui (2019). The setting `engine` replaces this package's
likelihood and gradient by those of GPyTorch.

    l(theta)  = (y'C^-1 y + log |C|) / 2,   C = K + s2 I [n, n]                                      eq 2, halved
    dl/dtheta = tr((C^-1 - a a') dC/dtheta) / 2,   a = C^-1 y [n]                                    eq 4, halved

Leave-one-out in closed form: n folds for the cost of one inverse, which is still n^3.

    P = (K + s2 I)^-1 [n, n],   a = P y [n],   q = diag P [n]
    y_i - mean_i = a_i / q_i,   var_i = 1 / q_i                          Rasmussen and Williams (2006), eq 5.12
    squared error     F = sum a_i^2 / q_i^2                F_a = 2 a / q^2     F_q = -2 a^2 / q^3
    log probability   F = sum (a_i^2 / q_i - log q_i) / 2  F_a = a / q         F_q = -(a^2 / q^2 + 1 / q) / 2
    dF/dK = -a (P F_a)' - P diag(F_q) P                    one product for all hyperparameters; eq 5.13 has one each

Squared errors do not depend on the scale: multiplying every sd and the noise by c changes no mean. The c for which
the residuals have the variance that is predicted, mean(a_i^2 / q_i) = 1, is added to theta afterwards.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.theta.restrictions import largest_derivative
from ...linalg.blocks import BLOCK_BYTES
from ...linalg.cholesky import cholesky
from ...linalg.deferred_reads import Number, RepeatedEvaluations, log, moved_together, number
from ...linalg.randomness import generator
from ...linalg.replayed_descent import (
    GRADIENT_DESCENT,
    Evaluated,
    Recorded,
    Replayed,
    recorded_gradient,
    replayed_descent,
)
from ...noise_floor import descent_limits, noise_floor
from ...objectives import deferred_noise_variance, evidence, noise_derivative
from ...posteriors import Posterior
from ...problem import Channel, Cost, Dataset, Outcome, Problem, Step, channel, channels_of
from .. import gpytorch_parts
from ..base import Method, Steps, begun, end_of_descent
from ..setting_kinds import amount, choice, count
from . import settings
from .exact_posterior import exact_posterior
from .scale_direction import scale_direction

ENTRY = 100.0  # flops per kernel entry, the time of its exponential included, in addition to 2 d for the distance
EVALUATION_CALLS = 60.0  # calls per exact objective
BLOCK_CALLS = 40.0  # calls per block of rows in the kernel's gradient
SQUARED, PROBABILITY = "squared error", "log probability"
# theta [p] on the host -> value, log scale of all sds, gradient [p]; NotPositiveDefinite where it has no value
Objective = Callable[[Tensor], tuple[float, float, Tensor]]


class LearningState(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    theta: Tensor  # [p] the best so far
    objective: float  # there
    answers: Tensor  # [k, p + 2] value, log scale and gradient of every evaluation; nan where the objective has none


class LearningInfo(NamedTuple):
    """What a step reports."""

    phase: str
    objective: Annotated[float, channel("objective", monotone=True)] = math.nan
    slope: Annotated[float, channel("largest derivative", log=True)] = math.nan
    scale: Annotated[float, channel("log scale of all sds")] = math.nan


class ExactLearning(Method):
    """An exact GP whose hyperparameters minimise an objective with dense algebra: n^3 per evaluation."""

    family: ClassVar[str] = "cross_validation"
    State: ClassVar[type] = LearningState
    Info: ClassVar[type] = LearningInfo

    optimiser: Any = choice(
        ["L-BFGS-B", "CG", GRADIENT_DESCENT],
        doc="How theta moves. Gradient descent with Armijo's rule is the benchmark of the paper, and the slowest.",
    )
    evaluations: Any = count(60, (10, 200), doc="Evaluations of the objective at most, n^3 flops each.")
    tolerance: Any = amount(
        1e-4, (1e-6, 1e-1), doc="Stop when no derivative in a log-hyperparameter exceeds this share of the objective."
    )
    restarts = settings.restarts()
    refit = settings.refit("cholesky")
    memory = settings.memory()

    calibrate: Any = False  # whether the log scale is added to theta where the objective does not depend on it

    @property
    def is_sum_of_squares(self) -> bool:
        """Return whether the objective is one: it may be small, and it is its logarithm that a descent lowers.

        It does not depend on the scale of the covariance.
        """
        return False

    @abstractmethod
    def objective(self, problem: Problem) -> Objective:
        """Return the objective that the method minimises on this problem."""

    def steps(self, problem: Problem, resume: LearningState | None = None) -> Steps:
        return learn(self, problem, resume, self.objective(problem))

    def theta_gradient(self, problem: Problem, state: LearningState) -> Callable[[Tensor], Tensor]:
        """Return the gradient of the objective."""
        evaluate = self.objective(problem)
        return lambda theta: evaluate(theta)[2]

    def posterior(self, problem: Problem, state: LearningState) -> Posterior:
        return exact_posterior(problem, state.theta, self.refit, self.memory)


def learn(method: ExactLearning, problem: Problem, resume: LearningState | None, objective: Objective) -> Steps:
    """Minimise `objective` from the theta of the problem and from `restarts` random ones.

    Each descent has at most `evaluations` evaluations. A step is one evaluation; its state holds the best theta.
    """
    like = problem.theta
    first = LearningState(0, like.clone(), math.inf, like.new_zeros(0, len(like) + 2))
    state = yield from begun(resume, first, LearningInfo("start"))
    direction = scale_direction(problem) if method.is_sum_of_squares and method.calibrate else None
    recorded = Recorded(objective, state.answers.cpu())
    lowest, k = Replayed(0, like, math.inf, 0.0), 0  # by the value with the penalty of the priors
    for k, best in enumerate(_descents(method, problem, recorded), 1):
        lowest = best if best.value < lowest.value else lowest
        if k > state.step:
            theta = lowest.theta.to(like)
            theta = theta if direction is None else theta + lowest.extra * direction
            state = LearningState(k, theta, lowest.of_the_data, torch.stack(recorded.rows).to(like))
            yield Step(state, LearningInfo("learn", state.objective, _largest_derivative(problem, state), lowest.extra))
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
    """Yield the best point so far of each descent in turn; a descent ends where its gradient is small enough.

    Optimisers stop at an absolute gradient, which a small sum of squares always has: its logarithm has a relative one.
    """
    floor = noise_floor(problem)
    begin = floor.begin
    for theta in initial_values(begin, method.restarts, method.seed):
        if getattr(problem.kernel, "noise_is_known", False):
            theta = torch.cat([theta[:-1], begin[-1:]])

        def with_largest(theta: Tensor) -> Evaluated:
            value, gradient, (log_scale,) = evaluate(theta)
            extra = value, log_scale, largest_derivative(problem.kernel, theta, floor.along(theta, gradient))
            if method.is_sum_of_squares and value > 0.0:
                value, gradient = math.log(value), gradient / value
            return Evaluated(value, gradient, extra)

        limits = descent_limits(problem)
        descent = replayed_descent(with_largest, theta, method.optimiser, method.evaluations, **limits)
        with closing(descent):
            for best in descent:
                value, log_scale, largest = best.extra
                value = value if method.is_sum_of_squares else best.value  # with the penalty of a prior
                yield best._replace(extra=log_scale, value=value)
                if largest <= _allowed(method, value):
                    break


def _allowed(method: ExactLearning, objective: float) -> float:
    """Return the largest derivative at which a descent ends."""
    return float(method.tolerance * (objective if method.is_sum_of_squares else max(abs(objective), 1.0)))


def _largest_derivative(problem: Problem, state: LearningState) -> float:
    """Return the largest absolute derivative at the best point."""
    theta, answers = moved_together([state.theta, state.answers], torch.device("cpu"))
    gradient = recorded_gradient(answers, state.objective, len(theta))
    return largest_derivative(problem.kernel, theta, noise_floor(problem).along(theta, gradient))


def _outcome(method: ExactLearning, problem: Problem, state: LearningState) -> Outcome:
    if not state.step:
        message = "K + s2 I has no Cholesky factor at any initial theta. Choose other initial values, or more noise."
        return Outcome("failed", message)
    largest, evaluations = _largest_derivative(problem, state), len(state.answers)
    allowed = _allowed(method, state.objective)
    return end_of_descent(method.optimiser, largest, allowed, evaluations, limit=method.evaluations)


def _objective(problem: Problem, work: Callable[[Tensor], Sequence[Number]], is_recordable: bool = True) -> Objective:
    """An objective whose value, log scale and gradient a GPU records where the kernel reads nothing."""
    kernel = problem.kernel
    is_recordable = is_recordable and hasattr(kernel, "profile_derivative")
    evaluations = RepeatedEvaluations(work, problem.train.y, getattr(kernel, "counter", None), is_recordable)

    def evaluate(theta: Tensor) -> tuple[float, float, Tensor]:
        value, log_scale, gradient = evaluations(theta)
        return float(value), float(log_scale), gradient.to(theta)

    return evaluate


def dense_cost(problem: Problem, flops: float, matrices: int) -> Cost:
    """Predict the cost of an evaluation that stores `matrices` n x n matrices.

    `flops` are those of the algebra; the kernel and its gradient are added.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    entries = 1.0 * n * n
    memory = {"n x n matrices": matrices * s * entries}
    calls = EVALUATION_CALLS + BLOCK_CALLS * (1.0 + 4.0 * s * entries / BLOCK_BYTES)
    return Cost(flops + 2.0 * entries * (ENTRY + 4.0 * d), 10.0 * s * entries, memory, calls)


class MaximumLikelihood(ExactLearning):
    """The exact GP with the hyperparameters of highest marginal likelihood.

    References
    ----------
    Rasmussen and Williams (2006), section 5.4.1.
    """

    key: ClassVar[str] = "ml"
    title: ClassVar[str] = "Exact GP, maximum likelihood"
    paper: ClassVar[str] = "Rasmussen and Williams (2006). Gaussian processes for machine learning, section 5.4.1."
    equations: ClassVar[dict[str, str]] = {
        "optimiser": r"\min_\theta\ \tfrac12\,y^\top C(\theta)^{-1}y + \tfrac12\log|C(\theta)|"
    }
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        LearningInfo, only=("objective", "slope"), objective=channel("NLML", "nat", monotone=True)
    )

    engine: Any = choice(
        ["closed form", "gpytorch"],
        doc="What computes the likelihood and its gradient: this package, or GPyTorch by autograd, as a baseline.",
    )

    def objective(self, problem: Problem) -> Objective:
        kernel, train, likelihood = problem.kernel, problem.train, evidence
        if self.engine == "gpytorch":
            gpytorch_parts.check(kernel, "closed form")
            likelihood = gpytorch_evidence

        def work(theta: Tensor) -> tuple[Number, float, Tensor]:
            value, gradient = likelihood(kernel, theta, train)
            return value, 0.0, gradient

        return _objective(problem, work, is_recordable=likelihood is evidence)

    def cost(self, problem: Problem) -> Cost:
        return dense_cost(problem, flops=1.0 * len(problem.train) ** 3, matrices=4)


def gpytorch_evidence(kernel: Any, theta: Tensor, train: Dataset) -> tuple[float, Tensor]:
    """Compute the NLML without its constant, and its gradient [p], by GPyTorch's Cholesky factor and autograd.

    Raises
    ------
    NotPositiveDefinite
        K + s2 I has no Cholesky factor.
    """
    gpytorch = gpytorch_parts.package()
    parts = gpytorch_parts.parts(kernel, theta.to(train.y.device))
    dense = gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)
    try:
        with torch.inference_mode(False), torch.enable_grad(), dense:
            zero = train.y.new_zeros(len(train))
            latent = gpytorch.distributions.MultivariateNormal(zero, parts.covariance(train.X))
            covariance = parts.likelihood(latent).lazy_covariance_matrix
            fit, complexity = covariance.inv_quad_logdet(train.y[:, None], logdet=True)
            value = 0.5 * (fit + complexity)
            value.backward()
    except Exception as error:
        if type(error).__name__ == "NotPSDError":  # an error of the linear_operator package
            raise NotPositiveDefinite("GPyTorch's K + s2 I", len(train), math.nan) from error
        raise
    return value.item(), parts.gradient()


class LeaveOneOut(ExactLearning):
    """The exact GP with the hyperparameters that predict every row best from all the others.

    References
    ----------
    Sundararajan and Keerthi (2001); Rasmussen and Williams (2006), section 5.4.2.
    """

    key: ClassVar[str] = "loo"
    title: ClassVar[str] = "Leave-one-out"
    paper: ClassVar[str] = "Sundararajan and Keerthi (2001). Predictive approaches for choosing hyperparameters. NC."
    equations: ClassVar[dict[str, str]] = {
        "criterion": r"\sum_i (y_i-\mu_{-i})^2 = \sum_i \big([C^{-1}y]_i / [C^{-1}]_{ii}\big)^2"
    }
    row_noise: ClassVar[tuple[str, ...]] = ("relative",)
    takes_priors: ClassVar[bool] = False
    no_priors_because: ClassVar[str] = "minimises errors of rows left out, which are no likelihood of the data"
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        LearningInfo, objective=channel("leave-one-out loss", monotone=True)
    )

    criterion: Any = choice(
        [SQUARED, PROBABILITY],
        doc="Minimise the squared error of the rows left out, or maximise their log probability, which depends on "
        "the variances too.",
    )
    calibrate = settings.calibrate()

    @property
    def is_sum_of_squares(self) -> bool:
        return bool(self.criterion == SQUARED)

    def objective(self, problem: Problem) -> Objective:
        work = partial(leave_one_out, problem.kernel, train=problem.train, criterion=self.criterion)
        return _objective(problem, work)

    def cost(self, problem: Problem) -> Cost:
        return dense_cost(problem, flops=3.0 * len(problem.train) ** 3, matrices=5)


def leave_one_out(kernel: Any, theta: Tensor, train: Dataset, criterion: str) -> tuple[Number, Number, Tensor]:
    """Compute the loss, the log scale that the residuals imply, and the gradient in theta [p]; 3 n^3 flops."""
    s2, theta = deferred_noise_variance(theta), theta.to(train.y.device)
    A = kernel(theta, train.X, train.X)  # [n, n]
    A.diagonal().add_(s2)
    P = torch.cholesky_inverse(cholesky(A, "K + s2 I").L)  # [n, n]
    a, q = P @ train.y, P.diagonal()
    if criterion == SQUARED:
        value, F_a, F_q = (a / q).square().sum(), 2.0 * a / q.square(), -2.0 * a.square() / q**3
    else:
        value, F_a, F_q = 0.5 * (a.square() / q - q.log()).sum(), a / q, -0.5 * (a.square() / q.square() + 1.0 / q)
    W = -(P * F_q) @ P  # [n, n] dF/dK
    W.addr_(a, P @ F_a, alpha=-1.0)
    gradient = kernel.theta_gradient(theta, train.X, train.X, W)
    gradient[-1] += noise_derivative(kernel, 2.0 * s2 * W.diagonal().sum())
    energy = (a.square() / q).mean()  # of targets that are all equal it is 0, and implies no scale
    return number(value), 0.5 * log(number(energy.where(energy > 0.0, 1.0))), gradient
