"""Preconditioners M = L L' + s2 I for A = K + s2 I, with L [n, r] a low-rank root of K.

    (L L' + s2 I)^-1 v = (v - L (L'L + s2 I)^-1 L'v) / s2                                    Woodbury's identity

Roots differ in how their r rows are chosen: `pivoted_root` takes the largest residual variance in turn, `nystrom_root`
takes rows that the caller gives, `drawn_root` draws rows with the residual variance as probability, and `sketched_root`
takes random combinations of all rows of a small block.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from .blocks import row_blocks
from .cholesky import cholesky
from .deferred_reads import happens
from .matrix_products import add_product
from .randomness import generator

Columns = Callable[[Tensor], Tensor]  # rows [c] -> kernel columns [n, c], which the caller may overwrite
MASK_SHIFT = 1e-6  # of the variance of rows that are left out: enough for a factor, and hardly moves the limit
PIVOT_GROUPS = 16  # groups in which pivots are drawn; the residual variance is updated after each group
PIVOTS = "K_CC [drawn pivots]"
PIVOTS_FLOAT32 = "K_CC [drawn pivots, of float32 columns: set mixed=False]"


def pivoted_root(columns: Columns, diag: Float[Tensor, " n"], rank: int) -> Float[Tensor, "n r"]:
    """Root of K by Cholesky with the largest residual variance as pivot.

    Parameters
    ----------
    columns : callable
        Rows [c] -> kernel columns [n, c].
    diag : Tensor [n]
        Diagonal of K.
    rank : int
        Largest number of columns of the root; fewer if the residual variance falls to rounding.

    Returns
    -------
    Tensor [n, r]
        L with K ~ L L'.

    Notes
    -----
    n r^2 flops, n r kernel entries, one column at a time.

    References
    ----------
    Harbrecht, Peters and Schneider (2012). On the low-rank approximation by the pivoted Cholesky decomposition.
    """
    D, L = diag.clone(), diag.new_zeros(len(diag), min(rank, len(diag)))
    floor = 1e2 * torch.finfo(D.dtype).eps * float(D.max())
    for k in range(L.shape[1]):
        j = int(D.argmax())
        if float(D[j]) <= floor:
            return L[:, :k]
        column = columns(torch.tensor([j], device=D.device))[:, 0] - L[:, :k] @ L[j, :k]
        L[:, k] = column / D[j].sqrt()
        D = (D - L[:, k].square()).clamp_min_(0.0)  # residual variance [n]
    return L


def nystrom_root(columns: Columns, rows: Tensor) -> Float[Tensor, "n r"]:
    """Root of K_nr K_rr^-1 K_rn for the rows given; it overwrites these columns. 2 n r^2 flops, n r kernel entries."""
    K = columns(rows)  # [n, r]
    L_rr = cholesky(K[rows], "K_rr of the preconditioner", noted=False).L
    for part in row_blocks(len(K), K.element_size() * len(rows), K):
        K[part] = torch.linalg.solve_triangular(L_rr, K[part].T, upper=False).T
    return K


def sufficient_rank(K: Float[Tensor, "r r"], variance: float) -> int:
    """Number of rows, in their order, such that every later row has at most this variance given them.

    r^3 / 3 flops. If the rows are in random order, the other rows of the data set hardly have more variance than that.
    """
    exceeds = cholesky(K, "K_rr of the preconditioner", noted=False).L.diagonal().square() > variance
    return int(torch.arange(1, len(K) + 1, device=K.device).where(exceeds, 1).max())


def masked_nystrom_root(columns: Columns, rows: Tensor, variance: Tensor) -> Float[Tensor, "n r"]:
    """`nystrom_root` of the first `sufficient_rank` of these rows, without a read: the other columns are zero.

    A factor of all rows with MASK_SHIFT times the variance on the diagonal decides which columns these are: it exists
    where later rows depend on the first ones. It is a rare case that one of the first rows does, such as a duplicate.
    """
    K = columns(rows)  # [n, r]
    K_rr = K[rows]
    shifted = K_rr.clone()
    shifted.diagonal().add_(MASK_SHIFT * variance)
    L, info = torch.linalg.cholesky_ex(shifted)
    happens(info)
    exceeds = L.diagonal().square() > variance
    outside = exceeds.flip(0).cumsum(0).flip(0) == 0  # [r] the rows after the last one that exceeds
    outside[:1].fill_(False)
    K_rr = K_rr.masked_fill(outside[:, None] | outside, 0.0)
    K_rr.diagonal().add_(outside)
    L_rr, info = torch.linalg.cholesky_ex(K_rr)
    happens(info)
    return torch.linalg.solve_triangular(L_rr, K.masked_fill(outside, 0.0).T, upper=False).T


def drawn_root(
    rows: Columns, diag: Float[Tensor, " n"], W: Float[Tensor, "n r"], seed: int, shift: float = 0.0
) -> Tensor:
    """Draw pivots with the residual variance as probability, and write the root of their approximation into W.

    Parameters
    ----------
    rows : callable
        Pivots C [c] -> K_Cn [c, n] in the precision of W; the result is overwritten.
    diag : Tensor [n]
        Diagonal of K.
    W : Tensor [n, r]
        Output: (K_nC + shift I_nC) L_CC^-T, where L_CC is the Cholesky factor of K_CC + shift I.
    seed : int
        Seed of the draws.
    shift : float, default 0
        What is added to the diagonal of K_CC.

    Returns
    -------
    Tensor [r]
        The pivots C.

    Notes
    -----
    n r^2 flops, nearly all in matrix products, and n r kernel entries. Pivots are drawn in 16 groups.

    References
    ----------
    Chen, Epperly, Tropp and Webber (2023). Randomly pivoted Cholesky, algorithm 4.
    """
    C, residual, rank = torch.zeros(0, dtype=torch.int64, device=diag.device), diag.clone(), W.shape[1]
    floor, group = 1e-12 * float(diag.max()) + torch.finfo(diag.dtype).tiny, max(-(-rank // PIVOT_GROUPS), 1)
    for k in range(0, rank, group):
        chance = residual.nan_to_num(floor).clamp_min_(floor).index_fill_(0, C, 0.0).cpu()
        draw = torch.multinomial(chance, min(group, rank - k), generator=generator(seed, "pivots", k)).to(C.device)
        K = rows(draw)  # [c, n]
        K[torch.arange(len(draw), device=C.device), draw] += shift
        add_product(K.T, W[:, :k], W[draw, :k].T, -1.0)
        L = cholesky(K.index_select(1, draw), PIVOTS if W.dtype == diag.dtype else PIVOTS_FLOAT32).L
        new_columns = W[:, k : k + len(draw)].copy_(torch.linalg.solve_triangular(L, K, upper=False).T)
        residual -= torch.linalg.vector_norm(new_columns, dim=1).to(residual.dtype).square_()
        C = torch.cat([C, draw])
    return C


def woodbury(L: Float[Tensor, "n r"], s2: float, damped: bool = False) -> Callable[[Tensor], Any]:
    """The map v [n] or [n, k] -> (L L' + s2 I)^-1 v, as a function.

    Parameters
    ----------
    L : Tensor [n, r]
        Root of an approximation of K.
    s2 : float
        What stands on the diagonal.
    damped : bool, default False
        Whether to add the smallest eigenvalue of L L' on its range to s2. Directions outside the range then weigh as
        much as the last one inside. Without it they weigh 1 / s2, as if K were zero there, and an iteration that is
        stopped early has fitted these directions, which are mostly noise, before the others.

    Notes
    -----
    n r^2 flops once, about r^3 more if damped; then 4 n r flops per column.

    References
    ----------
    Frangella, Tropp and Udell (2023). Randomized Nyström preconditioning, section 5, damps in the same way.
    """
    inner = L.T @ L
    if damped and L.shape[1]:
        s2 = s2 + max(float(torch.linalg.eigvalsh(inner)[0]), 0.0)
    inner.diagonal().add_(s2)
    chol = cholesky(inner, "L'L + s2 I of the preconditioner", noted=False).L  # [r, r]

    def apply(v: Tensor) -> Tensor:
        columns = v[:, None] if v.ndim == 1 else v
        out = (columns - L @ torch.cholesky_solve(L.T @ columns, chol)) / s2
        return out[:, 0] if v.ndim == 1 else out

    return apply


def sketched_root(K: Float[Tensor, "b b"], sketch: Float[Tensor, "b r"]) -> Float[Tensor, "b r"]:
    """Root of the Nyström approximation K S (S'K S)^-1 S'K of a block, with S an orthonormal basis of the sketch.

    A few eps of the trace are added to K, so that the small factor exists for any rank of K. 2 b^2 r flops.

    References
    ----------
    Frangella, Tropp and Udell (2023). Randomized Nyström preconditioning, algorithm 2.1.
    """
    S = torch.linalg.qr(sketch).Q
    Y = torch.addmm(S, K, S, beta=torch.finfo(K.dtype).eps * float(K.diagonal().sum()))  # (K + shift I) S
    inner = S.T @ Y  # [r, r]
    L = cholesky(0.5 * (inner + inner.T), "S'K S of the sketched block", noted=False).L
    return torch.linalg.solve_triangular(L, Y.T, upper=False).T


def largest_eigenvalue(
    A: Float[Tensor, "b b"], apply: Callable[[Tensor], Any], x: Float[Tensor, " b"], turns: int = 10
) -> float:
    """Lower estimate of the largest eigenvalue of M^-1 A by power iteration.

    Parameters
    ----------
    A : Tensor [b, b]
        Symmetric positive definite matrix.
    apply : callable
        v -> M^-1 v, with M symmetric positive definite.
    x : Tensor [b]
        First vector, usually random.
    turns : int, default 10
        Number of power iterations, 2 b^2 flops each.

    Returns
    -------
    float
        The Rayleigh quotient x'A M^-1 A x / x'A x of the last vector.
    """
    value = 0.0
    for _ in range(turns):
        Ax = A @ x
        z = apply(Ax)
        value = float(Ax @ z) / max(float(x @ Ax), torch.finfo(x.dtype).tiny)
        x = z / z.norm().clamp_min(torch.finfo(x.dtype).tiny)
    return value
