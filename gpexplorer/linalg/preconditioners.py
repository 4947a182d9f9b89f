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
from .randomness import generator

Columns = Callable[[Tensor], Tensor]  # rows [c] -> kernel columns [n, c], the caller's own
PIVOTS, LOWER = "K_CC [drawn pivots]", "of float32 columns: set mixed=False"
PIECES = 16  # in which rows are drawn: what one explains is known to those of the next


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
    L_rr = cholesky(K[rows], "K_rr of the preconditioner", noted=False).L
    for part in row_blocks(len(K), K.element_size() * len(rows)):
        K[part] = torch.linalg.solve_triangular(L_rr, K[part].T, upper=False).T
    return K


def enough(K: Float[Tensor, "r r"], left: float) -> int:
    """How many rows, in their order: all behind them have a variance of at most `left` given those before them.

    r^3 / 3 flops. For rows in random order, what is left by the few is hardly more than that.
    """
    more = cholesky(K, "K_rr of the preconditioner", noted=False).L.diagonal().square() > left
    return int(more.nonzero().max()) + 1 if bool(more.any()) else 1


def drawn_root(
    rows: Columns, diag: Float[Tensor, " n"], W: Float[Tensor, "n r"], seed: int, shift: float = 0.0
) -> Tensor:
    """Pivots C [r], drawn by the variance that those before them leave; into W goes (K_nC + shift I_nC) L_CC^-T.

    Randomly pivoted Cholesky by pieces (Chen, Epperly, Tropp and Webber 2023, alg. 4), L_CC that of K_CC + shift I.
    `rows`: C -> K_Cn [c, n] in the precision of W. n r^2 flops, nearly all matrix products, and n r entries.
    """
    C, left, rank = torch.zeros(0, dtype=torch.int64, device=diag.device), diag.clone(), W.shape[1]
    least, piece = 1e-12 * float(diag.max()) + torch.finfo(diag.dtype).tiny, max(-(-rank // PIECES), 1)
    for k in range(0, rank, piece):
        chance = left.nan_to_num(least).clamp_min_(least).index_fill_(0, C, 0.0).cpu()
        draw = torch.multinomial(chance, min(piece, rank - k), generator=generator(seed, "pivots", k)).to(C.device)
        K = rows(draw)
        K[torch.arange(len(draw), device=C.device), draw] += shift
        K.addmm_(W[draw, :k], W[:, :k].T, alpha=-1.0)
        L = cholesky(K.index_select(1, draw), PIVOTS if W.dtype == diag.dtype else f"{PIVOTS[:-1]}, {LOWER}]").L
        new = W[:, k : k + len(draw)].copy_(torch.linalg.solve_triangular(L, K, upper=False).T)
        left -= torch.linalg.vector_norm(new, dim=1).to(left.dtype).square_()
        C = torch.cat([C, draw])
    return C


def woodbury(L: Float[Tensor, "n r"], s2: float) -> Callable[[Tensor], Any]:
    """v [n] or [n, k] -> (L L' + s2 I)^-1 v; 4 n r flops a column, after n r^2 once."""
    inner = L.T @ L
    inner.diagonal().add_(s2)
    chol = cholesky(inner, "L'L + s2 I of the preconditioner", noted=False).L

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
    L = cholesky(0.5 * (inner + inner.T), "S'K S of the sketched block", noted=False).L
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
