"""SGPR: inducing inputs that move with the hyperparameters down the gradient of the variational bound.

The bound and its gradient in Z are closed forms in one pass over the rows (`moved`), not a recorded graph; GPyTorch's
own bound and autograd can take their place, for a race in which all else is equal.
"""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import param

from ....problem import Channel, Cost, Posterior, Problem
from ...base import Method, Steps
from .. import settings
from ..initial_sets import start
from . import gpytorch_bound, loop
from .likelihoods import sparse_gradient
from .state import CHANNELS
from .state import Info as Report
from .state import State as At


class SGPR(Method):
    """Titsias' variational bound with inducing inputs that move."""

    key: ClassVar[str] = "sgpr"
    title: ClassVar[str] = "SGPR, moving inputs"
    family: ClassVar[str] = "inducing"
    paper: ClassVar[str] = "Titsias (2009). Variational learning of inducing variables in sparse GPs. AISTATS."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\min_{\theta, Z} F(\theta, Z),\quad \hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "objective": r"F = \tfrac12\left[y^\top(\hat K+\sigma^2 I)^{-1}y + \log|\hat K+\sigma^2 I|"
        r" + \sigma^{-2}\operatorname{tr}(K-\hat K)\right]",
        "engine": r"\partial F/\partial Z = (\partial F/\partial K_{mn})\,\partial K_{mn}/\partial Z"
        r" + (\partial F/\partial K_{mm})\,\partial K_{mm}/\partial Z",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_inducing = settings.num_inducing()
    start = start("kmeans")
    objective = settings.objective()
    engine: Any = param.Selector(
        default="closed form",
        objects=["closed form", "gpytorch"],
        doc="Who computes bound and gradient: this package, or GPyTorch by autograd (for kernels se and matern).",
    )
    learn = settings.learn()
    optimiser = loop.optimiser()
    evaluations = loop.evaluations()
    max_epochs = settings.max_epochs()
    tolerance = settings.tolerance()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        plan = loop.plan(self, self.objective)
        if self.engine == "gpytorch":
            gpytorch_bound.check(problem.kernel, self.objective)
            return loop.move(problem, resume, plan, gpytorch_bound.gradient)
        return loop.move(problem, resume, plan, partial(sparse_gradient, likelihood=self.objective))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return loop.moved_posterior(problem, state, self.objective)

    def cost(self, problem: Problem) -> Cost:
        return loop.moving_cost(problem, self.num_inducing)
