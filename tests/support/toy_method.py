"""A tiny method for tests: randomised coordinate descent on (K + s2 I) a = y, which can be set to fail.

Importing it registers nothing for others: a test puts it into the registry for as long as it runs.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, NamedTuple

import param
import torch
from torch import Tensor

from gpexplorer import Spec, data, kernels
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.base import Method, Steps, registry
from gpexplorer.problem import Cost, Outcome, Prediction, Predictor, Problem, Step, channel
from gpexplorer.runs import Run

ROWS = {"name": "friedman1", "n": 60, "seed": 2}
N = 54  # training rows of split 0
FAULTS = {
    "known": NotPositiveDefinite("K_mm", 7, 1e-6),
    "unknown": RuntimeError("<b>secret</b>"),
    "memory": MemoryError(),
    "interrupt": KeyboardInterrupt(),
}


class Place(NamedTuple):
    """A tuple inside the state."""

    block: Tensor  # [b] rows, int64
    note: str | None


class State(NamedTuple):
    step: int
    alpha: Tensor  # [n]
    theta: Tensor  # [p]
    place: Place | None
    pair: tuple[float, bool]


class Info(NamedTuple):
    objective: Annotated[float, channel("objective", monotone=True)]
    gradient: Annotated[float, channel("largest gradient", log=True)]
    place: Place | None = None


class Toy(Method):
    """Coordinate descent, one block of rows per step."""

    key: ClassVar[str] = "toy"
    title: ClassVar[str] = "Toy descent"
    family: ClassVar[str] = "tests"
    State: ClassVar[type] = State
    Info: ClassVar[type] = Info

    block = param.Integer(4, bounds=(1, None), doc="Rows solved at once.")
    shrink = param.Number(1.0, bounds=(0.0, 2.0), inclusive_bounds=(False, False), doc="Share of each move taken.")
    limit = param.Integer(1000, bounds=(1, None), doc="Steps after which it calls itself converged.")
    fault = param.Selector(default="", objects=["", *FAULTS], doc="What to raise.")
    fault_at = param.Integer(3, bounds=(0, None), doc="The step that raises it.")
    window = param.Range((0.0, 1.0), bounds=(0.0, 1.0), doc="A pair, to be stored as one.")
    greedy = param.Boolean(False, doc="Take the rows of the largest gradient.")

    def steps(self, problem: Problem, resume: State | None = None) -> Steps:
        y, theta = problem.train.y, problem.theta
        state = resume or State(0, torch.zeros_like(y), theta.clone(), None, (math.inf, False))
        if resume is None:
            yield Step(state, Info(math.nan, math.nan))
        A = problem.kernel(theta, problem.train.X, problem.train.X)
        A.diagonal().add_((2 * theta[-1]).exp())
        alpha = state.alpha.clone()

        for step in range(state.step + 1, self.limit + 1):
            if self.fault and step == self.fault_at:
                raise FAULTS[self.fault]
            residual = y - A @ alpha
            rows = torch.randperm(len(y), generator=generator(self.seed, step))[: self.block]
            rows = residual.abs().topk(self.block).indices if self.greedy else rows
            alpha[rows] += self.shrink * torch.linalg.solve(A[rows][:, rows], residual[rows])
            objective = float(0.5 * alpha @ (A @ alpha) - y @ alpha)
            place = Place(rows.clone(), f"step {step}")
            yield Step(
                State(step, alpha.clone(), theta.clone(), place, (objective, True)),
                Info(objective, float((y - A @ alpha).abs().max()), place),
            )
        return Outcome("converged", f"All {self.limit} steps are done.")

    def posterior(self, problem: Problem, state: State) -> Predictor:
        def predict(X: Tensor) -> Prediction:
            k = problem.kernel(state.theta, X, problem.train.X)
            return Prediction(k @ state.alpha, problem.kernel.diag(state.theta, X))

        return predict

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        return Cost(2.0 * n * n, 8.0 * n * n, {"K": 8.0 * n * n})


def same(first: Any, second: Any) -> bool:
    """Equal to the last bit, types included; nan equals nan."""
    if isinstance(first, Tensor):
        return first.dtype == second.dtype and torch.equal(first, second)
    if isinstance(first, tuple):
        return type(first) is type(second) and all(same(*pair) for pair in zip(first, second, strict=True))
    return type(first) is type(second) and (first == second or (first != first and second != second))


del registry["toy"]


class Clock:
    """A clock that advances by one second at each call."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def toy_spec(**settings: Any) -> Spec:
    """The same run as a spec."""
    return Spec("toy", settings, ROWS)


def toy_run(rows: data.Split | None = None, **settings: Any) -> Run:
    """A run of the toy on 54 rows of friedman1, with a clock of its own."""
    rows = rows or data.load(ROWS, split=0).scaled()
    kernel = kernels.make("se-ard", rows.train.d)
    return Run(Toy(**settings), Problem(rows.train, kernel, kernel.start(rows.train)), rows, clock=Clock())
