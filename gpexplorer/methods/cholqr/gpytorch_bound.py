"""GPyTorch's own variational bound and its autograd, in the shape of `moved.sparse_gradient`: a rival's engine.

GPyTorch is imported when it is asked for. Every positive parameter is given exp as its transform there, so that its
raw parameters are logarithms and gradients need no translation but a factor 2 for variances.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from ...errors import SettingError
from ...objectives import Nystrom, Terms, noise_variance
from ...problem import Dataset
from .moved import Slopes

SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


def check(kernel: Any, objective: str) -> None:
    """SettingError where GPyTorch is missing, or has no such kernel or objective here."""
    if kernel.key.removesuffix("-ard") not in ("se", *SMOOTHNESS) or objective != "vfe":
        raise SettingError(
            f"GPyTorch's bound is set up for the kernels se and matern and the objective vfe, not for {kernel.key} and "
            f'{objective}; choose engine "closed form".'
        )
    try:
        _gpytorch()
    except ImportError:
        raise SettingError(
            'GPyTorch is not installed: pip install "gpexplorer[race]", or choose engine "closed form".'
        ) from None


def _gpytorch() -> Any:
    """The package, imported without the deprecation warnings of its own imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
    return gpytorch


def gradient(kernel: Any, theta: Tensor, train: Dataset, Z: Tensor) -> tuple[Nystrom, Slopes]:
    """Terms and the gradient of F, all by GPyTorch's algebra and autograd. The factors are left empty."""
    with torch.enable_grad():
        model = _model(kernel, theta, train, Z)
        observed = model.likelihood(model(train.X))
        fit, complexity = observed.lazy_covariance_matrix.inv_quad_logdet(train.y[:, None], logdet=True)
        trace = -2.0 * sum(part.loss() for part in model.added_loss_terms()).sum()
        (0.5 * (fit + complexity + trace)).backward()
    covariance = model.covar_module
    raw = (
        covariance.base_kernel.raw_outputscale,  # log sd^2
        covariance.base_kernel.base_kernel.raw_lengthscale,
        model.likelihood.noise_covar.raw_noise,  # log s2
    )
    variance, scales, noise = (part.grad.reshape(-1) for part in raw)
    slopes = Slopes(torch.cat([2.0 * variance, scales, 2.0 * noise]), covariance.inducing_points.grad)
    empty = theta.new_zeros(0, 0)
    terms = Terms(*(part.item() for part in (fit, complexity, trace)))
    return Nystrom(terms, empty, empty, theta.new_zeros(0), noise_variance(theta), 0.0), slopes


def _model(kernel: Any, theta: Tensor, train: Dataset, Z: Tensor) -> Any:
    """GPyTorch's sparse GP at this theta and Z, in training mode."""
    gpytorch = _gpytorch()
    exponential = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
    ard = kernel.d if kernel.key.endswith("-ard") else None
    base = kernel.key.removesuffix("-ard")
    profile = (
        gpytorch.kernels.RBFKernel(ard_num_dims=ard, lengthscale_constraint=exponential)
        if base == "se"
        else gpytorch.kernels.MaternKernel(SMOOTHNESS[base], ard_num_dims=ard, lengthscale_constraint=exponential)
    )
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=exponential)

    class Model(gpytorch.models.ExactGP):
        def __init__(self) -> None:
            super().__init__(train.X, train.y, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            scaled = gpytorch.kernels.ScaleKernel(profile, outputscale_constraint=exponential)
            self.covar_module = gpytorch.kernels.InducingPointKernel(scaled, Z.clone(), likelihood)

        def forward(self, X: Tensor) -> Any:
            return gpytorch.distributions.MultivariateNormal(self.mean_module(X), self.covar_module(X))

    model = Model().to(train.y)
    scaled = model.covar_module.base_kernel
    with torch.no_grad():
        scaled.raw_outputscale.fill_(2.0 * float(theta[0]))
        scaled.base_kernel.raw_lengthscale.copy_(theta[1:-1].reshape(1, -1))
        likelihood.noise_covar.raw_noise.fill_(2.0 * float(theta[-1]))
    return model.train()
