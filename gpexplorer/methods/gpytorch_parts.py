"""A kernel and a likelihood of GPyTorch at a given theta, for the baselines that GPyTorch computes.

GPyTorch is imported when it is needed. Every positive parameter gets the transform exp, so that GPyTorch's raw
parameters are logarithms, as in theta. Only the variances differ by a factor: theta holds log sd, GPyTorch log sd^2.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import SettingError

SMOOTHNESS = {"matern12": 0.5, "matern32": 1.5, "matern52": 2.5}


class Parts(NamedTuple):
    """A scaled kernel and a Gaussian likelihood of GPyTorch."""

    covariance: Any
    likelihood: Any

    def gradient(self) -> Tensor:
        """The gradient [p] with respect to theta that a backward pass has left in the raw parameters."""
        raw = (
            self.covariance.raw_outputscale,  # log sd^2
            self.covariance.base_kernel.raw_lengthscale,
            self.likelihood.noise_covar.raw_noise,  # log s2
        )
        variance, scales, noise = (part.grad.reshape(-1) for part in raw)
        return torch.cat([2.0 * variance, scales, 2.0 * noise])  # d / d log sd = 2 d / d log sd^2


def package() -> Any:
    """Import and return GPyTorch, without the deprecation warnings of its own imports."""
    with warnings.catch_warnings():
        for category in (DeprecationWarning, FutureWarning):  # torch 2.15 warns of torch.jit with the latter
            warnings.simplefilter("ignore", category)
        import gpytorch
    return gpytorch


def check(kernel: Any, instead: str) -> None:
    """Raise SettingError if GPyTorch is not installed or lacks this kernel; `instead` is the engine to choose."""
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
    """Make GPyTorch's kernel and likelihood at this theta.

    Parameters
    ----------
    kernel : Covariance
        An SE or Matern kernel of this package, with or without ARD.
    theta : Tensor [p]
        Log-hyperparameters; they give the precision and the device as well.
    """
    gpytorch = package()
    exponential = gpytorch.constraints.Positive(transform=torch.exp, inv_transform=torch.log)
    ard = kernel.d if kernel.key.endswith("-ard") else None
    base = kernel.key.removesuffix("-ard")
    options = {"ard_num_dims": ard, "lengthscale_constraint": exponential}
    kernels = gpytorch.kernels
    profile = kernels.RBFKernel(**options) if base == "se" else kernels.MaternKernel(SMOOTHNESS[base], **options)
    covariance = gpytorch.kernels.ScaleKernel(profile, outputscale_constraint=exponential).to(theta)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=exponential).to(theta)
    with torch.no_grad():
        covariance.raw_outputscale.fill_(2.0 * float(theta[0]))
        profile.raw_lengthscale.copy_(theta[1:-1].reshape(1, -1))
        likelihood.noise_covar.raw_noise.fill_(2.0 * float(theta[-1]))
    return Parts(covariance, likelihood)
