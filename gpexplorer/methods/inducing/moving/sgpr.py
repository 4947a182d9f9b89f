"""SGPR: inducing inputs that move with the hyperparameters down the gradient of the variational bound.

The bound and its gradient in Z are closed forms in one pass over the rows (`objectives`), without a recorded graph.
The setting `engine` replaces them by GPyTorch's bound and autograd, for a race in which all else is equal.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor

from ....errors import SettingError
from ....linalg.cholesky import cholesky
from ....linalg.deferred_reads import with_reads
from ....linalg.gaussian import LinearGaussian
from ....objectives import Nystrom, Terms, noise_variance
from ....problem import Dataset, Problem
from ... import gpytorch_parts
from ...setting_kinds import choice
from .. import settings
from ..initial_sets import start
from .loop import Descent, Gradient, MovingPoints


class SGPR(MovingPoints):
    """Titsias' variational bound with inducing inputs that move."""

    key: ClassVar[str] = "sgpr"
    title: ClassVar[str] = "SGPR, moving inputs"
    paper: ClassVar[str] = "Titsias (2009). Variational learning of inducing variables in sparse GPs. AISTATS."
    equations: ClassVar[dict[str, str]] = {
        "num_inducing": r"\min_{\theta, Z} F(\theta, Z),\quad \hat K = K_{nm} K_{mm}^{-1} K_{mn}",
        "objective": r"F = \tfrac12\left[y^\top(\hat K+\sigma^2 I)^{-1}y + \log|\hat K+\sigma^2 I|"
        r" + \sigma^{-2}\operatorname{tr}(K-\hat K)\right]",
        "engine": r"\partial F/\partial Z = (\partial F/\partial K_{mn})\,\partial K_{mn}/\partial Z"
        r" + (\partial F/\partial K_{mm})\,\partial K_{mm}/\partial Z",
    }

    start = start("kmeans")
    objective = settings.objective()
    engine: Any = choice(
        ["closed form", "gpytorch"],
        doc="What computes bound and gradient: this package, or GPyTorch by autograd (for the kernels se and matern).",
    )

    def descent(self, problem: Problem) -> Descent:
        descent = super().descent(problem)
        if self.engine != "gpytorch":
            return descent
        gpytorch_parts.check(problem.kernel, "closed form")
        if self.objective != "vfe":
            raise SettingError(
                f'GPyTorch\'s bound has the objective vfe, not {self.objective}; choose engine "closed form".'
            )
        return descent._replace(model_and_gradient=gpytorch_gradient, is_recordable=False)


def gpytorch_gradient(kernel: Any, theta: Tensor, train: Dataset, Z: Tensor) -> tuple[Nystrom, Gradient]:
    """Compute the terms and the gradient of F by GPyTorch's algebra and autograd. The factors are left empty.

    Raises
    ------
    NotPositiveDefinite
        K_mm has no Cholesky factor, even with jitter.
    """
    theta = theta.to(Z.device)
    parts = gpytorch_parts.parts(kernel, theta)
    with torch.inference_mode(False), torch.enable_grad():
        model = _gpytorch_model(parts, train, Z)
        marginal = model.likelihood(model(train.X))
        fit, complexity = marginal.lazy_covariance_matrix.inv_quad_logdet(train.y[:, None], logdet=True)
        trace = -2.0 * sum(part.loss() for part in model.added_loss_terms()).sum()
        (0.5 * (fit + complexity + trace)).backward()
    sparse = model.covar_module
    gradient = Gradient(parts.gradient(), sparse.inducing_points.grad)
    empty = theta.new_zeros(0, 0)
    terms = Terms(*(part.item() for part in (fit, complexity, trace)))
    factors = LinearGaussian(empty, theta.new_zeros(0), noise_variance(theta), len(train), *terms[:2], 0.0)
    return Nystrom(terms, empty, factors, sparse.jitter), gradient


def _gpytorch_model(parts: gpytorch_parts.Parts, train: Dataset, Z: Tensor) -> Any:
    """Return GPyTorch's sparse GP with these inducing inputs, in training mode."""
    gpytorch = gpytorch_parts.package()

    class Inducing(gpytorch.kernels.InducingPointKernel):  # type: ignore[misc]
        jitter = 0.0  # on K_mm, a channel of the run; GPyTorch itself reports its jitter only as a warning

        @property
        def _inducing_mat(self) -> Tensor:
            K = super()._inducing_mat
            with with_reads():  # GPyTorch raises an error where a jitter that it needs is left out
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
