"""Where learning begins: several starts on a subset of the rows, of an exact GP and then of the finite basis.

Both likelihoods have many optima. Where inputs repeat one another an exact GP may settle without one that it needs,
and p functions cannot carry the lengthscales that suit the exact GP: a descent that begins at longer ones ends
better. The likelihood of the subset decides which start goes on:

    subset    exact GP; lengthscales 1, 2, 4, ... times those of the problem
    trial     basis functions; lengthscales 1, 2, 4, ... times those found, under each spacing of the grid
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import Tensor

from ...features.basis_choices import Choice
from ...linalg.randomness import generator, some
from ...problem import Kernel, Problem
from .restarts import Found, Phase, exact, finite, followed, patient
from .state import Info, State

Choose = Callable[[Tensor, str], Choice]  # theta and spacing -> basis functions


def on_subset(method: Any, problem: Problem, state: State) -> Phase:
    """theta of an exact GP on the subset; a descent is resumed by replaying its evaluations."""
    begins = stretched(problem.kernel, problem.theta, method.starts) if method.learn else []
    while state.round < len(begins):
        found = patient(exact(method, problem, begins[state.round]), method.tolerance)
        state = yield from followed(state, found, lambda theta: {"chosen": theta}, _report)
        state = state._replace(round=state.round + 1, position=0)
    return _begun(state, "trial" if method.learn else "learn", state.theta)


def trial(method: Any, problem: Problem, state: State, choose: Choose, spacings: tuple[str, ...]) -> Phase:
    """Which functions, spacing and theta learning on all rows begins with."""
    begins = stretched(problem.kernel, state.theta_begin, method.starts)
    candidates = [(theta, spacing) for spacing in spacings for theta in begins]
    drawn = some(len(problem.train), method.subset, generator(method.seed, "subset"))
    rows = problem.train.rows(drawn.to(problem.train.y.device))
    while state.round < len(candidates):
        theta, spacing = candidates[state.round]
        taken = {"chosen": theta, "spacing": spacing}
        found = patient(finite(method, choose(theta, spacing), rows, theta), method.tolerance)
        state = yield from followed(state, found, lambda _, taken=taken: taken, _report)  # type: ignore[misc]
        state = state._replace(round=state.round + 1, position=0)
    return _begun(state, "learn", state.chosen)


def stretched(kernel: Kernel, theta: Tensor, count: int) -> list[Tensor]:
    """theta with lengthscales as they are, twice as long, four times ...; as it is where the kernel has none."""
    lengths = [i for i, name in enumerate(kernel.names) if "lengthscale" in name]
    found = [theta.clone() for _ in range(count if lengths else 1)]
    for k, one in enumerate(found):
        one[lengths] += k * math.log(2.0)
    return found


def _begun(state: State, phase: str, chosen: Tensor) -> State:
    """Before the first evaluation of a phase."""
    return state._replace(phase=phase, round=0, position=0, theta_begin=state.theta, chosen=chosen, objective=math.inf)


def _report(state: State, best: Found) -> Info:
    return Info(state.phase, state.objective, evidence=state.objective)
