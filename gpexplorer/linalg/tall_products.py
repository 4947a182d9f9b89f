"""Products of a tall matrix with a few vectors, in forms that read the matrix once.

A BLAS chooses its kernel by shapes and strides, and for two to five columns most choices are slow: of the ways to write
L'R' for L [10000, 512], some take forty times as long as one matrix-vector product. If L is stored row by row, a
product with rows of W, and a batch of row tiles for the transposed product, both take little more than one read of L.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from .matrix_products import product_of_rows

TILE = 125  # rows: half a megabyte of float64 at 512 columns, so that a tile stays in the cache of a core
PANEL = 1000  # rows of one matrix-vector product in a batch, so that no core waits for another
MAX_FEW = 4  # up to this many vectors, reading L takes longer than the arithmetic


def times_vector(L: Float[Tensor, "n m"], w: Float[Tensor, " m"]) -> Float[Tensor, " n"]:
    """Return L w, computed in panels of rows. It takes three quarters of the time of L @ w if L is large."""
    n, m = L.shape
    head = n - n % PANEL
    if not head:
        return L @ w
    panels = L[:head].view(-1, PANEL, m)
    product = torch.bmm(panels, w.repeat(len(panels), 1)[:, None].transpose(1, 2)).view(-1)
    return product if head == n else torch.cat([product, L[head:] @ w])


def minus_product(g: Float[Tensor, " n"], L: Float[Tensor, "n m"], w: Float[Tensor, " m"]) -> Float[Tensor, " n"]:
    """Return g - L w in the precision of g, the product in that of L; on a GPU by one kernel if they are the same."""
    if L.is_cpu or not L.dtype == w.dtype == g.dtype:
        return g - times_vector(L, w.to(L.dtype)).to(g.dtype)
    return torch.addmv(g, L, w, alpha=-1.0)


def times_rows(L: Float[Tensor, "n m"], W: Float[Tensor, "c m"]) -> Float[Tensor, "c n"]:
    """Return W L', with one read of L if W has few rows."""
    return (L @ W.T).T.contiguous() if len(W) <= MAX_FEW else product_of_rows(W, L)


def rows_times(R: Float[Tensor, "c n"], L: Float[Tensor, "n m"]) -> Float[Tensor, "c m"]:
    """Return R L, with one read of L if R has few rows."""
    c, (n, m) = len(R), L.shape
    head = n - n % TILE
    if not 0 < c <= MAX_FEW or not head:
        return R @ L
    tiles, parts = L[:head].view(-1, TILE, m), R[:, :head].view(c, -1, TILE).transpose(0, 1)
    return torch.bmm(parts, tiles).sum(0).addmm_(R[:, head:], L[head:])
