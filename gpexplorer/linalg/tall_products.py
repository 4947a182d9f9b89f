"""A tall matrix times a few columns, in the forms that read it once.

A BLAS picks its kernel by shapes and strides, and for two to five columns most picks are bad: of the ways to write
L'R' for L [10000, 512] some take forty times as long as one matrix-vector product. With L row by row, a product by
rows of W, and a batch of row tiles for the transposed one, both stay near one read of L.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

TILE = 125  # rows: half a megabyte of float64 at 512 columns, so that a tile stays in a core's cache
PANEL = 1000  # rows: of panels this long a batch of matrix-vector products is made, and no core waits for another
FEW = 4  # columns up to which the product is a read of L and no arithmetic


def times_vector(L: Float[Tensor, "n m"], w: Float[Tensor, " m"]) -> Float[Tensor, " n"]:
    """L w, one read of L, rows in one piece: three quarters of the time of L @ w where L is large."""
    n, m = L.shape
    head = n - n % PANEL
    if not head:
        return L @ w
    panels = L[:head].view(-1, PANEL, m)
    product = torch.bmm(panels, w.repeat(len(panels), 1)[:, None].transpose(1, 2)).view(-1)
    return product if head == n else torch.cat([product, L[head:] @ w])


def times_rows(L: Float[Tensor, "n m"], W: Float[Tensor, "c m"]) -> Float[Tensor, "c n"]:
    """W L', one read of L for few rows of W."""
    return (L @ W.T).T.contiguous() if len(W) <= FEW else W @ L.T


def rows_times(R: Float[Tensor, "c n"], L: Float[Tensor, "n m"]) -> Float[Tensor, "c m"]:
    """R L, one read of L for few rows of R."""
    c, (n, m) = len(R), L.shape
    head = n - n % TILE
    if not 0 < c <= FEW or not head:
        return R @ L
    tiles, parts = L[:head].view(-1, TILE, m), R[:, :head].view(c, -1, TILE).transpose(0, 1)
    return torch.bmm(parts, tiles).sum(0).addmm_(R[:, head:], L[head:])
