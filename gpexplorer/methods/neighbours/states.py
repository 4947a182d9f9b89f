"""A series as a process with a small state: the exact GP of one input in time O(n), by filtering.

`kernels.states` has the state space of a kernel, the filter and the smoother. Learning minimises the negative log
marginal likelihood by L-BFGS, with the gradient that autograd finds through the filter, one evaluation per step. A long
series is learned in two descents: the first sees one stretch of it, which is enough to come near, and the second all.
Where theta would need too many waves, an evaluation has no value and the descent goes around it.

References: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process
regression models; Sarkka and Garcia-Fernandez (2021), Temporal parallelization of Bayesian smoothers.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.row_scaled import unscaled_kernel
from ...kernels.states.filtering import Series, chunk_length, merged, nlml
from ...kernels.states.transitions import check_states, state_size, with_fewer_waves
from ...kernels.theta.descent_units import period_entries
from ...kernels.theta.restrictions import projected
from ...linalg.randomness import generator
from ...linalg.replayed_descent import Recorded
from ...objectives import noise_derivative, noise_variance
from ...posteriors import Posterior, StatesPosterior
from ...problem import Cost, Outcome, Problem, Step, channel
from ..base import Steps, begun
from ..setting_kinds import count
from .recorded_descent import UNDEFINED, DescendingMethod, no_answers, slope_of

WORTH = 4.0  # a series this many times as long as the stretch is learned from the stretch first
WORSE = 1.0  # nat per row by which all rows may be less likely than the stretch; else it is unlike them


class StatesState(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    theta: Tensor  # [p] the best of this descent
    objective: float  # there
    sees_all: bool  # this descent, rather than a stretch of the rows
    begin: Tensor  # [p] theta at which this descent began
    answers: Tensor  # [k, p + 1] value and gradient of every evaluation of it; nan where there is no value


class StatesInfo(NamedTuple):
    """What a step reports."""

    phase: str  # "start", "stretch" or "learn"
    objective: Annotated[float, channel("NLML", "nat")] = math.nan
    slope: Annotated[float, channel("largest derivative", log=True)] = math.nan


class States(DescendingMethod):
    """An exact GP of one input by a Kalman filter: for long series, of Matern and periodic parts.

    References
    ----------
    Hartikainen and Sarkka (2010). Kalman filtering and smoothing solutions to temporal Gaussian process regression
    models.
    """

    key: ClassVar[str] = "states"
    title: ClassVar[str] = "States"
    paper: ClassVar[str] = (
        "Hartikainen and Särkkä (2010). Kalman filtering and smoothing solutions to temporal Gaussian process "
        "regression models."
    )
    equations: ClassVar[dict[str, str]] = {
        "stretch": r"f(t) = h^\top x(t),\quad x(t+\delta) = F_\delta\, x(t) + q,\ q \sim N(0, Q_\delta)"
    }
    most_inputs: ClassVar[int] = 1
    example_kernel: ClassVar[str] = "matern32"
    State: ClassVar[type] = StatesState
    Info: ClassVar[type] = StatesInfo

    stretch: Any = count(
        8000,
        (1000, 50_000),
        least=5,
        doc="Rows in a row, at a random place, from which learning begins where there are over four times as many.",
    )

    @classmethod
    def beginning(cls, kernel: Any, theta: Tensor) -> Tensor:
        """A race by another likelihood may find a theta that needs too many waves."""
        return projected(kernel, with_fewer_waves(kernel, theta))

    def steps(self, problem: Problem, resume: StatesState | None = None) -> Steps:
        check_states(problem.kernel, problem.theta, problem.train.X, self.title)
        theta, sees_all = problem.theta, not self.learn or len(problem.train) <= WORTH * self.stretch
        first = StatesState(0, theta.clone(), math.inf, sees_all, theta.clone(), no_answers(theta))
        state = yield from begun(resume, first, StatesInfo("start"))
        promised = math.inf  # NLML of all rows, if they are like the stretch
        while True:
            likelihood = Likelihood(problem, 0 if state.sees_all else self.stretch, self.seed)
            descent = self.descent(problem, likelihood, state)
            for state in descent:
                is_misled = len(state.answers) == 1 and state.objective > promised + WORSE * len(problem.train)
                if is_misled:
                    state = better_beginning(problem, likelihood, state)
                phase = "learn" if state.sees_all else "stretch"
                yield Step(state, StatesInfo(phase, state.objective, slope_of(problem, state)))
                if is_misled:
                    break
            else:
                if not math.isfinite(state.objective):
                    message = "The noise is too small to be resolved beside the function. Raise the noise."
                    return Outcome("failed", message)
                if state.sees_all:
                    return self.ended(problem, state)
                begin, periods = state.theta.clone(), period_entries(problem.kernel)
                begin[periods] = theta[periods]  # which all rows have a say in, as a stretch has not
                promised = state.objective
                state = StatesState(state.step, begin, math.inf, True, begin, no_answers(theta))

    def posterior(self, problem: Problem, state: StatesState) -> Posterior:
        return StatesPosterior(problem.kernel, state.theta, problem.train.X, problem.train.y)

    def filtered(self, problem: Problem, state: StatesState, t: Tensor, until: float) -> tuple[Tensor, Tensor]:
        seen = (problem.train.X[:, 0] <= until).nonzero()[:, 0]
        train = problem.train.rows(seen if len(seen) else problem.train.X[:, 0].argmin()[None])
        posterior = StatesPosterior(problem.kernel, state.theta, train.X, train.y)
        mean, var = posterior.smoother.filtered(t.to(train.X.device, torch.float64))
        return mean[0], var

    def cost(self, problem: Problem) -> Cost:
        n, (d, q) = len(problem.train), state_size(problem.kernel, problem.theta)
        products = n * (d * (2.0 * d + 1.0 + 2.0 * q) * 2.0 + 2.0 * q * q)
        arrays = {"steps": 8.0 * n * (12.0 * d * d + 4.0 * (d + 1.0) * q)}
        return Cost(40.0 * products, 8.0 * 40.0 * products, arrays, 100.0 * chunk_length(n))


def better_beginning(problem: Problem, likelihood: Likelihood, state: StatesState) -> StatesState:
    """The state before a descent on all rows: that of the initial values, where they are more likely than its theta."""
    theta = problem.theta.clone()
    answer = Recorded(likelihood, state.answers, UNDEFINED).evaluated(theta)
    if not float(answer[0]) < state.objective:
        return state
    return StatesState(state.step, theta, float(answer[0]), True, theta, answer[None])


class Likelihood:
    """The negative log marginal likelihood of a series without its constant, as `objectives.evidence` has it.

    Parameters
    ----------
    problem : Problem
        Rows of one input.
    stretch : int
        With a positive number, this many neighbouring rows stand for all.
    seed : int
        Decides which.
    """

    def __init__(self, problem: Problem, stretch: int = 0, seed: int = 0) -> None:
        train: Any = problem.train.to(problem.train.y.device, torch.float64)
        if stretch:
            draw = generator(seed, "stretch")
            first = int(torch.randint(len(train) - stretch, (), generator=draw))
            train = train.rows(train.X[:, 0].argsort(stable=True)[first : first + stretch])
        self.kernel, self.n = problem.kernel, len(train)
        self.weight = len(problem.train) / self.n
        a = train.X[:, 1] if unscaled_kernel(problem.kernel) is not problem.kernel else torch.ones_like(train.y)
        rows, squares = merged(train.X[:, 0], (train.y / a)[None], a.square())
        self.rows: Series = rows
        self.squares = float(squares[0])  # of targets at one time around their mean

    def __call__(self, theta: Float[Tensor, " p"]) -> tuple[float, Float[Tensor, " p"]]:
        """Value and gradient [p], in float64.

        Raises
        ------
        NotPositiveDefinite
            If the noise cannot be resolved.
        """
        with torch.inference_mode(False), torch.enable_grad():
            leaf = theta.detach().double().clone().requires_grad_(True)
            value = nlml(self.kernel, leaf, self.rows)
            (gradient,) = torch.autograd.grad(value, leaf)
        apart = self.squares / noise_variance(theta)
        gradient[-1] = noise_derivative(self.kernel, float(gradient[-1]) + self.n - apart)
        total = float(value.detach()) + self.n * float(theta[-1]) + 0.5 * apart
        return self.weight * total, self.weight * gradient
