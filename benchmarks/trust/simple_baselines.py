"""The baselines of `benchmarks trust`. Each takes a split and gives mean and variance of y at test rows, in file units.

constant             the mean and the variance of the training targets
ridge                linear regression with an L2 penalty that leave-one-out error chooses
nearest neighbours   the mean of the k nearest rows; leave-one-out error chooses k and gives one variance for all
dense GP             SE-ARD, type-II maximum likelihood with exact gradients on at most 500 rows, dense algebra
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.data import Split
from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.objectives import evidence
from gpexplorer.problem import Dataset

from .dense_objectives import squared_exponential

GP_ROWS, GP_EVALUATIONS = 500, 60
PENALTIES = tuple(10.0**k for k in range(-6, 5))  # of ridge regression, per training row
NEIGHBOURS = (1, 2, 4, 8, 16, 32)

Prediction = tuple[Tensor, Tensor]


def constant(split: Split) -> Prediction:
    """The training mean and variance at every test row."""
    y, t = split.train.y, len(split.test)
    return y.mean().expand(t), y.var(correction=0).clamp_min(1e-12).expand(t)


def ridge(split: Split) -> Prediction:
    """Ridge regression on standardised inputs. The squared leave-one-out residuals give the noise variance."""
    train, test = _standardised(split)
    X, y = train.X, train.y
    U, s, Vt = torch.linalg.svd(X, full_matrices=False)  # [n, r], [r], [r, d]
    best: tuple[float, float] = (torch.inf, PENALTIES[0])
    for penalty in PENALTIES:
        shrunk = s.square() / (s.square() + penalty * len(X))  # [r]
        leverage = U.square() @ shrunk + 1.0 / len(X)  # [n], with the intercept
        error = float(((y - U @ (shrunk * (U.T @ y))) / (1.0 - leverage).clamp_min(1e-6)).square().mean())
        best = min(best, (error, penalty))
    noise, penalty = best
    inverse = 1.0 / (s.square() + penalty * len(X))  # [r]
    projected = test.X @ Vt.T  # [t, r]
    mean = projected @ (inverse * s * (U.T @ y))
    return _in_units(split, mean, noise * (1.0 + 1.0 / len(X) + projected.square() @ inverse))


def nearest_neighbours(split: Split) -> Prediction:
    """The mean of the k nearest training rows in standardised inputs."""
    train, test = _standardised(split)
    order = torch.cdist(train.X, train.X).fill_diagonal_(torch.inf).argsort(1)  # [n, n]
    errors = {k: float((train.y - train.y[order[:, :k]].mean(1)).square().mean()) for k in NEIGHBOURS if k < len(train)}
    k = min(errors, key=lambda count: errors[count])
    nearest = torch.cdist(test.X, train.X).topk(k, largest=False).indices  # [t, k]
    return _in_units(split, train.y[nearest].mean(1), test.y.new_full((len(test),), max(errors[k], 1e-12)))


def dense_gp(split: Split) -> Prediction:
    """An exact GP whose hyperparameters maximise the marginal likelihood of at most 500 rows."""
    train, test = _standardised(split)
    kernel = kernels.make("se-ard", train.d)
    rows = train.rows(torch.randperm(len(train), generator=torch.Generator().manual_seed(0))[:GP_ROWS])
    start = kernel.start(rows)  # [p]

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        try:
            value, gradient = evidence(kernel, torch.from_numpy(values.copy()), rows)
        except NotPositiveDefinite:
            return 1e10, np.zeros_like(values)
        return value, gradient.numpy()

    bounds = [(value - 12.0, value + 12.0) for value in start.tolist()]
    options = {"maxfun": GP_EVALUATIONS}
    result = minimize(objective, start.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    theta = torch.from_numpy(result.x)
    s2 = float(torch.exp(2.0 * theta[-1]))
    A = squared_exponential(theta, train.X, train.X)
    A.diagonal().add_(s2)
    L = cholesky(A, "K + s2 I").L  # [n, n]
    K = squared_exponential(theta, train.X, test.X)  # [n, t]
    half = torch.linalg.solve_triangular(L, K, upper=False)
    mean = K.T @ torch.cholesky_solve(train.y[:, None], L)[:, 0]
    var = torch.exp(2.0 * theta[0]) - half.square().sum(0) + s2
    return _in_units(split, mean, var.clamp_min(1e-12))


def _standardised(split: Split) -> tuple[Dataset, Dataset]:
    scaled = split.scaled()
    return scaled.train.to("cpu", torch.float64), scaled.test.to("cpu", torch.float64)


def _in_units(split: Split, mean: Tensor, var: Tensor) -> Prediction:
    scale = split.scaled().train.scale
    assert scale is not None
    return mean * scale.y_sd + scale.y_mean, var * scale.y_sd**2


BASELINES: dict[str, Callable[[Split], Prediction]] = {
    "constant": constant,
    "ridge": ridge,
    "nearest neighbours": nearest_neighbours,
    "dense GP": dense_gp,
}
