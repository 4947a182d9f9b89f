"""k-means centres as inducing inputs: they depend on the inputs alone and not on the targets.

    min_Z sum_i min_j |x_i - z_j|^2                                          Lloyd's iterations, from a k-means++ start

The hyperparameters are learned afterwards, on the objective of the family, with the centres fixed.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import partial
from typing import Any, ClassVar

from ....objectives import nystrom
from ....problem import Cost, Outcome, Problem, Step
from ...base import Steps, begun
from ...own_points import own_inputs, own_start
from ...setting_kinds import count
from .. import settings
from ..initial_sets import lloyd, spread_rows
from ..learning import learn_hyperparameters, learning_steps
from ..reporting import EVALUATION_CALLS, UNKNOWN_TERMS, entry_flops
from .loop import MovablePoints
from .state import START, MovingState, distance_moved, initial_state, report

Phase = Generator[Step, None, MovingState]
LLOYD = 35.0  # calls per iteration of Lloyd's algorithm


class KMeans(MovablePoints):
    """Centres of the inputs by Lloyd's iterations, then hyperparameters by the objective of the family."""

    key: ClassVar[str] = "kmeans"
    title: ClassVar[str] = "k-means centres"
    paper: ClassVar[str] = "Arthur & Vassilvitskii (2007). k-means++: the advantages of careful seeding. SODA."
    added_settings: ClassVar[Mapping[str, Any]] = {"start": "kmeans++"}
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\min_Z \sum_i \min_j |x_i - z_j|^2",
        "objective": r"F = \tfrac12\left[E_D + E_C + E_V\right]",
    }

    iterations = count(
        30,
        (5, 100),
        doc="Iterations of Lloyd's algorithm, at most; it stops when no centre moves.",
    )
    objective = settings.objective()
    start = own_start("kmeans++", "Initial centres, by default rows far from each other.")

    def steps(self, problem: Problem, resume: MovingState | None = None) -> Steps:
        first = initial_state(problem, self.num_points(len(problem.train)), self.seed, self.title)
        state = yield from begun(resume, first, START)
        if state.phase in ("start", "move"):
            state = yield from self._cluster(problem, state)
        if not self.learn:
            return Outcome("converged", f"The {len(state.Z):,} centres are fixed, and learn is off.")
        return (yield from self.epochs(problem, state, partial(self._learn_theta, problem)))

    def _cluster(self, problem: Problem, state: MovingState) -> Phase:
        """Iterate until no centre moves. The objective is only reported, at the first and the last of these steps."""
        X = problem.train.X
        if state.phase == "start":
            if isinstance(self.start, str):
                Z = X[spread_rows(X, self.num_points(len(X)), self.seed)].clone()
            else:
                Z = own_inputs(self.start, problem)
            state = state._replace(phase="move", Z=Z)
        for k in range(state.position, self.iterations):
            Z, _ = lloyd(X, state.Z)
            if k and bool((Z == state.Z).all()):
                break
            before = state.Z
            terms = UNKNOWN_TERMS if k else nystrom(problem.kernel, state.theta, problem.train, Z, self.objective).terms
            state = state._replace(step=state.step + 1, position=k + 1, Z=Z, terms=terms)
            yield Step(state, report(state, self.objective, distance_moved(state.Z, before), 0.0))

        model = nystrom(problem.kernel, state.theta, problem.train, state.Z, self.objective)
        state = state._replace(
            step=state.step + 1, phase="learn", position=0,
            terms=model.terms, epoch_begin=model.terms.total(self.objective),
        )  # fmt: skip
        yield Step(state, report(state, self.objective, 0.0, model.jitter))
        return state

    def _learn_theta(self, problem: Problem, state: MovingState) -> Phase:
        """Descend over theta; a state in the middle is resumed by repeating its evaluations."""
        evaluations = learn_hyperparameters(problem, state.Z, self, state.theta_begin, state.position)
        return learning_steps(state, evaluations, lambda state, jitter: report(state, self.objective, 0.0, jitter))

    def cost(self, problem: Problem) -> Cost:
        n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
        m = self.num_points(n)
        arrays = {"block": 3.0 * s * min(n * m, 3e6), "m x m factors": 6.0 * s * m * m, "rows": 1.0 * s * n * d}
        if not self.learn:
            return Cost(2.0 * n * m * (d + 2.0), s * n * (4.0 * m + 2.0 * d), arrays, LLOYD)
        flops = 6.0 * n * m * m + 3.0 * n * m * entry_flops(problem) + 2.0 * m**3  # of learning, the dearer phase
        return Cost(flops, s * (12.0 * n * m + n * d), arrays, EVALUATION_CALLS)
