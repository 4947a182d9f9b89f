"""Matching pursuit for sparse GPs: regressors one after another, each the best of a few drawn at random."""

from __future__ import annotations

from typing import ClassVar

import param
import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Cost, Problem
from .regressors import Fit, regressors_cost
from .sparse_solver import Sparse


class MatchingPursuit(Sparse):
    """A sum over rows chosen for what each brings to the fit of all rows."""

    key: ClassVar[str] = "matching-pursuit"
    title: ClassVar[str] = "Matching pursuit"
    paper: ClassVar[str] = "Keerthi and Chu (2006). A matching pursuit approach to sparse GP regression. NIPS 18."
    equations: ClassVar[dict[str, str]] = {
        "pool": r"s = \arg\max_i\ \frac{(k_i^\top(y-f)-\sigma^2 f_i)^2}{2(k_i^\top k_i+\sigma^2 k_{ii})}"
    }

    chunk = param.Integer(
        5, bounds=(1, None), softbounds=(1, 50), doc="Rows that join before f is brought up to date; 1 is published."
    )
    pool = param.Integer(
        60,
        bounds=(1, None),
        softbounds=(10, 600),
        doc="Candidates drawn before each joining, 59 published, at n kernel entries each.",
    )

    def chosen(self, fit: Fit, take: int) -> Tensor:
        """The best of a pool drawn afresh; of those left where too few were drawn."""
        order = torch.randperm(len(fit.f), generator=generator(self.seed, "pool", fit.m)).to(fit.f.device)
        drawn = order[fit.left[order] > 0.0][: max(self.pool, take)]
        gain = fit.gains(drawn)
        best = gain.topk(min(take, len(drawn)))
        return drawn[best.indices[best.values > 0.0]]

    def cost(self, problem: Problem) -> Cost:
        return regressors_cost(problem, self.num_regressors, self.growth, self.chunk, self.pool)
