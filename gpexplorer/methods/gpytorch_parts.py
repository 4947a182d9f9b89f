"""Parts of GPyTorch's models, for rivals that are its own: imported when asked for, at a theta of ours.

Every positive parameter is given exp as its transform there, so that its raw parameters are logarithms and gradients
need no translation but a factor 2 for variances.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import SettingError

SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


class Parts(NamedTuple):
    """A scaled kernel and a Gaussian likelihood."""

    covariance: Any
    likelihood: Any

    def slopes(self) -> Tensor:
        """The gradient [p] that a backward pass left, with respect to our theta."""
        raw = (
            self.covariance.raw_outputscale,  # log sd^2
            self.covariance.base_kernel.raw_lengthscale,
            self.likelihood.noise_covar.raw_noise,  # log s2
        )
        variance, scales, noise = (part.grad.reshape(-1) for part in raw)
        return torch.cat([2.0 * variance, scales, 2.0 * noise])


def package() -> Any:
    """GPyTorch, imported without the deprecation warnings of its own imports."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gpytorch
    return gpytorch


def check(kernel: Any, instead: str) -> None:
    """SettingError where GPyTorch is missing, or has no such kernel here; `instead` is the engine to choose."""
    if kernel.key.removesuffix("-ard") not in ("se", *SMOOTHNESS):
        raise SettingError(
            f"GPyTorch's models are set up for the kernels se and matern, not for {kernel.key}; choose engine "
            f'"{instead}".'
        )
    try:
        package()
    except ImportError:
        raise SettingError(
            f'GPyTorch is not installed: pip install "gpexplorer[race]", or choose engine "{instead}".'
        ) from None


def parts(kernel: Any, theta: Tensor) -> Parts:
    """Its kernel and likelihood at this theta."""
    gpytorch = package()
    exponential = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
    ard = kernel.d if kernel.key.endswith("-ard") else None
    base = kernel.key.removesuffix("-ard")
    profile = (
        gpytorch.kernels.RBFKernel(ard_num_dims=ard, lengthscale_constraint=exponential)
        if base == "se"
        else gpytorch.kernels.MaternKernel(SMOOTHNESS[base], ard_num_dims=ard, lengthscale_constraint=exponential)
    )
    covariance = gpytorch.kernels.ScaleKernel(profile, outputscale_constraint=exponential).to(theta)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=exponential).to(theta)
    with torch.no_grad():
        covariance.raw_outputscale.fill_(2.0 * float(theta[0]))
        profile.raw_lengthscale.copy_(theta[1:-1].reshape(1, -1))
        likelihood.noise_covar.raw_noise.fill_(2.0 * float(theta[-1]))
    return Parts(covariance, likelihood)
