"""Exact maximum likelihood, the benchmark: n^3 an evaluation.

l(theta) = (y' C^-1 y + log |C|) / 2,  C = K + s2 I                                              eq 2, halved
dl/dtheta = tr((C^-1 - a a') dC/dtheta) / 2,  a = C^-1 y                                         eq 4, halved

Equations of Xu, Yin, Zhang, Luo and Cui (2019).
"""

from __future__ import annotations

from typing import ClassVar

import param
from torch import Tensor

from ...objectives import evidence
from ...problem import Channel, Cost, Posterior, Problem, channel
from .. import gpytorch_parts
from ..base import Method, Steps
from . import gpytorch_evidence, settings
from .costs import dense_cost
from .exact_posterior import posterior
from .learning import Info as Report
from .learning import Objective, learn
from .learning import State as At


class MaximumLikelihood(Method):
    """The exact GP, hyperparameters where the evidence is highest."""

    key: ClassVar[str] = "ml"
    title: ClassVar[str] = "Maximum likelihood"
    family: ClassVar[str] = "cross_validation"
    paper: ClassVar[str] = "Rasmussen and Williams (2006). Gaussian processes for machine learning, section 5.4.1."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "optimiser": r"\min_\theta\ \tfrac12\,y^\top C(\theta)^{-1}y + \tfrac12\log|C(\theta)|"
    }
    channels: ClassVar[tuple[Channel, ...]] = (
        channel("objective", "NLML", "nat", monotone=True),
        channel("slope", "largest slope", log=True),
    )

    engine: str = param.Selector(  # type: ignore[assignment]
        default="closed form",
        objects=["closed form", "gpytorch"],
        doc="Whose likelihood and gradient: this house's, or GPyTorch's own with its autograd (a rival).",
    )
    optimiser = settings.optimiser()
    evaluations = settings.evaluations()
    tolerance = settings.slope_tolerance()
    restarts = settings.restarts()
    refit = settings.refit()
    memory = settings.memory()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        evaluate = evidence
        if self.engine == "gpytorch":
            gpytorch_parts.check(problem.kernel, "closed form")
            evaluate = gpytorch_evidence.evidence

        def at(theta: Tensor) -> tuple[float, float, Tensor]:
            value, gradient = evaluate(problem.kernel, theta, problem.train)
            return value, 0.0, gradient

        return learn(self, problem, resume, Objective(at))

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return posterior(problem, state.theta, self.refit, self.memory)

    def cost(self, problem: Problem) -> Cost:
        return dense_cost(problem, flops=1.0 * len(problem.train) ** 3, matrices=4)
