"""Nystrom eigenfunctions of a product kernel on a full grid that is never formed.

The grid U_1 x ... x U_d has mbar^d points; its kernel matrix is a Kronecker product, so that its eigenvalues are
products of 1-D ones and its eigenvectors Kronecker products of 1-D ones. With K_i = Q_i Lambda_i Q_i' on grid axis i,

    phi_j(x) = prod_i T_i(x_i)[j_i],   T_i(x) = k_i(x, U_i) Q_i Lambda_i^(-1/2)         Evans and Nair (2018), theorem 2
    K ~ Phi Phi',  Phi [n, p] of the p largest eigenvalues                              eq 4

The largest products are found in logarithms, axis by axis, keeping p at a time (algorithm 1): exact, since a product
can only be among the p largest if its first factors are, and finite where mbar^d is 10^200.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import KernelError, SettingError
from ..linalg.blocks import row_blocks
from ..problem import Kernel

MARGIN = 0.1  # of an input's range, beyond it on each side
SORTED = 100_000  # rows that quantiles are taken of, at most about twice
LEAST = 1e-10  # of the largest 1-D eigenvalue: below it eigenvectors, and their slopes in theta, are rounding
TILE_BYTES = 2**20  # of products made at once: they are still near when they are multiplied


class Spectrum(NamedTuple):
    """The largest eigenvalues of a Kronecker product, largest first."""

    log: Tensor  # [p] their logarithms
    made_of: Tensor  # [p, d] which 1-D eigenvalue on each axis


def largest_products(logs: list[Float[Tensor, " k"]], p: int) -> Spectrum:
    """The p largest of all products of one eigenvalue an axis, given their logarithms. O(d p mbar log p).

    Fewer where there are fewer; ties in the order of their indices, so that equal spectra give equal answers.
    """
    log, index = logs[0].new_zeros(1), torch.zeros(1, 0, dtype=torch.int64, device=logs[0].device)
    for axis in logs:
        sums = (log[:, None] + axis[None]).flatten()
        order = torch.sort(sums, descending=True, stable=True).indices[:p]
        rows, which = order // len(axis), order % len(axis)
        log, index = sums[order], torch.cat([index[rows], which[:, None]], 1)
    return Spectrum(log, index)


def axes(
    X: Float[Tensor, "n d"], points: int | Sequence[int], spacing: str = "equispaced", margin: float = MARGIN
) -> list[Float[Tensor, " mbar"]]:
    """One axis an input, `margin` of its range beyond it on each side; constant inputs get a range of one.

    "quantile" puts the points between the ends where the rows are, as Nystrom's formula would have it; where rows
    repeat a value so do its points, whose eigenvalues are 0 and dropped. O(n d), at most 100,000 rows sorted.
    """
    n, d = X.shape
    sizes = [points] * d if isinstance(points, int) else list(points)
    if len(sizes) != d:
        raise SettingError(f"The grid is given {len(sizes)} sizes for {d} inputs; give one number, or one an input.")
    low, high = X.min(0).values, X.max(0).values
    room = torch.where(high > low, margin * (high - low), torch.full_like(low, 0.5))
    ends = list(zip((low - room).tolist(), (high + room).tolist(), strict=True))
    found = [torch.linspace(a, b, size, dtype=torch.float64).to(X) for (a, b), size in zip(ends, sizes, strict=True)]
    if spacing == "quantile":
        some = X[:: max(n // SORTED, 1)]
        for q, U in enumerate(found):
            U[1:-1] = torch.quantile(some[:, q], torch.linspace(0, 1, len(U), dtype=torch.float64).to(X)[1:-1])
    return found


class Grid:
    """The axes of one data set, and the eigenfunctions on them of any theta."""

    def __init__(
        self, kernel: Kernel, X: Float[Tensor, "n d"], points: int | Sequence[int], spacing: str = "equispaced"
    ) -> None:
        self.kernel, self.spacing, self.axes = kernel, spacing, axes(X, points, spacing)

    def factors(self, theta: Float[Tensor, " p"]) -> list[Callable[[Tensor, Tensor], Tensor]]:
        """1-D covariances whose product is the kernel. Raises KernelError where it does not factor over inputs."""
        found = self.kernel.by_input(theta) if hasattr(self.kernel, "by_input") else None
        if found is None:
            raise KernelError(
                f"Kernel {self.kernel.key!r} is no product over its inputs, which a grid needs; choose se or se-ard, "
                "or a product of kernels that are."
            )
        return found

    def eigen(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """(eigenvalues, largest first; eigenvectors) an axis; values lost in rounding are dropped. O(d mbar^3)."""
        pairs = []
        for k, U in zip(self.factors(theta), self.axes, strict=True):
            values, vectors = torch.linalg.eigh(k(U, U))
            values, vectors = values.flip(0), vectors.flip(1)
            least = max(LEAST, 10.0 * len(U) * torch.finfo(values.dtype).eps)
            kept = values.detach() > least * values.detach()[0]
            pairs.append((values[kept], vectors[:, kept]))
        return pairs

    def spectrum(self, theta: Tensor, p: int) -> Spectrum:
        """The p largest eigenvalues of the whole grid's kernel matrix."""
        return largest_products([values.detach().log() for values, _ in self.eigen(theta)], p)

    def features(self, theta: Tensor, X: Float[Tensor, "n d"], index: Int[Tensor, "p d"]) -> Float[Tensor, "n p"]:
        """Phi [n, p], differentiable in theta."""
        return Eigenfunctions(self, theta, index)(X).T

    def outside(self, X: Float[Tensor, "t d"]) -> Tensor:
        """Which rows [t] lie beyond the grid on some axis: there the eigenfunctions say nothing."""
        low = torch.stack([U[0] for U in self.axes])
        high = torch.stack([U[-1] for U in self.axes])
        return ((X < low) | (X > high)).any(1)


class Branch(NamedTuple):
    """Products over some axes: which of the left half's and of the right half's make each of them."""

    left: Branch | int  # an axis is a leaf
    right: Branch | int | None  # None where there is one axis only
    of_left: Tensor  # [u]
    of_right: Tensor  # [u]


class Eigenfunctions:
    """The eigenfunctions `index` [p, d] of one theta: 1-D decompositions once, then n p a call and little more.

    Products over few axes are shared by many eigenfunctions: they are formed once, in a balanced tree over the axes,
    so that a call costs about 3 n p multiplications and copies instead of n p d. A row of T_i is no longer than the
    i-th factor's standard deviation: plain products cannot overflow, and agree with sums of logarithms to rounding.
    The last product, by far the largest, is made a few functions at a time, which are still near when they are read.
    """

    def __init__(self, grid: Grid, theta: Float[Tensor, " P"], index: Int[Tensor, "p d"]) -> None:
        self.axes, self.factors = grid.axes, grid.factors(theta)
        self.tables, leaves = [], []
        for (values, vectors), which in zip(grid.eigen(theta), index.T, strict=True):
            used, place = torch.unique(which, return_inverse=True)
            self.tables.append(self.table(values, vectors)[:, used])  # [mbar, u]
            leaves.append(place)
        self._tree = _root(leaves)

    def __call__(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "p n"]:
        """Phi' [p, n]: eigenfunctions are rows here, so that a product of two of them runs along memory."""
        node, left = self._tree, self._grown(self._tree.left, X)
        if node.right is None or left.requires_grad:
            return self._joined(node, left, X)
        right, out = self._grown(node.right, X), left.new_empty(len(node.of_left), len(X))
        for part in row_blocks(len(out), out.element_size() * max(len(X), 1), TILE_BYTES):
            torch.index_select(left, 0, node.of_left[part], out=out[part])
            out[part] *= right.index_select(0, node.of_right[part])
        return out

    def table(self, values: Tensor, vectors: Tensor) -> Tensor:
        """What of an axis does not depend on x [mbar, k]."""
        return vectors * values.rsqrt()

    def left(self, q: int, x: Float[Tensor, " n"]) -> Float[Tensor, "mbar n"]:
        """What does: covariances with the grid points of axis q."""
        return self.factors[q](self.axes[q], x)

    def _grown(self, node: Branch | int, X: Tensor) -> Tensor:
        if isinstance(node, int):
            return self.tables[node].T @ self.left(node, X[:, node])
        return self._joined(node, self._grown(node.left, X), X)

    def _joined(self, node: Branch, left: Tensor, X: Tensor) -> Tensor:
        """The products of a branch, those of its left half given."""
        left = left.index_select(0, node.of_left)
        if node.right is None:
            return left
        right = self._grown(node.right, X).index_select(0, node.of_right)
        return left * right if left.requires_grad else left.mul_(right)


def _root(leaves: list[Tensor]) -> Branch:
    """The tree over all axes; its products are the eigenfunctions, in their order."""
    if len(leaves) == 1:
        return Branch(0, None, leaves[0], leaves[0])
    middle = len(leaves) // 2
    (left, of_left), (right, of_right) = _planted(leaves, 0, middle), _planted(leaves, middle, len(leaves))
    return Branch(left, right, of_left, of_right)


def _planted(leaves: list[Tensor], begin: int, end: int) -> tuple[Branch | int, Tensor]:
    """The tree over axes begin..end, and which of its products each eigenfunction is."""
    if end - begin == 1:
        return begin, leaves[begin]
    middle = (begin + end) // 2
    (left, of_left), (right, of_right) = _planted(leaves, begin, middle), _planted(leaves, middle, end)
    width = int(of_right.max()) + 1
    pairs, place = torch.unique(of_left * width + of_right, return_inverse=True)
    return Branch(left, right, pairs // width, pairs % width), place
