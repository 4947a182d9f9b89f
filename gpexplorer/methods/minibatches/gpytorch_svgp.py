"""GPyTorch's variational strategy on the kernel of a Model, with all parameters as views of one vector.

GPyTorch is imported when it is needed.

Apart because it imports another library, which the method itself does without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...errors import SettingError
from .. import gpytorch_parts
from .model import Model


def _gpytorch() -> tuple[Any, Any]:
    """The package, and the function that wraps a matrix without checking it."""
    try:
        gpytorch = gpytorch_parts.package()
        from linear_operator import to_linear_operator
    except ImportError:
        raise SettingError('SVGP needs GPyTorch, which is not installed: pip install "gpexplorer[race]".') from None
    return gpytorch, to_linear_operator


class VariationalBound:
    """The evidence lower bound of a minibatch and its gradient.

    Parameters
    ----------
    theta : Tensor
        Parameters of the kernel [p]; GPyTorch's parameters become views of it.
    parts : list of Tensor
        Inducing inputs Z [m, d], whitened mean [m] and factor [m, m] of the variational normal, likewise.
    """

    def __init__(self, model: Model, theta: Tensor, parts: list[Tensor]) -> None:
        (gpytorch, wrap), Z = _gpytorch(), parts[0]
        with torch.random.fork_rng(devices=[]):  # GPyTorch draws initial values, which are replaced below
            normal = gpytorch.variational.CholeskyVariationalDistribution(len(Z)).to(theta)

            class ApproximateModel(gpytorch.models.ApproximateGP):  # type: ignore[misc, name-defined]
                def __init__(self) -> None:
                    super().__init__(gpytorch.variational.VariationalStrategy(self, Z.clone(), normal))
                    self.theta = torch.nn.Parameter(theta)

                def forward(self, X: Tensor) -> Any:
                    K = model.covariance(self.theta, X, X)
                    return gpytorch.distributions.MultivariateNormal(X.new_zeros(len(X)), wrap(K))

            self.gp = ApproximateModel().train()
        self.gp.variational_strategy.variational_params_initialized.fill_(1)
        variational = [
            self.gp.variational_strategy.inducing_points,
            normal.variational_mean,
            normal.chol_variational_covar,
        ]
        for parameter, part in zip([*variational, self.gp.theta], [*parts, theta], strict=True):
            parameter.data = part  # shared memory: the optimiser moves the vector, and with it GPyTorch's parameters
        self.parameters, self.n = [*variational, self.gp.theta], model.n

    def __call__(self, X: Tensor, y: Tensor, jitter: float) -> tuple[Tensor, list[Tensor]]:
        """Return -2 ELBO / n without its constant, and the gradient of half of it in Z, mean, factor and theta.

        `jitter` is added to K_mm, and by GPyTorch to the prior variances too.
        """
        self.gp.variational_strategy.jitter_val = jitter
        with torch.enable_grad():
            f = self.gp(X)
            s2 = (2.0 * self.gp.theta[-1]).exp()
            fit = ((y - f.mean).square() + f.variance).mean() / s2 + 2.0 * self.gp.theta[-1]
            loss = 0.5 * fit + self.gp.variational_strategy.kl_divergence() / self.n
            gradients = torch.autograd.grad(loss, self.parameters)
        return 2.0 * loss.detach(), list(gradients)
