"""GPyTorch's own variational bound and its autograd, in the shape of `moved.sparse_gradient`: a rival's engine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ....errors import SettingError
from ....linalg.cholesky import cholesky
from ....objectives import Nystrom, Terms, noise_variance
from ....problem import Dataset
from ... import gpytorch_parts
from .likelihoods import Slopes


def check(kernel: Any, objective: str) -> None:
    """SettingError where GPyTorch is missing, or has no such kernel or objective here."""
    gpytorch_parts.check(kernel, "closed form")
    if objective != "vfe":
        raise SettingError(f'GPyTorch\'s bound has the objective vfe, not {objective}; choose engine "closed form".')


def gradient(kernel: Any, theta: Tensor, train: Dataset, Z: Tensor) -> tuple[Nystrom, Slopes]:
    """Terms and the gradient of F, all by GPyTorch's algebra and autograd. The factors are left empty.

    Raises NotPositiveDefinite where K_mm is not, even with jitter.
    """
    parts = gpytorch_parts.parts(kernel, theta)
    with torch.enable_grad():
        model = _model(parts, train, Z)
        observed = model.likelihood(model(train.X))
        fit, complexity = observed.lazy_covariance_matrix.inv_quad_logdet(train.y[:, None], logdet=True)
        trace = -2.0 * sum(part.loss() for part in model.added_loss_terms()).sum()
        (0.5 * (fit + complexity + trace)).backward()
    sparse = model.covar_module
    slopes = Slopes(parts.slopes(), sparse.inducing_points.grad)
    empty = theta.new_zeros(0, 0)
    terms = Terms(*(part.item() for part in (fit, complexity, trace)))
    return Nystrom(terms, empty, empty, theta.new_zeros(0), noise_variance(theta), sparse.jitter), slopes


def _model(parts: gpytorch_parts.Parts, train: Dataset, Z: Tensor) -> Any:
    """GPyTorch's sparse GP with these inducing inputs, in training mode."""
    gpytorch = gpytorch_parts.package()

    class Inducing(gpytorch.kernels.InducingPointKernel):  # type: ignore[misc]
        jitter = 0.0  # on K_mm, a channel of the run: GPyTorch's own is told as a warning alone

        @property
        def _inducing_mat(self) -> Tensor:
            K = super()._inducing_mat
            self.jitter = cholesky(K.detach(), "GPyTorch's K_mm").jitter
            return K + self.jitter * torch.eye(len(K)).to(K) if self.jitter else K

    class Model(gpytorch.models.ExactGP):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(train.X, train.y, parts.likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = Inducing(parts.covariance, Z.clone(), parts.likelihood)

        def forward(self, X: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    return Model().to(train.y).train()
