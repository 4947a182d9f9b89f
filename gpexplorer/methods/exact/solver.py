"""What solvers of the exact GP share: theta is learned first, then each has moves of its own, then exact answers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

import param

from ...problem import Channel, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .loop import CHANNELS, solve
from .loop import Info as Report
from .loop import State as At
from .posteriors import exact_posterior
from .system import Move, System


class Solver(Method):
    """Settings and steps; a subclass says how it moves."""

    family: ClassVar[str] = "exact"
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()
    tolerance = param.Number(
        1e-4,
        bounds=(0.0, None),
        softbounds=(1e-6, 1e-1),
        doc="Stop when no entry of the gradient exceeds this; checked against one computed from scratch.",
    )
    max_iterations = param.Integer(
        2000, bounds=(1, None), softbounds=(10, 5000), doc="Iterations after which to stop in any case."
    )
    cache = param.Number(
        1.0,
        bounds=(0.0, None),
        softbounds=(0.0, 8.0),
        doc="Gigabytes for kernel rows that are kept instead of computed again; 0 keeps none.",
    )
    variance_rows = param.Integer(
        2000,
        bounds=(0, None),
        softbounds=(0, 5000),
        doc="Rows behind a predictive variance, an upper bound on the exact; 0 is all, by CG for many points at once.",
    )

    # settings of those that carry a gradient: it may drift, or be of lower precision
    mixed: Any = False
    refresh: Any = 0

    @abstractmethod
    def moves(self, system: System, state: At) -> Iterator[Move]:
        """Iterations from this state on, without end, or until the system is solved."""

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return solve(self, problem, resume)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return exact_posterior(problem, state, self.variance_rows, self.seed)
