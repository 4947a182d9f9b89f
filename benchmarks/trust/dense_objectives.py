"""Objectives by dense algebra in float64, against which `benchmarks trust` holds the numbers that methods report.

Distances are computed by exact differences, and no matrix is updated: every objective is computed from theta and
the rows. Sparse objectives are computed in extended precision (80 bits, where the machine has it), with the jitter on
K_mm that the method reports, which is part of the model then.
With K_hat = K_nm K_mm^-1 K_mn and A = K + s2 I:

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
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpexplorer.linalg.blocks import row_blocks
from gpexplorer.problem import Dataset
from gpexplorer.runs import Record, Run

EXTENDED = np.longdouble
Extended = np.ndarray[Any, np.dtype[np.longdouble]]


def squared_exponential(theta: Tensor, X: Tensor, Z: Tensor) -> Tensor:
    """The SE-ARD covariance [n, m] by exact differences; theta = [log sd, log lengthscales [d], log noise sd]."""
    X, Z = X / theta[1:-1].exp(), Z / theta[1:-1].exp()  # [n, d], [m, d]
    K = X.new_empty(len(X), len(Z))
    for rows in row_blocks(len(X), Z.nbytes, Z):
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
    return sparse_objective(name, theta, Dataset(X, y), Z, float(getattr(record.step.info, "jitter", 0.0)))


def sparse_objective(name: str, theta: Tensor, train: Dataset, Z: Tensor, jitter: float = 0.0) -> float:
    """VFE, PP or FITC with the SE-ARD kernel in extended precision; nan if K_mm is singular even there.

    Parameters
    ----------
    name : {"vfe", "pp", "fitc"}
    theta : Tensor [p]
    train : Dataset
        n rows.
    Z : Tensor [m, d]
        Inducing inputs.
    jitter : float
        What is added to the diagonal of K_mm.

    Notes
    -----
    K_mm is often singular to rounding in float64: then its Cholesky factor exists or not by chance. With
    D = diag(K - K_hat) + s2 I for FITC, s2 I otherwise: log |K_hat + D| = log |A| + log |D| and
    y' (K_hat + D)^-1 y = y' D^-1 y - |c|^2, A = I + L' D^-1 L.
    """
    X, y, s2 = train.X, train.y, math.exp(2.0 * float(theta[-1]))
    n, sf2, K_mm = len(X), np.exp(2 * EXTENDED(theta[0])), _extended_kernel(theta, Z, Z)
    K_mm[np.diag_indices(len(Z))] += EXTENDED(jitter)
    L_mm = _extended_cholesky(K_mm)
    if L_mm is None:
        return math.nan
    Lt = _forward_solve(L_mm, _extended_kernel(theta, Z, X))  # [m, n], L L' = K_hat
    residual = sf2 - (Lt**2).sum(0)  # [n], the diagonal of K - K_hat
    D = residual + EXTENDED(s2) if name == "fitc" else np.full(n, EXTENDED(s2))  # [n]
    targets = y.numpy().astype(EXTENDED)
    L_A = _extended_cholesky(np.eye(len(Z), dtype=EXTENDED) + (Lt / D) @ Lt.T)
    assert L_A is not None
    c = _forward_solve(L_A, (Lt @ (targets / D))[:, None])[:, 0]  # [m]
    fit = (targets**2 / D).sum() - c @ c
    complexity = 2 * np.log(np.diag(L_A)).sum() + np.log(D).sum()
    trace = residual.sum() / EXTENDED(s2) if name == "vfe" else EXTENDED(0)
    return float((fit + complexity + trace) / 2)


def _extended_kernel(theta: Tensor, X: Tensor, Z: Tensor) -> Extended:
    """The SE-ARD covariance [n, m] in extended precision."""
    ell = np.exp(theta[1:-1].numpy().astype(EXTENDED))
    A, B = X.numpy().astype(EXTENDED) / ell, Z.numpy().astype(EXTENDED) / ell
    r2 = sum((A[:, None, j] - B[None, :, j]) ** 2 for j in range(A.shape[1]))
    return np.asarray(np.exp(2 * EXTENDED(theta[0]) - r2 / 2))


def _extended_cholesky(K: Extended) -> Extended | None:
    """The lower Cholesky factor [m, m], column by column, without jitter; None if a pivot is not positive."""
    L = np.zeros_like(K)
    for j in range(len(K)):
        column = K[j:, j] - L[j:, :j] @ L[j, :j]
        if not column[0] > 0:
            return None
        L[j:, j] = column / np.sqrt(column[0])
    return L


def _forward_solve(L: Extended, B: Extended) -> Extended:
    """L^-1 B [m, k], row by row."""
    B = B.copy()
    for i in range(len(L)):
        B[i] = (B[i] - L[i, :i] @ B[:i]) / L[i, i]
    return B


def _gaussian_nll(A: Tensor, y: Tensor) -> float:
    """(y' A^-1 y + log |A|) / 2; nan if A is singular to rounding."""
    L, failed = torch.linalg.cholesky_ex(A)
    if failed:
        return math.nan
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
