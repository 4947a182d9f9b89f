"""Objectives by dense algebra in float64, against which `bench trust` holds the numbers that methods report.

Distances are computed by exact differences, and no matrix is updated: every objective is built anew from theta and
the rows. With K_hat = K_nm K_mm^-1 K_mn and A = K + s2 I:

    VFE   (y' (K_hat + s2 I)^-1 y + log |K_hat + s2 I| + tr(K - K_hat) / s2) / 2    Titsias 2009, eq 9
    PP    the same without the trace
    FITC  (y' S^-1 y + log |S|) / 2, S = K_hat + diag(K - K_hat) + s2 I             Snelson and Ghahramani 2006, eq 9
    NLML  (y' A^-1 y + log |A|) / 2                                                 Rasmussen and Williams 2006, eq 5.8
    f     alpha' A alpha / 2 - y' alpha

The constant n/2 log 2 pi is left out everywhere. The cost is n^3 / 3 flops and n^2 d + n^2 numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...runs import Record, Run


def squared_exponential(theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """The SE-ARD covariance [n, m] by exact differences; theta = [log sd, log lengthscales [d], log noise sd]."""
    X, Z = X / theta[1:-1].exp(), Z / theta[1:-1].exp()  # [n, d], [m, d]
    K = X.new_empty(len(X), len(Z))
    for rows in row_blocks(len(X), Z.nbytes):
        K[rows] = (X[rows, None, :] - Z).square().sum(2)
    return K.mul_(-0.5).exp_().mul_(torch.exp(2.0 * theta[0]))


def dense_objective(run: Run, record: Record) -> float:
    """The objective that a record should report, or nan if there is no dense formula for the method here."""
    name = FORMULAS.get(run.method.key, "")
    name = str(getattr(run.method, "objective", name)) if name == "vfe" else name
    if not name or run.problem.kernel.key != "se-ard":
        return math.nan
    state, train = record.step.state, run.problem.train
    theta, X, y = (part.double().cpu() for part in (state.theta, train.X, train.y))
    s2 = math.exp(2.0 * float(theta[-1]))
    if run.method.key == "subset-of-data":
        X, y = X[state.inducing.cpu()], y[state.inducing.cpu()]
    if name in ("nlml", "f"):
        A = squared_exponential(theta, X, X)
        A.diagonal().add_(s2)
        if name == "nlml":
            return _gaussian_nll(A, y)
        alpha = state.alpha.double().cpu()
        return float(0.5 * alpha @ (A @ alpha) - y @ alpha)
    Z = getattr(state, "Z", None)
    Z = X[state.inducing.cpu()] if Z is None else Z.double().cpu()
    return _sparse_objective(name, theta, s2, X, y, Z)


def _sparse_objective(name: str, theta: Tensor, s2: float, X: Tensor, y: Tensor, Z: Tensor) -> float:
    K_mm = squared_exponential(theta, Z, Z)
    L_mm = cholesky(K_mm, "K_mm").L
    L = torch.linalg.solve_triangular(L_mm, squared_exponential(theta, Z, X), upper=False).T  # [n, m], L L' = K_hat
    residual = torch.exp(2.0 * theta[0]) - L.square().sum(1)  # [n], the diagonal of K - K_hat
    S = L @ L.T
    S.diagonal().add_(residual + s2 if name == "fitc" else s2)
    trace = float(residual.sum()) / s2 if name == "vfe" else 0.0
    return _gaussian_nll(S, y) + 0.5 * trace


def _gaussian_nll(A: Tensor, y: Tensor) -> float:
    """(y' A^-1 y + log |A|) / 2."""
    L = torch.linalg.cholesky(A)
    half = torch.linalg.solve_triangular(L, y[:, None], upper=False)
    return float(0.5 * half.square().sum() + L.diagonal().log().sum())


# Key of a method -> its objective. "vfe" stands for the method's own setting `objective`, if it has one.
FORMULAS: Mapping[str, str] = {
    **dict.fromkeys(("cholqr", "random", "ivm", "greedy-variance", "titsias", "kmeans", "sgpr"), "vfe"),
    "fitc": "fitc",
    **dict.fromkeys(("ml", "subset-of-data"), "nlml"),
    **dict.fromkeys(
        (
            "alternating-projections", "bcd-cyclic", "bcd-gradient", "block-nystrom", "cg", "cholesky", "gbcd", "pcg",
            "sdd", "smo",
        ),
        "f",
    ),
}  # fmt: skip
