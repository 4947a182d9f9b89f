"""Products of large matrices: in float32 by oneDNN, of a tall matrix with a few vectors, and updates that wait.

torch multiplies float32 matrices on a CPU with MKL, which uses only half of the width of the vector units of an AMD
processor. oneDNN, which is part of torch too, makes its own code for the processor: 190 instead of 100 Gflop/s per core
on an EPYC of 2024, at the same precision (products and sums in float32). torch offers it for layers of networks,
y = x w', by an operation that is not documented. Where it is missing, and for everything but float32 on a CPU with
AVX-512, the products here are those of the BLAS.

A tall matrix is read as rarely as possible. A BLAS chooses its kernel by shapes and strides, and for two to five
columns most choices are slow: of the ways to write L'R' for L [10000, 512], some take forty times as long as one
matrix-vector product. If L is stored row by row, a product with rows of W, and a batch of row tiles for the transposed
product, both take little more than one read of L.

A rank-one update reads and writes all of a matrix M for two operations per entry. Sixteen updates applied together cost
little more than one. Until then the matrix is

    M + A' W,    with the pending updates a'w as rows of A [k, n] and W [k, m]
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from jaxtyping import Float
from torch import Tensor

from .blocks import row_blocks

LEAST_COLUMNS = 128  # with fewer right-hand sides the product is limited by reading A
LEAST_ROWS = 16  # of A in A B': the BLAS takes twice as long from here on
TILE_BYTES = 8 * 2**20  # of a part of the result, which is still in the cache when it is added


def add_product(
    out: Float[Tensor, "n k"], A: Float[Tensor, "n m"], B: Float[Tensor, "m k"], factor: float = 1.0
) -> Tensor:
    """Add factor A B to `out` in place, and return it. 2 n m k flops.

    Parameters
    ----------
    out : Tensor [n, k]
        It may have a higher precision than A and B.
    A, B : Tensor [n, m], [m, k]
        Factors of one precision. A may be a transposed matrix.
    factor : float, default 1
        Multiplies the product.
    """
    if not _by_onednn(A, B):
        return out.addmm_(A, B, alpha=factor) if A.dtype == out.dtype else out.add_(A @ B, alpha=factor)
    weights = (factor * B).T.contiguous()  # [k, m]
    for rows in row_blocks(len(A), A.element_size() * B.shape[1], A, TILE_BYTES):
        out[rows] += _linear(A[rows], weights)
    return out


def product(A: Float[Tensor, "n m"], B: Float[Tensor, "m k"]) -> Float[Tensor, "n k"]:
    """Return A B. 2 n m k flops."""
    return _linear(A, B.T.contiguous()) if _by_onednn(A, B) else A @ B


def product_of_rows(A: Float[Tensor, "n m"], B: Float[Tensor, "k m"]) -> Float[Tensor, "n k"]:
    """Return A B', for a large B that is stored row by row, which oneDNN reads as it is. 2 n m k flops."""
    fast = len(A) >= LEAST_ROWS and min(B.shape) >= LEAST_COLUMNS and B.is_contiguous() and _are_for_onednn(A, B)
    return _linear(A, B) if fast else A @ B.T


def _linear(A: Tensor, weights: Tensor) -> Tensor:
    """A weights' by oneDNN: a linear layer without bias and activation."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(A, weights, None, "none", [], "")
    return result


def _by_onednn(A: Tensor, B: Tensor) -> bool:
    """Whether oneDNN is the faster one for these matrices."""
    return B.shape[1] >= LEAST_COLUMNS and min(A.shape) >= LEAST_COLUMNS and _are_for_onednn(A, B)


def _are_for_onednn(A: Tensor, B: Tensor) -> bool:
    """Whether oneDNN multiplies matrices of this precision and device, and no gradient is asked for."""
    single = A.dtype == B.dtype == torch.float32 and A.device.type == "cpu"
    return single and not A.requires_grad and not B.requires_grad and has_onednn()


@lru_cache(maxsize=1)
def has_onednn() -> bool:
    """Whether torch has the operation, and a processor for which it pays."""
    try:
        wide = torch.backends.cpu.get_cpu_capability() == "AVX512" and torch.backends.mkldnn.is_available()
        A, B = (torch.ones(rows, 3, dtype=torch.float32) for rows in (2, 4))
        return wide and bool((_linear(A, B) == 3.0).all())
    except (AttributeError, NotImplementedError, RuntimeError):
        return False


TILE = 125  # rows: half a megabyte of float64 at 512 columns, so that a tile stays in the cache of a core
MAX_FEW = 4  # up to this many vectors, reading L takes longer than the arithmetic


def minus_product(g: Float[Tensor, " n"], L: Float[Tensor, "n m"], w: Float[Tensor, " m"]) -> Float[Tensor, " n"]:
    """Return g - L w in the precision of g, the product in that of L; on a GPU by one kernel if they are the same."""
    if L.is_cpu or not L.dtype == w.dtype == g.dtype:
        return g - (L @ w.to(L.dtype)).to(g.dtype)
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


class DeferredUpdates:
    """A matrix M [n, m] with pending low-rank updates, which all its products include.

    Parameters
    ----------
    base : Tensor [n, m]
        M; it is changed in place when updates are applied.
    capacity : int
        Number of rank-one updates after which they are applied. Memory: n m + capacity (n + m) numbers.
    """

    def __init__(self, base: Float[Tensor, "n m"], capacity: int) -> None:
        n, m = base.shape
        self.base, self.capacity, self.pending = base, capacity, 0
        self.both = base.new_zeros(2, capacity, max(n, m))  # A and W, which one copy fills if M is square
        self.A, self.W = self.both[0, :, :n], self.both[1, :, :m]

    def add(self, A: Float[Tensor, "k n"], W: Float[Tensor, "k m"]) -> bool:
        """Add A' W to M. True if all pending updates were applied now, for which M is read and written once."""
        end = self.pending + len(A)
        self.A[self.pending : end], self.W[self.pending : end] = A, W
        return self.added(len(A))

    def add_both(self, A_and_W: Float[Tensor, "rows n"]) -> bool:
        """Add A' W to a square M by one copy; A is the first half of the rows given, and W the second half."""
        k = len(A_and_W) // 2
        self.both[:, self.pending : self.pending + k] = A_and_W.view(2, k, -1)
        return self.added(k)

    def added(self, count: int) -> bool:
        """Count updates that were written behind the pending ones. True if all were applied now."""
        self.pending += count
        full = self.pending + count > self.capacity
        if full:
            self.applied()
        return full

    def applied(self) -> Float[Tensor, "n m"]:
        """Apply all pending updates and return M itself, which later updates change."""
        if self.pending:
            self.base.addmm_(self.A[: self.pending].T, self.W[: self.pending])
            self.pending = 0
        return self.base

    def rows(self, index: Tensor) -> Float[Tensor, "c m"]:
        """Return the rows M[index]."""
        k = self.pending
        return torch.addmm(self.base[index], self.A[:k, index].T, self.W[:k])

    def each_row(self, index: Sequence[int]) -> Float[Tensor, "c m"]:
        """Return the rows of M at a few indices of the host, which need not be copied to the device."""
        if self.base.is_cpu:
            return self.rows(torch.tensor(index))
        out, k = self.base.new_empty(len(index), self.base.shape[1]), self.pending
        for row, place in zip(out, index, strict=True):
            torch.addmv(self.base[place], self.W[:k].T, self.A[:k, place], out=row)
        return out

    def times_rows(self, W: Float[Tensor, "c m"]) -> Float[Tensor, "c n"]:
        """Return W M', with one read of M."""
        k = self.pending
        return times_rows(self.base, W).addmm_(W @ self.W[:k].T, self.A[:k])

    def rows_times(self, R: Float[Tensor, "c n"]) -> Float[Tensor, "c m"]:
        """Return R M, with one read of M."""
        k = self.pending
        return rows_times(R, self.base).addmm_(R @ self.A[:k].T, self.W[:k])
