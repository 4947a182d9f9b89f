"""Preconditioners (L L' + s2 I)^-1 for K + s2 I, with L [n, r] a low-rank root of K.

(L L' + s2 I)^-1 v = (v - L (L'L + s2 I)^-1 L'v) / s2                                    Woodbury
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .blocks import row_blocks
from .cholesky import cholesky

Columns = Callable[[Tensor], Tensor]  # rows [c] -> kernel columns [n, c], the caller's own


def pivoted_root(columns: Columns, diag: Float[Tensor, " n"], rank: int) -> Float[Tensor, "n r"]:
    """Root of K by Cholesky with the largest residual variance as pivot (Harbrecht+ 2012). n r^2 flops, n r entries."""
    D, L = diag.clone(), diag.new_zeros(len(diag), min(rank, len(diag)))
    least = 1e2 * torch.finfo(D.dtype).eps * float(D.max())
    for k in range(L.shape[1]):
        j = int(D.argmax())
        if float(D[j]) <= least:
            return L[:, :k]
        column = columns(torch.tensor([j], device=D.device))[:, 0] - L[:, :k] @ L[j, :k]
        L[:, k] = column / D[j].sqrt()
        D = (D - L[:, k].square()).clamp_min_(0.0)
    return L


def nystrom_root(columns: Columns, rows: Tensor) -> Float[Tensor, "n r"]:
    """Root of K_n,r K_rr^-1 K_r,n for the rows given, in the place of these columns. 2 n r^2 flops, n r entries."""
    K = columns(rows)  # [n, r]
    L_rr = cholesky(K[rows], "K_rr of the preconditioner").L
    for part in row_blocks(len(K), K.element_size() * len(rows)):
        K[part] = torch.linalg.solve_triangular(L_rr, K[part].T, upper=False).T
    return K


def woodbury(L: Float[Tensor, "n r"], s2: float) -> Callable[[Tensor], Any]:
    """v [n] or [n, k] -> (L L' + s2 I)^-1 v; 4 n r flops a column, after n r^2 once."""
    inner = L.T @ L
    inner.diagonal().add_(s2)
    chol = cholesky(inner, "L'L + s2 I of the preconditioner").L

    def apply(v: Tensor) -> Tensor:
        flat = v[:, None] if v.ndim == 1 else v
        out = (flat - L @ torch.cholesky_solve(L.T @ flat, chol)) / s2
        return out[:, 0] if v.ndim == 1 else out

    return apply


def sketched_root(K: Float[Tensor, "b b"], sketch: Float[Tensor, "b r"]) -> Float[Tensor, "b r"]:
    """Root of the Nystrom approximation K S (S'K S)^-1 S'K of a block (Frangella+ 2023, alg. 2.1). 2 b^2 r flops.

    K is moved by a few eps of its trace, so that the small factor exists whatever the rank of K is.
    """
    S = torch.linalg.qr(sketch).Q
    Y = torch.addmm(S, K, S, beta=torch.finfo(K.dtype).eps * float(K.diagonal().sum()))  # (K + shift I) S
    inner = S.T @ Y
    L = cholesky(0.5 * (inner + inner.T), "S'K S of the sketched block").L
    return torch.linalg.solve_triangular(L, Y.T, upper=False).T


def largest_eigenvalue(
    A: Float[Tensor, "b b"], apply: Callable[[Tensor], Any], x: Float[Tensor, " b"], turns: int = 10
) -> float:
    """Of M^-1 A, from below, by powering from x; `apply` is M^-1, A and M are positive definite. 2 b^2 flops a turn."""
    value = 0.0
    for _ in range(turns):
        Ax = A @ x
        z = apply(Ax)
        value = float(Ax @ z) / max(float(x @ Ax), torch.finfo(x.dtype).tiny)  # x'A M^-1 A x / x'A x
        x = z / z.norm().clamp_min(torch.finfo(x.dtype).tiny)
    return value
