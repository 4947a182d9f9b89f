"""Squared distances between scaled rows: one matrix product for most columns, exact differences for wide ones.

With A = (X - c) / l and B = (Z - c) / l, rows a_i and b_j, the squared distance is

    r2_ij = sum_q (x_iq - z_jq)^2 / l_q^2 = |a_i|^2 + |b_j|^2 - 2 a_i'b_j

and an affine function of it is one product of two factors with d + 2 columns:

    scale r2_ij + shift = P_i Q_j',   P_i = [-2 scale a_i, scale |a_i|^2 + shift, 1],   Q_j = [b_j, 1, scale |b_j|^2]

The product loses digits if |a|^2 and |b|^2 are much larger than r2: its error is about eps max(|a|^2, |b|^2). Where the
signal has 1e5 times the sd of the noise, an error of 1e-12 is 1 % of the noise variance in every entry of the matrix,
and moves predicted means by a quarter of the noise sd. The following rules keep it at 1e-13.

1. If the norm of all rows is at most NEAR lengthscales, c = 0. This is the usual case, because inputs are standardised.
   All calls for one data set then have the same centre.
2. Otherwise c is the mean of Z, rounded to a multiple of NEAR / 2 lengthscales, so that most calls for one data set
   have the same centre.
3. A column in which some row is farther than FAR lengthscales from c is wide. It is 0 in A and B, and its part of r2 is
   computed from the differences x_iq - z_jq, with three operations per entry.

Distances below the rounding error of the product become 0, so that the covariance of a row with itself is its variance.
Of rows of X and of Z at one place neither is farther from c than the farthest row of the other set, which bounds this
error: one far row among X changes no small distance of the others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from ..linalg.deferred_reads import Number, happens, is_deferring, is_traced, number

FILL_BYTES = 2**20  # a block of this size stays in the cache while its distances become covariances
FILL_ROWS = 8  # a block has at least this many rows
NEAR = {torch.float64: 20.0, torch.float32: 4.0}  # lengthscales: r2 errs by about 1e-13 and 1e-6
FAR = {torch.float64: 20.0, torch.float32: 15.0}  # lengthscales: r2 errs by about 1e-13 and 1e-5 per column
ROUNDING = 4.0  # times eps max(|a|^2, |b|^2): smaller distances are rounding errors


class Scaled(NamedTuple):
    """Two sets of rows in units of the lengthscale, around a common centre."""

    A: Tensor  # [n, d], 0 in wide columns
    B: Tensor  # [m, d], 0 in wide columns
    A2: Tensor  # [n, 1] squared norms
    B2: Tensor  # [m, 1]
    largest: Number  # squared norm
    rounding: Number  # of the squared distance of two rows at one place
    wide: tuple[int, ...]  # columns whose differences must be computed exactly

    @property
    def farthest(self) -> float:
        """An upper bound of the squared distances, (|a| + |b|)^2 <= 4 max(|a|^2, |b|^2), or infinity."""
        return math.inf if self.wide or isinstance(self.largest, Tensor) else 4.0 * self.largest


def scaled_rows(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor) -> Scaled:
    """Scale the rows of X and Z as the module docstring describes. Differentiable; O((n + m) d).

    The lengthscale, [d] or [], is one per input or one for all.
    """
    near, far = (limits.get(X.dtype, limits[torch.float32]) for limits in (NEAR, FAR))
    A, B, A2, B2, largest = _divided(X, Z, lengthscale)
    shared, wide = largest, tuple[int, ...]()
    if _exceeds(largest, near**2):  # else no column is wide either, because no entry exceeds the norm of its row
        with torch.no_grad():
            unit = 0.5 * near * lengthscale
            centre = unit * (Z.mean(0) / unit).round()  # [d]
        if bool((centre != 0.0).any()):
            centred = X - centre
            A, B, A2, B2, largest = _divided(centred, centred if Z is X else Z - centre, lengthscale)
        if _exceeds(largest, far**2):
            is_wide = torch.maximum(A.detach().abs().amax(0), B.detach().abs().amax(0)) > far  # [d]
            wide = tuple(torch.nonzero(is_wide)[:, 0].tolist())
            if wide:
                A = A.masked_fill(is_wide, 0.0)
                B = A if Z is X else B.masked_fill(is_wide, 0.0)
                A2, B2, largest = _squared_norms(A, B)
        shared = largest if Z is X else float(torch.minimum(A2.detach().amax(), B2.detach().amax()))
    return Scaled(A, B, A2, B2, largest, ROUNDING * torch.finfo(X.dtype).eps * shared, wide)


def scaled_again(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor) -> Scaled:
    """Return the scaled rows of a pair whose covariances were computed before, for `weighted_differences`.

    While rare cases are assumed away, those covariances have recorded whether a row is far, so no norm is needed.
    """
    if not is_deferring():
        return scaled_rows(X, Z, lengthscale)
    A = X / lengthscale
    return Scaled(A, A if Z is X else Z / lengthscale, A[:0], A[:0], 0.0, 0.0, ())


def _divided(X: Tensor, Z: Tensor, lengthscale: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Number]:
    """X / l and Z / l with what `_squared_norms` returns of them; on a GPU both at once, with half of the launches."""
    if X.is_cpu or Z is X or not len(X) or not len(Z):
        A = X / lengthscale
        B = A if Z is X else Z / lengthscale
        return (A, B, *_squared_norms(A, B))
    rows, sizes = torch.cat([X, Z]) / lengthscale, [len(X), len(Z)]
    squares, _, largest = _squared_norms(rows, rows)
    (A, B), (A2, B2) = rows.split(sizes), squares.split(sizes)
    return A, B, A2, B2, largest


def _squared_norms(A: Tensor, B: Tensor) -> tuple[Tensor, Tensor, Number]:
    """Squared norms [n, 1] and [m, 1], and the largest of them."""
    A2 = A.square().sum(1, keepdim=True)
    B2 = A2 if B is A else B.square().sum(1, keepdim=True)
    if not len(A2) or not len(B2):
        return A2, B2, 0.0
    largest = A2.detach().max() if B is A else torch.maximum(A2.detach().max(), B2.detach().max())
    return A2, B2, largest if is_deferring() else float(largest)


def _exceeds(largest: Number, bound: float) -> bool:
    """Whether the largest squared norm exceeds a bound, or is not a number.

    Its whole multiple of the bound is not zero then: one operation, where a comparison and its negation are two.
    """
    return happens(largest // bound) if isinstance(largest, Tensor) else not largest <= bound


def zero_below(r2: Tensor, rounding: Number) -> Tensor:
    """Replace squared distances that consist of rounding by 0, in place unless a gradient is needed."""
    if isinstance(rounding, Tensor):
        fill = r2.masked_fill if r2.requires_grad else r2.masked_fill_
        return fill(r2 <= rounding, 0.0)
    limit = torch.threshold if r2.requires_grad else torch.threshold_
    return limit(r2, rounding, 0.0)


def squared_differences(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, q: int
) -> Float[Tensor, "n m"]:
    """Return (x_iq - z_jq)^2 / l_q^2 for one input q, without loss of digits. Differentiable."""
    return ((X[:, q, None] - Z[:, q]) / _of_input(lengthscale, q)).square()


def _of_input(lengthscale: Tensor, q: int) -> Tensor:
    return lengthscale.reshape(-1)[q if lengthscale.numel() > 1 else 0]


def squared_distances(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor) -> Float[Tensor, "n m"]:
    """Return squared distances r2 between the rows of X and of Z, in units of the lengthscale.

    Parameters
    ----------
    X, Z : Tensor [n, d], [m, d]
        Inputs.
    lengthscale : Tensor [d] or []
        One lengthscale per input, or one for all.

    Returns
    -------
    Tensor [n, m]
        Never negative. The diagonal is exactly 0 if X and Z are the same object. Differentiable.

    Notes
    -----
    2 n m d flops. One input is subtracted directly, which loses no digits.
    """
    if X.shape[1] > 1 and is_traced():
        return reduce(torch.add, [squared_differences(X, Z, lengthscale, q) for q in range(X.shape[1])])
    scaled = None if X.shape[1] == 1 else scaled_rows(X, Z, lengthscale)
    return distances_of_scaled(scaled, X, Z, lengthscale)


def distances_of_scaled(
    scaled: Scaled | None, X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor
) -> Float[Tensor, "n m"]:
    """Return `squared_distances` from the scaled rows; a single input needs none."""
    if scaled is None or X.shape[1] == 1:
        return ((X - Z.T) / lengthscale).square()
    r2 = (scaled.A2 + scaled.B2.T).addmm_(scaled.A, scaled.B.T, alpha=-2.0)  # [n, m], symmetric if X is Z
    r2 = zero_below(r2, scaled.rounding)
    if X is Z:
        r2.fill_diagonal_(0.0)
    if r2.requires_grad:
        return reduce(torch.add, [squared_differences(X, Z, lengthscale, q) for q in scaled.wide], r2)
    for rows in row_blocks(len(X) if scaled.wide else 0, r2.element_size() * max(len(Z), 1), r2, FILL_BYTES):
        for q in scaled.wide:
            r2[rows] += squared_differences(X[rows], Z, lengthscale, q)
    return r2


def affine_distances(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, scale: float, shift: float | Tensor
) -> tuple[Callable[[slice, Tensor], Tensor], Number, float]:
    """Prepare to compute scale r2 + shift by blocks of rows, each with one matrix product.

    Parameters
    ----------
    X, Z : Tensor [n, d], [m, d]
        Inputs.
    lengthscale : Tensor [d] or []
        One lengthscale per input, or one for all.
    scale, shift : float
        The affine function of the squared distance.

    Returns
    -------
    write : callable
        `write(rows, out)` writes scale r2 + shift for these rows of X into `out` [rows, m] and returns `out`.
    rounding : float
        An upper bound of the error of r2. The result is not clamped: where r2 is 0, it may be negative.
    farthest : float
        An upper bound of r2, or infinity where none is known: for one input, for wide columns, and on a GPU.

    Notes
    -----
    2 m (d + 2) flops per row. The result is not differentiable.
    """
    if X.shape[1] == 1:
        Zt, factor = Z.T.contiguous(), scale / number(lengthscale) ** 2
        if isinstance(factor, Tensor):
            return lambda rows, out: torch.sub(X[rows], Zt, out=out).square_().mul_(factor).add_(shift), 0.0, math.inf
        offset = torch.as_tensor(shift).to(X)

        def write_of_one(rows: slice, out: Tensor) -> Tensor:
            return torch.addcmul(offset, torch.sub(X[rows], Zt, out=out), out, value=factor, out=out)

        return write_of_one, 0.0, math.inf
    scaled = scaled_rows(X, Z, lengthscale)
    P, Q = _factors(scaled, scale, shift)
    Qt = Q.T.contiguous()  # [d + 2, m]
    if not scaled.wide:
        return lambda rows, out: torch.mm(P[rows], Qt, out=out), scaled.rounding, scaled.farthest
    columns = [(q, Z[:, q].contiguous(), scale / float(_of_input(lengthscale, q)) ** 2) for q in scaled.wide]

    def write(rows: slice, out: Tensor) -> Tensor:
        torch.mm(P[rows], Qt, out=out)
        difference = torch.empty_like(out)
        for q, z, factor in columns:
            torch.sub(X[rows, q, None], z, out=difference)
            out.addcmul_(difference, difference, value=factor)
        return out

    return write, scaled.rounding, scaled.farthest


def distance_factors(
    X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor, scale: float, shift: float | Tensor
) -> tuple[Float[Tensor, "n d+2"], Float[Tensor, "m d+2"]] | None:
    """Return P and Q of the module docstring, so that P Q' = scale r2 + shift. Both are differentiable.

    None if some column is wide, so that no product of two factors would be accurate.
    """
    scaled = scaled_rows(X, Z, lengthscale)
    return None if scaled.wide else _factors(scaled, scale, shift)


def _factors(scaled: Scaled, scale: float, shift: float | Tensor) -> tuple[Tensor, Tensor]:
    a2 = torch.add(shift, scaled.A2, alpha=scale) if isinstance(shift, Tensor) else scale * scaled.A2 + shift
    b2, ones = scale * scaled.B2, a2.new_ones(1, 1)
    A = scaled.A if scale == -0.5 else -2.0 * scale * scaled.A  # -1/2 is the scale of the SE kernel
    P = torch.cat([A, a2, ones.expand(len(a2), 1)], 1)
    return P, torch.cat([scaled.B, ones.expand(len(b2), 1), b2], 1)


def weighted_differences(
    W: Float[Tensor, "n m"], scaled: Scaled, X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"], lengthscale: Tensor
) -> tuple[Float[Tensor, " d"], Float[Tensor, "n d"]]:
    """Return weighted sums of squared differences and of differences, in lengthscales, for each input q.

    Returns
    -------
    squares : Tensor [d]
        sum_ij W_ij (z_jq - x_iq)^2 / l_q^2.
    differences : Tensor [n, d]
        sum_j W_ij (z_jq - x_iq) / l_q.

    Notes
    -----
    2 n m d flops in one product W B, and no matrix [n, m] but for wide inputs:

        differences_i = (W B)_i - a_i sum_j W_ij
        squares = sum_j b_j^2 sum_i W_ij - sum_i a_i (differences + W B)_i
    """
    A, B = scaled.A, scaled.B
    products = W @ B
    differences = torch.addcmul(products, A, W.sum(1, keepdim=True), value=-1.0)
    squares = torch.addmv(products.add_(differences).mul_(A).sum(0), B.square().T, W.sum(0), beta=-1.0)
    for q in scaled.wide:
        difference = (Z[:, q] - X[:, q, None]) / _of_input(lengthscale, q)
        differences[:, q], squares[q] = (W * difference).sum(1), (W * difference.square()).sum()
    return squares, differences


def safe_sqrt(r2: Tensor) -> Tensor:
    """Return sqrt(r2), with gradient 0 instead of infinity where r2 is 0; one pass if no gradient is needed."""
    if not r2.requires_grad:
        return r2.sqrt()
    zero = r2 == 0.0
    return torch.where(zero, torch.zeros_like(r2), torch.where(zero, torch.ones_like(r2), r2).sqrt())
