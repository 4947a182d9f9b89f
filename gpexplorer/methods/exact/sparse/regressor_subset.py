"""Subset of regressors: f is a sum over random rows, its weights by least squares on all of them."""

from __future__ import annotations

from typing import ClassVar

import param
import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Cost, Problem
from .regressors import Fit, regressors_cost
from .sparse_solver import Sparse


class SubsetOfRegressors(Sparse):
    """A sum over random rows, fitted to all of them."""

    key: ClassVar[str] = "subset-of-regressors"
    title: ClassVar[str] = "Subset of regressors"
    paper: ClassVar[str] = "Smola and Bartlett (2001). Sparse greedy Gaussian process regression. NIPS 13."
    equations: ClassVar[dict[str, str]] = {
        "num_regressors": r"\min_a\ \tfrac12\|y-K_{nm}a\|^2+\tfrac{\sigma^2}{2}a^\top K_{mm}a"
    }

    chunk = param.Integer(
        50, bounds=(1, None), softbounds=(1, 500), doc="Rows that join at once; it changes the time, not the fit."
    )

    def chosen(self, fit: Fit, take: int) -> Tensor:
        """The next of a random order, without those that add nothing."""
        order = torch.randperm(len(fit.f), generator=generator(self.seed, "regressors")).to(fit.f.device)
        floor = 1e2 * torch.finfo(fit.f.dtype).eps * float(fit.diag.max())
        return order[fit.left[order] > floor][:take]

    def cost(self, problem: Problem) -> Cost:
        return regressors_cost(problem, self.num_regressors, self.growth, self.chunk, 0)
