"""The loop that FITC and SGPR share: theta and Z move together down one gradient, by L-BFGS or conjugate gradients.

SciPy's memory is not part of a state, so it is begun anew every few evaluations (an epoch), and a run is resumed by
replaying the evaluations of its epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import numpy as np
import param
import torch
from torch import Tensor

from ....errors import NotPositiveDefinite
from ....linalg.scipy_descent import Evaluated, descend
from ....objectives import Nystrom
from ....posteriors import nystrom_posterior
from ....problem import Cost, Outcome, Posterior, Problem, Step
from ...base import Steps
from ..initial_sets import start_inputs
from ..selection.loop import EVALUATION, converged, entry_flops
from .likelihoods import BLOCK, Slopes, sparse, total
from .state import START, State, begun, prior, report

Gradient = Callable[[Any, Tensor, Any, Tensor], tuple[Nystrom, Slopes]]  # kernel, theta, train, Z
PASSES = 300.0  # flops of a product in the time of an entry's fifteen passes on the way back: a pass is a sum
A_BLOCK = 50.0  # calls of the rows that are differentiated together
PER_EPOCH = 40  # evaluations before SciPy's memory is begun anew


class Plan(NamedTuple):
    """The settings that the loop reads."""

    title: str
    num_inducing: int
    start: str
    likelihood: str
    learn: bool
    optimiser: str
    evaluations: int
    max_epochs: int
    tolerance: float
    seed: int


def plan(method: Any, likelihood: str) -> Plan:
    """The plan in a method's settings."""
    held = {name: getattr(method, name) for name in Plan._fields if name != "likelihood"}
    return Plan(**held, likelihood=likelihood)


def optimiser() -> Any:
    """SciPy's, for theta and Z together."""
    return param.Selector(
        default="L-BFGS-B",
        objects=["L-BFGS-B", "CG"],
        doc="SciPy's optimiser for points and hyperparameters together; L-BFGS-B needs fewer evaluations.",
    )


def evaluations() -> Any:
    """An epoch's budget."""
    return param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 100),
        doc=f"Evaluations of the objective in an epoch, after which the optimiser begins anew; 0 means {PER_EPOCH}.",
    )


def move(problem: Problem, resume: State | None, settings: Plan, gradient: Gradient) -> Steps:
    """Steps of a rival with moving points: each is one evaluation of objective and gradient."""
    state = resume
    if state is None:
        state = begun(problem, settings.num_inducing, settings.seed, settings.title)
        yield Step(state, START)
    if state.phase == "start":
        Z = start_inputs(settings.start, problem, settings.num_inducing, settings.seed)
        state = state._replace(phase="move", Z=Z, Z_begin=Z.clone())

    while state.epoch < settings.max_epochs:
        state = yield from life(problem, state, settings, gradient)
        objective = total(state.terms, settings.likelihood)
        gain = state.epoch_begin - objective
        if gain <= settings.tolerance * max(abs(objective), 1.0):
            return Outcome("converged", converged(state.epoch, gain, objective, settings.tolerance))
        state = state._replace(
            epoch=state.epoch + 1,
            position=0,
            Z_begin=state.Z.clone(),
            theta_begin=state.theta.clone(),
            epoch_begin=objective,
        )
    return Outcome("budget", f"All {settings.max_epochs} epochs are done; raise max_epochs to go on.")


def moved_posterior(problem: Problem, state: State, likelihood: str) -> Posterior:
    """The predictive distribution at these points; the prior before the first step."""
    if state.step == 0:
        return prior(problem, state)
    now = sparse(problem.kernel, state.theta, problem.train, state.Z, likelihood)
    return nystrom_posterior(problem.kernel, state.theta, state.Z, now)


def life(problem: Problem, state: State, settings: Plan, gradient: Gradient) -> Generator[Step, None, State]:
    """One life of the optimiser: a step an evaluation, each with the best point so far; resumed by replaying it."""
    limit, done = settings.evaluations or PER_EPOCH, state.position
    found = _descend(problem, state, settings, gradient, limit)
    for k, (theta, Z, now) in enumerate(found):
        if k < done:
            continue
        before, value = state.Z, total(now.terms, settings.likelihood)
        if state.epoch == 0 and k == 0:
            state = state._replace(epoch_begin=value)
        state = state._replace(step=state.step + 1, phase="move", position=k + 1, theta=theta, Z=Z, terms=now.terms)
        info = report(state, "vfe" if settings.likelihood == "vfe" else "pp", before, now.jitter)
        yield Step(state, info)
    return state


def _descend(
    problem: Problem, state: State, settings: Plan, gradient: Gradient, limit: int
) -> Generator[tuple[Tensor, Tensor, Nystrom], None, None]:
    """Yield the best (theta, Z, terms and factors) after each of at most `limit` evaluations."""
    p = len(state.theta)

    def parts(point: np.ndarray) -> tuple[Tensor, Tensor]:
        return torch.as_tensor(point[:p]).to(state.theta), torch.as_tensor(point[p:]).to(state.Z).reshape(state.Z.shape)

    def evaluate(point: np.ndarray) -> Evaluated | None:
        try:
            now, slopes = gradient(problem.kernel, parts(point)[0], problem.train, parts(point)[1])
        except NotPositiveDefinite:
            return None
        if not settings.learn:
            slopes.theta.zero_()
        down = torch.cat([slopes.theta, slopes.Z.reshape(-1)]).double().cpu().numpy()
        return Evaluated(total(now.terms, settings.likelihood), down, now)

    begin = torch.cat([state.theta_begin, state.Z_begin.reshape(-1)]).double().cpu().numpy()
    found = descend(evaluate, begin, settings.optimiser, limit)
    try:
        for best in found:
            if best.extra is not None:
                yield *parts(best.point), best.extra
    finally:
        found.close()


def moving_cost(problem: Problem, m: int) -> Cost:
    """What one evaluation of objective and gradient costs."""
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    m = min(m, n)
    flops = 6.0 * n * m * m + 2.0 * n * m * (entry_flops(problem) + 4.0 * d) + 3.0 * m**3
    flops += PASSES * n * m
    block = min(1.0 * s * n * m, BLOCK / 3)
    arrays = {"factor L": 1.0 * s * n * m, "K_mn": 1.0 * s * n * m, "a block": 5.0 * block}
    arrays["m x m factors"] = 8.0 * s * m * m
    return Cost(flops, 16.0 * s * n * m, arrays, EVALUATION + A_BLOCK * 3.0 * s * n * m / BLOCK)
