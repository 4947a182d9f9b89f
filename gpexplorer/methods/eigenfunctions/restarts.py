"""One descent on a likelihood, evaluation by evaluation, and the state that follows it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice
from ...linalg.scipy_descent import Evaluated, descend
from ...problem import Dataset, Problem, Step
from ..fixed_subset import learn_on_subset
from .evidence import gradient, gram
from .state import Info, State

PATIENCE = 6  # evaluations that may pass with next to no gain

Phase = Generator[Step, None, State]


class Found(NamedTuple):
    """The best point of a descent so far."""

    theta: Tensor  # [P]
    value: float  # NLML
    fit: float | None  # its data fit, where the descent knows it


Descent = Generator[Found, None, None]


def exact(method: Any, problem: Problem, begin: Tensor) -> Descent:
    """On an exact GP of the subset. O(subset^3) an evaluation."""
    at = Problem(problem.train, problem.kernel, begin)
    with closing(learn_on_subset(at, method.seed, method.subset, method.evaluations)) as found:
        for best in found:
            yield Found(best.theta, best.value, None)


def finite(method: Any, choice: Choice, rows: Dataset, begin: Tensor) -> Descent:
    """On basis functions that are held. 3 n p^2 flops an evaluation."""

    def evaluate(point: np.ndarray) -> Evaluated | None:
        theta = torch.as_tensor(point).to(begin)
        try:
            now = gram(choice, theta, rows, method.map)
            slope = gradient(choice, theta, rows, now, method.map)
        except (NotPositiveDefinite, IndexError):  # no factor there, or an eigenvalue fell below rounding
            return None
        return Evaluated(now.value, slope.double().cpu().numpy(), now.fit)

    limit = method.evaluations if method.learn else 1
    with closing(descend(evaluate, begin.double().cpu().numpy(), "L-BFGS-B", limit)) as found:
        for best in found:
            yield Found(torch.as_tensor(best.point).to(begin), best.value, best.extra)


def patient(found: Descent, tolerance: float) -> Descent:
    """The descent until PATIENCE evaluations together gain no more than the fraction `tolerance` of the likelihood."""
    values: list[float] = []
    with closing(found):
        for best in found:
            yield best
            values.append(best.value)
            before = values[-1 - PATIENCE] if len(values) > PATIENCE else float("inf")
            if before - best.value <= tolerance * max(abs(best.value), 1.0):
                return


def followed(
    state: State, found: Descent, taken: Callable[[Tensor], dict[str, Any]], report: Callable[[State, Found], Info]
) -> Phase:
    """The state after each evaluation, those before its position replayed; what beats its objective is `taken`."""
    for k, best in enumerate(found):
        if k < state.position:
            continue
        state = state._replace(step=state.step + 1, position=k + 1)
        if best.value < state.objective:
            state = state._replace(objective=best.value, theta=best.theta, **taken(best.theta))
        yield Step(state, report(state, best))
    return state
