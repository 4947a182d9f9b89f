"""Subset of regressors: f is a sum over random rows, its weights by least squares on all of them."""

from __future__ import annotations

from typing import ClassVar

import param
import torch
from torch import Tensor

from ...linalg.randomness import generator
from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .regressors import CHANNELS, Fit, grow, regressors_cost, regressors_posterior
from .regressors import Info as Report
from .regressors import State as At


class SubsetOfRegressors(Method):
    """A sum over random rows, fitted to all of them."""

    key: ClassVar[str] = "subset-of-regressors"
    title: ClassVar[str] = "Subset of regressors"
    family: ClassVar[str] = "gbcd"
    paper: ClassVar[str] = "Smola and Bartlett (2001). Sparse greedy Gaussian process regression. NIPS 13."
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "num_regressors": r"\min_a\ \tfrac12\|y-K_{nm}a\|^2+\tfrac{\sigma^2}{2}a^\top K_{mm}a"
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    num_regressors = settings.num_regressors()
    growth = settings.growth()
    chunk = param.Integer(
        50, bounds=(1, None), softbounds=(1, 500), doc="Rows that join at once; it changes the time, not the fit."
    )
    learn = settings.learn()
    subset = settings.subset()
    evaluations = settings.evaluations()

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return grow(self, problem, resume, self._next)

    def _next(self, fit: Fit, take: int) -> Tensor:
        """The next of a random order, without those that add nothing."""
        order = torch.randperm(len(fit.f), generator=generator(self.seed, "regressors")).to(fit.f.device)
        floor = 1e2 * torch.finfo(fit.f.dtype).eps * float(fit.diag.max())
        return order[fit.left[order] > floor][:take]

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return regressors_posterior(problem, state)

    def cost(self, problem: Problem) -> Cost:
        return regressors_cost(problem, self.num_regressors, self.growth, self.chunk, 0)
