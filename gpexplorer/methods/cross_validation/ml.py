"""Exact maximum likelihood, the benchmark of the paper: n^3 per evaluation.

    l(theta)  = (y'C^-1 y + log |C|) / 2,   C = K + s2 I [n, n]                                      eq 2, halved
    dl/dtheta = tr((C^-1 - a a') dC/dtheta) / 2,   a = C^-1 y [n]                                    eq 4, halved

The equations are those of Xu, Yin, Zhang, Luo and Cui (2019). The setting `engine` replaces this package's likelihood
and gradient by those of GPyTorch.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...objectives import evidence
from ...problem import Channel, Cost, Dataset, Problem, channel, channels_of
from .. import gpytorch_parts
from .learning import ExactLearning, LearningInfo, Objective, dense_cost


class MaximumLikelihood(ExactLearning):
    """The exact GP with the hyperparameters of highest marginal likelihood.

    References
    ----------
    Rasmussen and Williams (2006), section 5.4.1.
    """

    key: ClassVar[str] = "ml"
    title: ClassVar[str] = "Exact GP, maximum likelihood"
    paper: ClassVar[str] = "Rasmussen and Williams (2006). Gaussian processes for machine learning, section 5.4.1."
    equations: ClassVar[dict[str, str]] = {
        "optimiser": r"\min_\theta\ \tfrac12\,y^\top C(\theta)^{-1}y + \tfrac12\log|C(\theta)|"
    }
    channels: ClassVar[tuple[Channel, ...]] = channels_of(
        LearningInfo, only=("objective", "slope"), objective=channel("NLML", "nat", monotone=True)
    )

    engine: Any = param.Selector(
        default="closed form",
        objects=["closed form", "gpytorch"],
        doc="What computes the likelihood and its gradient: this package, or GPyTorch by autograd, as a baseline.",
    )

    def objective(self, problem: Problem) -> Objective:
        likelihood = evidence
        if self.engine == "gpytorch":
            gpytorch_parts.check(problem.kernel, "closed form")
            likelihood = gpytorch_evidence

        def evaluate(theta: Tensor) -> tuple[float, float, Tensor]:
            value, gradient = likelihood(problem.kernel, theta, problem.train)
            return value, 0.0, gradient

        return Objective(evaluate)

    def cost(self, problem: Problem) -> Cost:
        return dense_cost(problem, flops=1.0 * len(problem.train) ** 3, matrices=4)


def gpytorch_evidence(kernel: Any, theta: Tensor, train: Dataset) -> tuple[float, Tensor]:
    """Compute the NLML without its constant, and its gradient [p], by GPyTorch's Cholesky factor and autograd.

    Raises
    ------
    NotPositiveDefinite
        K + s2 I has no Cholesky factor.
    """
    gpytorch = gpytorch_parts.package()
    parts = gpytorch_parts.parts(kernel, theta)
    dense = gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)
    try:
        with torch.enable_grad(), dense:
            zero = train.y.new_zeros(len(train))
            latent = gpytorch.distributions.MultivariateNormal(zero, parts.covariance(train.X))
            covariance = parts.likelihood(latent).lazy_covariance_matrix
            fit, complexity = covariance.inv_quad_logdet(train.y[:, None], logdet=True)
            value = 0.5 * (fit + complexity)
            value.backward()
    except Exception as error:
        if type(error).__name__ == "NotPSDError":  # an error of the linear_operator package
            raise NotPositiveDefinite("GPyTorch's K + s2 I", len(train), math.nan) from error
        raise
    return value.item(), parts.gradient()
