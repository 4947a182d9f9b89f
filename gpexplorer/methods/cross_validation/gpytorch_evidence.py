"""GPyTorch's own marginal likelihood and its autograd, in the shape of `objectives.evidence`: a rival's engine."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...problem import Dataset
from .. import gpytorch_parts


def evidence(kernel: Any, theta: Tensor, train: Dataset) -> tuple[float, Tensor]:
    """(NLML without its constant, its gradient [p]) by a dense Cholesky factor of GPyTorch's."""
    gpytorch = gpytorch_parts.package()
    parts = gpytorch_parts.parts(kernel, theta)
    dense = gpytorch.settings.fast_computations(covar_root_decomposition=False, log_prob=False, solves=False)
    try:
        with torch.enable_grad(), dense:
            zero = train.y.new_zeros(len(train))
            latent = gpytorch.distributions.MultivariateNormal(zero, parts.covariance(train.X))
            observed = parts.likelihood(latent).lazy_covariance_matrix
            fit, complexity = observed.inv_quad_logdet(train.y[:, None], logdet=True)
            value = 0.5 * (fit + complexity)
            value.backward()
    except Exception as error:
        if type(error).__name__ == "NotPSDError":  # of the package's own linear algebra
            raise NotPositiveDefinite("GPyTorch's K + s2 I", len(train), math.nan) from error
        raise
    return value.item(), parts.slopes()
