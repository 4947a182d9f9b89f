"""Posteriors as torch modules without Python control flow, for `torch.export` and servers that run exported graphs.

    forward(X [t, d], in the units of the file) -> mean [t], variance [t]

Kernels are computed from differences of inputs, one input after another, so that no decision depends on the data.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import PosteriorError
from ..features.basis_choices import ChosenFeatures, Leading
from ..features.grid_eigenfunctions import split_index
from ..features.learned import LearnedKernel
from ..kernels.composites import Composite
from ..kernels.linear import Linear
from ..kernels.periodic import LocallyPeriodic, Periodic
from ..kernels.row_scaled import RowScaled
from ..kernels.separable import Separable
from ..kernels.stationary import Stationary
from .marginals import quadrature
from .weights import CovarianceRoot, PrecisionFactor


def torch_module(posterior: Any) -> nn.Module:
    """Return a module that predicts what a call of the posterior does, noise included if it is of y."""
    if posterior.kind == "average":
        return _Average(posterior)
    inner = posterior.inner if posterior.kind == "units" else posterior
    scaled = inner.kind == "unit rows"
    inner = inner.inner if scaled else inner
    cores: dict[str, Callable[[Any], nn.Module]] = {"inducing": _Inducing, "features": _Features, "rows": _Rows}
    if inner.kind not in cores or (inner.kind == "rows" and not hasattr(inner.solver, "L")):
        raise PosteriorError(
            f"A {type(inner).__name__} cannot be a torch module, because its variances are not those of one factor."
        )
    core = cores[inner.kind](inner)
    return _InUnits(posterior, _UnitRows(core) if scaled else core)


class _InUnits(nn.Module):
    """Scales inputs and answers, adds the noise, and undoes a transform of the target."""

    x_mean: Tensor
    x_sd: Tensor
    nodes: Tensor
    node_weights: Tensor

    def __init__(self, posterior: Any, core: nn.Module) -> None:
        super().__init__()
        scale = posterior.columns.scale if posterior.kind == "units" else None
        like = posterior.like.double()
        self.core, self.dtype = core.eval(), posterior.like.dtype
        self.register_buffer("x_mean", scale.x_mean if scale else like.new_zeros(1))
        self.register_buffer("x_sd", scale.x_sd if scale else like.new_ones(1))
        self.y_mean: float = scale.y_mean if scale else 0.0
        self.y_sd: float = scale.y_sd if scale else 1.0
        self.noise = posterior.noise_variance if posterior.of == "y" else 0.0
        self.transform = scale.transform if scale else None
        if self.transform is not None:
            nodes, weights = quadrature()
            self.register_buffer("nodes", nodes.to(like))
            self.register_buffer("node_weights", weights.to(like))

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [t] and variance [t] at inputs [t, d]."""
        mean, var = self.core(((X - self.x_mean) / self.x_sd).to(self.dtype))
        mean, var = mean * self.y_sd + self.y_mean, var.clamp_min(0.0) * self.y_sd**2 + self.noise
        if self.transform is None:
            return mean, var
        values = self.transform.inverse(mean.double()[:, None] + var.double().sqrt()[:, None] * self.nodes)
        mean = values @ self.node_weights
        return mean, (values - mean[:, None]).square() @ self.node_weights


class _Average(nn.Module):
    """The formulas of `AveragePosterior.moments`."""

    def __init__(self, posterior: Any) -> None:
        super().__init__()
        self.models = nn.ModuleList(torch_module(part.asked_for(posterior.of)) for part in posterior.parts)
        self.weights: tuple[float, ...] = posterior.weights

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [t] and variance [t] at inputs [t, d]."""
        predictions = [[part.double() for part in model(X)] for model in self.models]
        pairs = list(zip(self.weights, predictions, strict=True))
        mean = reduce(torch.add, [weight * own for weight, (own, _) in pairs])
        var = reduce(torch.add, [weight * (var + (own - mean).square()) for weight, (own, var) in pairs])
        return mean, var


class _UnitRows(nn.Module):
    """The formulas of `UnitRowsPosterior`."""

    def __init__(self, core: nn.Module) -> None:
        super().__init__()
        self.core = core

    def forward(self, X: Tensor) -> Any:
        return self.core(torch.cat([X, X.new_ones(X.shape[0], 1)], 1))


class _Inducing(nn.Module):
    """The formulas of `InducingPosterior.moments`."""

    Z: Tensor
    alpha: Tensor
    L_mm: Tensor

    def __init__(self, posterior: Any) -> None:
        super().__init__()
        self.kernel, self.weights = kernel_module(posterior.kernel, posterior.theta), _weights(posterior.weights)
        for name in ("Z", "alpha", "L_mm"):
            self.register_buffer(name, _numeric(getattr(posterior, name)))

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        K = self.kernel(self.Z, X)  # [m, t]
        L_star = torch.linalg.solve_triangular(self.L_mm, K, upper=False)
        var = self.kernel.diag(X) - L_star.square().sum(0) + self.weights(L_star).square().sum(0)
        return K.T @ self.alpha, var


class _Rows(nn.Module):
    """The formulas of `RowsPosterior.moments` with a Cholesky factor."""

    X: Tensor
    S: Tensor
    alpha: Tensor
    L: Tensor
    error_weights: Tensor

    def __init__(self, posterior: Any) -> None:
        super().__init__()
        self.kernel = kernel_module(posterior.kernel, posterior.theta)
        solver: Any = posterior.solver
        none = posterior.like.new_zeros(len(posterior.S))
        self.register_buffer("error_weights", getattr(posterior, "error_weights", none))
        for name, part in (("X", posterior.X), ("S", posterior.S), ("alpha", posterior.alpha), ("L", solver.L)):
            self.register_buffer(name, _numeric(part))

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        K = self.kernel(self.S, X)  # [s, t]
        half = torch.linalg.solve_triangular(self.L, K, upper=False)
        var = (self.kernel.diag(X) - half.square().sum(0)).clamp_min(0.0)
        return self.kernel(self.X, X).T @ self.alpha, var + (K.T @ self.error_weights).square()


class _Features(nn.Module):
    """The formulas of `FeaturePosterior.moments`; what a grid leaves out is chosen by a mask."""

    mean: Tensor
    V: Tensor | None

    def __init__(self, posterior: Any) -> None:
        super().__init__()
        features = posterior.features
        grid = isinstance(features, ChosenFeatures) and isinstance(features.choice, Leading)
        self.features: Any = _GridFeatures(features) if grid else features
        self.weights = _weights(posterior.weights)
        self.register_buffer("mean", posterior.weights.mean)
        self.register_buffer("V", posterior.V)
        self.unseen: float = posterior.unseen
        self.prior = None
        if grid and posterior.outside is not None:
            self.prior = kernel_module(posterior.outside.kernel, posterior.outside.theta)

    def forward(self, X: Tensor) -> tuple[Tensor, Tensor]:
        Phi = self.features(X)  # [p, t]
        Psi = Phi if self.V is None else self.V.T @ Phi
        var = self.weights(Psi).square().sum(0)
        if self.V is not None and self.unseen:
            var = var + self.unseen * (Phi.square().sum(0) - Psi.square().sum(0)).clamp_min(0.0)
        if self.prior is not None:
            missing = (self.prior.diag(X) - Phi.square().sum(0)).clamp_min(0.0)
            var = var + torch.where(self.features.outside(X), missing, torch.zeros_like(missing))
        return self.mean @ Psi, var


class _GridFeatures(nn.Module):
    """Eigenfunctions of a grid, those of each product of the kernel together."""

    low: Tensor
    high: Tensor
    place: Tensor

    def __init__(self, features: ChosenFeatures) -> None:
        super().__init__()
        choice: Any = features.choice
        on_axes, term = split_index(choice.index, len(choice.grid.axes))
        used = term.unique().tolist()
        members = [(term == t).nonzero()[:, 0] for t in used]
        products = [_ProductFeatures(choice, features.theta, t, on_axes[p]) for t, p in zip(used, members, strict=True)]
        self.products = nn.ModuleList(products)
        self.register_buffer("place", torch.cat(members).argsort())  # [p]
        self.register_buffer("low", torch.stack([U[0] for U in choice.grid.axes]))
        self.register_buffer("high", torch.stack([U[-1] for U in choice.grid.axes]))

    def forward(self, X: Tensor) -> Tensor:
        return torch.cat([product(X) for product in self.products]).index_select(0, self.place)

    def outside(self, X: Tensor) -> Tensor:
        """A mask [t] of the rows outside the grid."""
        return ((X < self.low) | (X > self.high)).any(1)


class _ProductFeatures(nn.Module):
    """Eigenfunctions of one product of 1-D kernels, as products over the axes (eq 15 of Evans and Nair 2018)."""

    def __init__(self, choice: Any, theta: Tensor, term: int, index: Tensor) -> None:
        super().__init__()
        self.basis, self.d = choice.functions(choice.grid, theta, index, term), len(choice.grid.axes)
        for q, pair in enumerate(choice.grid.axis_eigen(theta, term)):
            table = self.basis.axis_table(*pair)[:, index[:, q]]
            self.register_buffer(f"table_{q}", table.T.contiguous())  # [p, mbar]

    def forward(self, X: Tensor) -> Tensor:
        parts = [getattr(self, f"table_{q}") @ self.basis.axis_columns(q, X[:, q]) for q in range(self.d)]
        return reduce(torch.mul, parts)


class _Solved(nn.Module):
    """The matrix product of `PrecisionFactor.half`."""

    L: Tensor

    def __init__(self, weights: PrecisionFactor) -> None:
        super().__init__()
        self.register_buffer("L", weights.L)
        self.sd = weights.s2**0.5

    def forward(self, Phi: Tensor) -> Tensor:
        return self.sd * torch.linalg.solve_triangular(self.L, Phi, upper=False)


class _Multiplied(nn.Module):
    """The matrix product of `CovarianceRoot.half`, for any root of the covariance."""

    S: Tensor

    def __init__(self, S: Tensor) -> None:
        super().__init__()
        self.register_buffer("S", S)

    def forward(self, Phi: Tensor) -> Tensor:
        return self.S.T @ Phi


def _weights(weights: Any) -> nn.Module:
    if isinstance(weights, PrecisionFactor):
        return _Solved(weights)
    if isinstance(weights, CovarianceRoot):
        return _Multiplied(weights.S)
    root = torch.cat([torch.diag(weights.diagonal.sqrt()), weights.direction[:, None]], 1)  # [r, r + 1]
    return _Multiplied(root)


class _Kernel(nn.Module):
    """A kernel at one theta: forward(X, Z) gives [n, m], and diag(X) gives [n]."""

    theta: Tensor

    def __init__(self, kernel: Any, theta: Tensor) -> None:
        super().__init__()
        self.kernel = kernel
        self.register_buffer("theta", theta.detach().clone())

    def forward(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.kernel(self.theta, X, Z)

    def diag(self, X: Tensor) -> Tensor:
        """The prior variance [n]."""
        return self.kernel.diag(self.theta, X)


class _ConstantVariance(_Kernel):
    """A kernel whose variance is the same everywhere; len(X) would fix the number of rows of an exported graph."""

    def diag(self, X: Tensor) -> Tensor:
        return torch.exp(2.0 * self.theta[0]).expand(X.shape[0])


class _StationaryKernel(_ConstantVariance):
    """A stationary kernel from squared differences."""

    def forward(self, X: Tensor, Z: Tensor) -> Tensor:
        scales = self.theta[self.kernel._scales].exp().expand(self.kernel.d)
        r2 = reduce(torch.add, [((X[:, q, None] - Z[:, q]) / scales[q]).square() for q in range(self.kernel.d)])
        return torch.exp(2.0 * self.theta[0]) * self.kernel.profile(self.theta, r2)


class _PeriodicKernel(_ConstantVariance):
    """A periodic or locally periodic kernel from differences."""

    def forward(self, X: Tensor, Z: Tensor) -> Tensor:
        differences = [X[:, q, None] - Z[:, q] for q in range(self.kernel.d)]
        frequency = torch.pi * (-self.theta[2]).exp()
        sines = reduce(torch.add, [torch.sin(frequency * difference).square() for difference in differences])
        exponent = 2.0 * self.theta[0] - 2.0 * torch.exp(-2.0 * self.theta[1]) * sines
        if isinstance(self.kernel, LocallyPeriodic):
            r2 = reduce(torch.add, [difference.square() for difference in differences]) * torch.exp(
                -2.0 * self.theta[3]
            )
            exponent = exponent - 0.5 * r2
        return exponent.exp()


class _CompositeKernel(nn.Module):
    """A sum or product of two kernels."""

    def __init__(self, kernel: Composite, theta: Tensor) -> None:
        super().__init__()
        self.combine = kernel.combine
        self.first, self.second = (kernel_module(part, own) for part, own in kernel._with_theta(theta))

    def forward(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.combine(self.first(X, Z), self.second(X, Z))

    def diag(self, X: Tensor) -> Tensor:
        """The prior variance [n]."""
        return self.combine(self.first.diag(X), self.second.diag(X))


class _RowScaledKernel(nn.Module):
    """A kernel times the last columns of its arguments."""

    def __init__(self, kernel: RowScaled, theta: Tensor) -> None:
        super().__init__()
        self.base = kernel_module(kernel.base, theta)

    def forward(self, X: Tensor, Z: Tensor) -> Tensor:
        return self.base(X[:, :-1], Z[:, :-1]) * X[:, -1:] * Z[:, -1]

    def diag(self, X: Tensor) -> Tensor:
        """The prior variance [n]."""
        return self.base.diag(X[:, :-1]) * X[:, -1].square()


def kernel_module(kernel: Any, theta: Tensor) -> Any:
    """Return a module that computes a kernel without decisions that depend on the data.

    Raises
    ------
    PosteriorError
        If the kernel has no such form, as kernels on texts and molecules.
    """
    if isinstance(kernel, Composite):
        return _CompositeKernel(kernel, theta)
    if isinstance(kernel, RowScaled):
        return _RowScaledKernel(kernel, theta)
    kinds: tuple[tuple[type, type[_Kernel]], ...] = (
        (Stationary, _StationaryKernel),
        (Periodic, _PeriodicKernel),
        (Separable, _ConstantVariance),
        (Linear, _Kernel),
        (LearnedKernel, _Kernel),
    )
    for kind, module in kinds:
        if isinstance(kernel, kind):
            return module(kernel, theta)
    raise PosteriorError(f"Kernel {kernel.key!r} cannot be part of a torch module; numeric kernels of a formula can.")


def _numeric(part: Any) -> Tensor:
    if not isinstance(part, Tensor):
        raise PosteriorError("Inputs that are objects, such as texts, cannot be part of a torch module.")
    return part.detach()
