"""What sparse rivals share: theta is learned first, then rows join, and the weights are those of least squares."""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ....objectives import nystrom
from ....posteriors import nystrom_posterior
from ....problem import Channel, Outcome, Posterior, Prediction, Problem, Step
from ...base import Method, Steps
from .. import settings
from ..loop import learning
from .regressors import CHANNELS, Fit
from .regressors import Info as Report
from .regressors import State as At


class Sparse(Method):
    """A sum over rows of which some join at every step; a subclass says which."""

    family: ClassVar[str] = "exact"
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_regressors = param.Integer(
        500,
        bounds=(1, None),
        softbounds=(50, 2000),
        doc="Rows that f is a sum over, 2000 published; n numbers each are held.",
    )
    growth = param.Integer(50, bounds=(1, None), softbounds=(1, 200), doc="Rows that join in one step.")
    chunk: Any  # rows that join before f is brought up to date, a setting of each
    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()

    @abstractmethod
    def chosen(self, fit: Fit, take: int) -> Tensor:
        """The rows that join next, as many as `take`; fewer where none is worth it."""

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        """Learn theta on a subset, then `growth` rows a step until there are `num_regressors`, or none is left."""
        state, without = resume, 0.5 * float(problem.train.y @ problem.train.y)  # E of no row, whatever theta is
        if state is None:
            none = torch.zeros(0, dtype=torch.int64, device=problem.train.y.device)
            state = At(0, "learn", 0, problem.theta.clone(), none)
            yield Step(state, Report("start", without))
        if state.phase == "learn":
            if self.learn:
                state = yield from learning(self, problem, state, partial(Report, objective=without))
            state = state._replace(phase="grow", position=0)

        most = min(self.num_regressors, len(problem.train))
        fit = Fit(problem, state.theta, most)
        for joined in state.inducing.split(self.chunk):
            fit.join(joined)
        while fit.m < most:
            before = fit.m
            while fit.m < min(before + self.growth, most):
                new = self.chosen(fit, min(self.chunk, before + self.growth - fit.m, most - fit.m))
                if not len(new):
                    break
                fit.join(new)
            if fit.m == before:
                return Outcome("converged", f"No row is left that {fit.m} regressors do not explain already.")
            state = state._replace(step=state.step + 1, position=state.position + 1, inducing=fit.rows.clone())
            yield Step(state, Report("grow", fit.value, jitter=fit.jitter, active=fit.rows[before:].clone()))
        return Outcome("converged", f"All {most} regressors are chosen and the weights are those of least squares.")

    def posterior(self, problem: Problem, state: At) -> Posterior:
        """Mean of the sum over rows; variance of the projected process, which far from the rows is the prior's."""
        kernel, theta = problem.kernel, state.theta
        if not len(state.inducing):
            return lambda X: Prediction(problem.train.y.new_zeros(len(X)), kernel.diag(theta, X))
        Z = problem.train.rows(state.inducing).X
        return nystrom_posterior(kernel, theta, Z, nystrom(kernel, theta, problem.train, Z))
