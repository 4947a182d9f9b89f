"""GPyTorch's own variational strategy on the kernel of a Model, all of its parameters views of one vector.

GPyTorch is imported when it is asked for.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import SettingError
from .. import gpytorch_parts
from .model import Model


def _gpytorch() -> tuple[Any, Any]:
    """The package, and its way to say that a matrix needs no check."""
    try:
        gpytorch = gpytorch_parts.package()
        from linear_operator import to_linear_operator
    except ImportError:
        raise SettingError('SVGP is GPyTorch\'s, which is not installed: pip install "gpexplorer[race]".') from None
    return gpytorch, to_linear_operator


def covariance(model: Model, theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """k(X, Z) [n, m]: of the features where the kernel is linear, Gaussian in the learned inputs otherwise.

    Where Z is X itself, the map is gone through once.
    """
    parts = model.parts(theta)
    if model.waves is None:
        Phi = model.features(parts, X).Phi
        return Phi @ (Phi if Z is X else model.features(parts, Z).Phi).T
    x = model.map.layers(parts[:-2], X)[-1] * (-theta[-3]).exp()
    z = x if Z is X else model.map.layers(parts[:-2], Z)[-1] * (-theta[-3]).exp()
    far = x.square().sum(1)[:, None] + z.square().sum(1) - 2.0 * x @ z.T
    return (2.0 * theta[-2] - 0.5 * far.clamp_min(0.0)).exp()


def variance(model: Model, theta: Tensor, X: Tensor) -> Tensor:
    """k(x, x) [n]."""
    if model.waves is None:
        return model.features(model.parts(theta), X).Phi.square().sum(1)
    return (2.0 * theta[-2]).exp().expand(len(X))


class Engine:
    """The evidence lower bound of a minibatch and its gradient, on parameters that live in `theta` and `w`."""

    def __init__(self, model: Model, theta: Tensor, parts: list[Tensor]) -> None:
        """`parts`: inducing inputs Z [m, d], the whitened mean [m] and the factor [m, m] of the variational normal."""
        (gpytorch, lazily), Z = _gpytorch(), parts[0]
        with torch.random.fork_rng(devices=[]):  # GPyTorch draws a start, which is replaced below
            normal = gpytorch.variational.CholeskyVariationalDistribution(len(Z)).to(theta)

            class Deep(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
                def __init__(self) -> None:
                    super().__init__(gpytorch.variational.VariationalStrategy(self, Z.clone(), normal))
                    self.theta = torch.nn.Parameter(theta)

                def forward(self, X: Tensor) -> Any:
                    K = covariance(model, self.theta, X, X)
                    return gpytorch.distributions.MultivariateNormal(X.new_zeros(len(X)), lazily(K))

            self.gp = Deep().train()
        self.gp.variational_strategy.variational_params_initialized.fill_(1)
        own = [self.gp.variational_strategy.inducing_points, normal.variational_mean, normal.chol_variational_covar]
        for parameter, part in zip([*own, self.gp.theta], [*parts, theta], strict=True):
            parameter.data = part  # shared: what moves the vector moves GPyTorch
        self.parameters, self.n = [*own, self.gp.theta], model.n

    def bound(self, X: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        """-2 ELBO / n without the constant, and the gradient of half of it in Z, mean, factor and theta."""
        with torch.enable_grad():
            f = self.gp(X)
            s2 = (2.0 * self.gp.theta[-1]).exp()
            fit = ((y - f.mean).square() + f.variance).mean() / s2 + 2.0 * self.gp.theta[-1]
            loss = 0.5 * fit + self.gp.variational_strategy.kl_divergence() / self.n
            slopes = torch.autograd.grad(loss, self.parameters)
        return 2.0 * loss.detach(), list(slopes)
