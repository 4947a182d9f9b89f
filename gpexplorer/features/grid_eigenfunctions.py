"""Nyström eigenfunctions of a product kernel on a full grid that is never formed.

The grid U = U_1 x ... x U_d has mbar^d points. If the kernel is a product over inputs, its matrix on the grid is a
Kronecker product of d matrices K_i [mbar, mbar]. Its eigenvalues are then products of one eigenvalue per axis, and its
eigenvectors are Kronecker products of one eigenvector per axis. With K_i = Q_i Lambda_i Q_i':

    phi_j(x) = prod_i T_i(x_i)[j_i],   T_i(x) = k_i(x, U_i) Q_i Lambda_i^(-1/2)     eq 15 (theorem 2), scaled as in eq 3
    K ~ Phi Phi',   Phi [n, p] of the p largest eigenvalues                         eq 4

Equation, theorem and algorithm numbers refer to Evans and Nair (2018), "Scalable Gaussian processes with
grid-structured eigenfunctions", ICML.

Symbols: n rows, d inputs, mbar points per axis, p eigenfunctions, j_i the index on axis i of eigenfunction j.

How many points an axis needs: a row between two grid points that are many lengthscales apart is correlated with
neither, and what the grid does not represent counts as noise. The share of the variance that mbar points U represent is

    sum_x k(x, U) K_UU^-1 k(U, x) / sum_x k(x, x)

It is about 1.8 l / h for a lengthscale l that is much shorter than the spacing h of the points. With the setting
`grid_points = 0` the number of points of an input is doubled until what they do not represent is small beside the noise
variance, or beside the variance that p functions of the whole grid leave out anyway.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from ..errors import KernelError, SettingError
from ..linalg.blocks import row_blocks
from ..linalg.deferred_reads import is_traced
from ..problem import Kernel

ROOT_POINTS = 10  # per input, of a grid for preconditioning
MARGIN = 0.1  # an axis is longer than the range of its input by this fraction of the range on each side
QUANTILE_ROWS = 100_000  # quantiles are computed from about this many rows (fewer than twice as many)
SMALLEST_RATIO = 1e-10  # 1-D eigenvalues below this fraction of the largest, and their vectors, are rounding error
OneInput = Callable[[Tensor, Tensor], Tensor]  # x [n], z [m] -> covariances [n, m]
Pairs = list[tuple[Tensor, Tensor]]  # of each axis: eigenvalues [k] in descending order and eigenvectors [mbar, k]
TILE_BYTES = 2**20  # size of the pieces in which the last product is computed, so that each piece stays in the cache
FEWEST, MOST = 10, 160  # grid points of an input; eigenvectors of an axis cost MOST^3 flops per evaluation
ENOUGH = 0.95  # share of the variance along an input that its points must represent, whatever the noise
SMALL_LOSS = 1e-3  # of the noise variance: what the points of an input may leave out; means err by .01 noise sds
SMALL_PART = 0.1  # of the variance that p functions leave out; less does not change the predictions of these
SHARE_ROWS = 500  # number of rows from which the share is computed


class Spectrum(NamedTuple):
    """The largest eigenvalues of a Kronecker product in descending order."""

    log_values: Tensor  # [p] logarithms of the eigenvalues
    axis_indices: Tensor  # [p, d] the index of the 1-D eigenvalue on each axis; [p, d + 1] for a sum of products


def largest_products(axis_logs: list[Float[Tensor, " k"]], p: int) -> Spectrum:
    """Find the p largest products of one eigenvalue per axis (algorithm 1).

    Parameters
    ----------
    axis_logs : list of tensors [mbar_i]
        Logarithms of the eigenvalues of each axis, in descending order.
    p : int
        How many products to return. There are fewer if the grid has fewer points.

    Returns
    -------
    Spectrum
        The products in descending order. Equal products are ordered by their indices, so that equal input gives
        equal output.

    Notes
    -----
    The cost is O(d p mbar log p). The search is exact: a product can be among the p largest only if the product of its
    first factors is among the p largest of the first axes. Logarithms stay finite when the grid has 10^200 points.
    """
    logs = axis_logs[0].new_zeros(1)  # [1] the empty product
    indices = torch.zeros(1, 0, dtype=torch.int64, device=axis_logs[0].device)
    for axis in axis_logs:
        sums = (logs[:, None] + axis[None]).flatten()  # algorithm 1: log lambda (x) 1 + 1 (x) log lambda_i
        order = torch.sort(sums, descending=True, stable=True).indices[:p]  # algorithm 1: sort_p
        previous, on_axis = order // len(axis), order % len(axis)  # algorithm 1: floor(ord / mbar), ord mod mbar
        logs, indices = sums[order], torch.cat([indices[previous], on_axis[:, None]], 1)
    return Spectrum(logs, indices)


def grid_axes(
    X: Float[Tensor, "n d"], points: int | Sequence[int], spacing: str = "equispaced"
) -> list[Float[Tensor, " mbar"]]:
    """Place the grid points of each axis.

    Parameters
    ----------
    X : tensor [n, d]
        Training inputs. A constant input gets an axis of length 1.
    points : int or sequence of d ints
        Points per axis.
    spacing : {"equispaced", "quantile", "mixed"}
        "quantile" places the points between the two ends at quantiles of the rows, as footnote 1 of the paper asks
        for. "mixed" places them at equal steps of (F(x) + G(x)) / 2, where F is the distribution of the rows and G the
        uniform one: half of the points follow the rows, and half cover the range. If rows repeat a value, grid points
        coincide; their eigenvalues are 0 and are dropped later.

    Returns
    -------
    list of tensors [mbar_i]
        Grid points in ascending order.

    Raises
    ------
    SettingError
        If the number of sizes is not the number of inputs.
    """
    n, d = X.shape
    sizes = [points] * d if isinstance(points, int) else list(points)
    if len(sizes) != d:
        raise SettingError(f"The grid has {len(sizes)} sizes for {d} inputs. Give one size, or one size per input.")
    low, high = X.min(0).values, X.max(0).values
    margins = torch.where(high > low, MARGIN * (high - low), torch.full_like(low, 0.5))
    ends = list(zip((low - margins).tolist(), (high + margins).tolist(), strict=True))
    axes = [torch.linspace(a, b, size, dtype=torch.float64).to(X) for (a, b), size in zip(ends, sizes, strict=True)]
    if spacing == "quantile":
        sample = X[:: max(n // QUANTILE_ROWS, 1)]
        for q, U in enumerate(axes):
            U[1:-1] = torch.quantile(sample[:, q], torch.linspace(0, 1, len(U), dtype=torch.float64).to(X)[1:-1])
    if spacing == "mixed":
        sample = X[:: max(n // QUANTILE_ROWS, 1)].double().sort(0).values
        axes = [mixed_axis(x, U.double()).to(X) for x, U in zip(sample.T, axes, strict=True)]
    return axes


def mixed_axis(x: Float[Tensor, " n"], U: Float[Tensor, " mbar"]) -> Float[Tensor, " mbar"]:
    """Return points at equal steps of the mean of the distribution of the rows and of the uniform one.

    Parameters
    ----------
    x : tensor [n]
        Values of the rows in ascending order.
    U : tensor [mbar]
        An equispaced axis, whose ends stay.
    """
    low, high, n = U[0], U[-1], len(x)
    knots = torch.cat([low[None], x, high[None]])  # [n + 2]
    F = torch.cat([x.new_zeros(1), (torch.arange(n).to(x) + 0.5) / n, x.new_ones(1)])
    mean = 0.5 * (F + (knots - low) / (high - low))  # strictly increasing, from 0 to 1
    levels = torch.linspace(0.0, 1.0, len(U), dtype=x.dtype, device=x.device)
    right = torch.searchsorted(mean, levels).clamp(1, n + 1)
    share = (levels - mean[right - 1]) / (mean[right] - mean[right - 1])
    points = torch.lerp(knots[right - 1], knots[right], share)
    points[0], points[-1] = low, high
    return points


class Grid:
    """The axes of a grid over one data set, and the eigenfunctions on it for any theta.

    Parameters
    ----------
    kernel : Kernel
        A kernel that is a product over inputs, or a sum of such products.
    X : tensor [n, d]
        Training inputs, which determine the range of each axis.
    points : int or sequence of d ints
        Points per axis.
    spacing : {"equispaced", "quantile", "mixed"}
        See `grid_axes`.
    """

    def __init__(
        self, kernel: Kernel, X: Float[Tensor, "n d"], points: int | Sequence[int], spacing: str = "equispaced"
    ) -> None:
        self.kernel, self.spacing, self.axes = kernel, spacing, grid_axes(X, points, spacing)
        self.kept: tuple[Tensor, list[Pairs]] | None = None

    @classmethod
    def given(cls, kernel: Kernel, axes: list[Tensor]) -> Grid:
        """Return the grid of these axes, which are not placed on rows."""
        grid = cls.__new__(cls)
        grid.kernel, grid.spacing, grid.axes, grid.kept = kernel, "given", axes, None
        return grid

    def keeping(self, theta: Float[Tensor, " P"], pairs: list[Pairs] | None = None) -> Grid:
        """Return this grid with the eigenvectors that it has at one theta.

        Weights of eigenfunctions are right for these very vectors. Another device or library may give them other
        signs, and other vectors where eigenvalues are equal.

        Parameters
        ----------
        pairs : list, optional
            Eigenvalues and eigenvectors of each axis of each product; by default they are computed. O(d mbar^3).
        """
        other, theta = copy.copy(self), theta.detach()
        if pairs is None:
            pairs = [self.axis_eigen(theta, term) for term in range(len(self.terms(theta)))]
        other.kept = theta, pairs
        return other

    def terms(self, theta: Float[Tensor, " p"]) -> list[list[OneInput]]:
        """Return the kernel as a sum of products, each of which has one 1-D covariance function per input.

        Raises
        ------
        KernelError
            If the kernel is no sum of products over its inputs.
        """
        if len(self.axes) == 1:  # any kernel of one input is one product of one factor
            factors = self.kernel.by_input(theta) if hasattr(self.kernel, "by_input") else None
            return [factors or [lambda x, z: self.kernel(theta, x[:, None], z[:, None])]]
        terms = self.kernel.terms(theta) if hasattr(self.kernel, "terms") else None
        if terms is None:
            raise KernelError(
                f"Kernel {self.kernel.key!r} is no product over its {len(self.axes)} inputs, nor a short sum of such "
                "products, and a grid needs one; choose se-ard, matern52-product or anova, or combine such kernels by "
                "* and +."
            )
        return terms

    def axis_kernels(self, theta: Float[Tensor, " p"], term: int = 0) -> list[OneInput]:
        """Return the 1-D covariance functions k_i of one product."""
        return self.terms(theta)[term]

    def axis_eigen(self, theta: Tensor, term: int = 0) -> Pairs:
        """Eigenvalues [k] in descending order and eigenvectors [mbar, k] of each axis of one product. O(d mbar^3).

        Eigenvalues at the level of rounding error are dropped: they may be negative, and dividing by their root
        would amplify the error of their vectors.
        """
        if self.kept is not None and not theta.requires_grad and torch.equal(theta, self.kept[0]):
            return self.kept[1][term]
        pairs = []
        for k, U in zip(self.axis_kernels(theta, term), self.axes, strict=True):
            values, vectors = torch.linalg.eigh(k(U, U))  # [mbar], [mbar, mbar]
            values, vectors = values.flip(0), vectors.flip(1)
            smallest = max(SMALLEST_RATIO, 10.0 * len(U) * torch.finfo(values.dtype).eps)
            is_above_rounding = values.detach() > smallest * values.detach()[0]
            pairs.append((values[is_above_rounding], vectors[:, is_above_rounding]))
        return pairs

    def exist(self, theta: Tensor, index: Int[Tensor, "p d"]) -> Tensor:
        """Return a mask [p] of the eigenfunctions whose eigenvalues are above rounding error at this theta."""
        count = len(self.terms(theta))
        sizes = torch.tensor([[len(v) for v, _ in self.axis_eigen(theta, t)] for t in range(count)]).to(index.device)
        on_axes, term = split_index(index, len(self.axes))
        return (on_axes < sizes[term]).all(1)

    def spectrum(self, theta: Tensor, p: int) -> Spectrum:
        """Return the p largest eigenvalues on the whole grid.

        For a sum of products these are the largest among the eigenvalues of every product, and the index of an
        eigenfunction has one entry more, the last: its product.
        """
        count = len(self.terms(theta))
        spectra = [
            largest_products([values.detach().log() for values, _ in self.axis_eigen(theta, term)], p)
            for term in range(count)
        ]
        if count == 1:
            return spectra[0]
        logs = torch.cat([spectrum.log_values for spectrum in spectra])
        order = logs.sort(descending=True, stable=True).indices[:p]
        labelled = [torch.nn.functional.pad(each.axis_indices, (0, 1), value=t) for t, each in enumerate(spectra)]
        return Spectrum(logs[order], torch.cat(labelled)[order])

    def features(self, theta: Tensor, X: Float[Tensor, "n d"], index: Int[Tensor, "p d"]) -> Float[Tensor, "n p"]:
        """Return Phi [n, p] of the eigenfunctions `index`; it is differentiable in theta."""
        return on_grid(Eigenfunctions, self, theta, index)(X).T

    def outside(self, X: Float[Tensor, "t d"]) -> Tensor:
        """Return a mask [t] of the rows outside the grid on some axis, where the eigenfunctions decay to 0."""
        low = torch.stack([U[0] for U in self.axes])
        high = torch.stack([U[-1] for U in self.axes])
        X = X[:, : len(self.axes)]
        return ((X < low) | (X > high)).any(1)


def split_index(index: Int[Tensor, "p k"], d: int) -> tuple[Tensor, Tensor]:
    """Return the indices on the d axes [p, d], and the product [p] to which each eigenfunction belongs."""
    return index[:, :d], index[:, d] if index.shape[1] > d else index.new_zeros(len(index))


class Branch(NamedTuple):
    """A node of the tree over axes: each of its u products is a product of one from each child."""

    left: Branch | int  # an axis is a leaf
    right: Branch | int | None  # None if there is only one axis
    left_index: Tensor  # [u] which product of the left child
    right_index: Tensor  # [u] which product of the right child


class Eigenfunctions:
    """The eigenfunctions `index` at one theta, as a function of rows.

    Parameters
    ----------
    theta : tensor [P]
        Hyperparameters. The features are differentiable in theta.
    index : tensor [p, d]
        The index of the 1-D eigenvalue on each axis, as in `Spectrum.axis_indices`.
    term : int, default 0
        Which product of the kernel, if it is a sum of products.

    Notes
    -----
    The 1-D eigendecompositions are computed once. A call costs about 3 n p multiplications and copies instead of
    the n p d of eq 15, because a product over few axes is shared by many eigenfunctions: a balanced tree over the axes
    computes each of them once. The entries of T_i are at most the standard deviation of the i-th factor, so the
    products cannot overflow; they agree with the paper's sums of logarithms to rounding.
    """

    def __init__(self, grid: Grid, theta: Float[Tensor, " P"], index: Int[Tensor, "p d"], term: int = 0) -> None:
        self.axes, self.axis_kernels = grid.axes, grid.axis_kernels(theta, term)
        self.tables, leaves = [], []
        for (values, vectors), on_axis in zip(grid.axis_eigen(theta, term), index.T, strict=True):
            used, place = torch.unique(on_axis, return_inverse=True)
            self.tables.append(self.axis_table(values, vectors)[:, used])  # [mbar, u]
            leaves.append(place)
        self._tree = _build_tree(leaves)

    def __call__(self, X: Float[Tensor, "n d"]) -> Float[Tensor, "p n"]:
        """Return Phi' [p, n]. Eigenfunctions are rows, so that the product of two runs along memory."""
        root, left = self._tree, self._products(self._tree.left, X)
        if root.right is None or left.requires_grad or is_traced():
            return self._combine(root, left, X)
        right, out = self._products(root.right, X), left.new_empty(len(root.left_index), len(X))  # [p, n]
        for part in row_blocks(len(out), out.element_size() * max(len(X), 1), out, TILE_BYTES):
            torch.index_select(left, 0, root.left_index[part], out=out[part])
            out[part] *= right.index_select(0, root.right_index[part])
        return out

    def axis_table(self, values: Tensor, vectors: Tensor) -> Tensor:
        """Return Q_i Lambda_i^(-1/2) [mbar, k], the part of T_i that does not depend on x."""
        return vectors * values.rsqrt()

    def axis_columns(self, q: int, x: Float[Tensor, " n"]) -> Float[Tensor, "mbar n"]:
        """Return k_q(U_q, x), the part of T_q that depends on x."""
        return self.axis_kernels[q](self.axes[q], x)

    @staticmethod
    def represented(k: OneInput, U: Tensor, values: Tensor, vectors: Tensor, x: Tensor) -> Float[Tensor, " n"]:
        """Return the variance at x that the points U represent, k(x, U) K_UU^-1 k(U, x), by eigenvectors of K_UU."""
        return ((k(x, U) @ vectors).square() / values).sum(1)

    def _products(self, node: Branch | int, X: Tensor) -> Tensor:
        """All products [u, n] of a node; a leaf gives the columns of T_i that are used."""
        if isinstance(node, int):
            return self.tables[node].T @ self.axis_columns(node, X[:, node])
        return self._combine(node, self._products(node.left, X), X)

    def _combine(self, node: Branch, left: Tensor, X: Tensor) -> Tensor:
        """The products [u, n] of a node, given those of its left child."""
        left = left.index_select(0, node.left_index)
        if node.right is None:
            return left
        right = self._products(node.right, X).index_select(0, node.right_index)
        return left * right if left.requires_grad else left.mul_(right)  # eq 15: the Hadamard product


def on_grid(
    functions: type[Eigenfunctions], grid: Grid, theta: Tensor, index: Int[Tensor, "p k"]
) -> Callable[[Tensor], Tensor]:
    """Return the eigenfunctions `index` as a function X [n, d] -> Phi' [p, n], for a kernel of one product or several.

    Parameters
    ----------
    functions : type of Eigenfunctions
        How they are computed: by Nyström's formula, or interpolated.
    theta : tensor [P]
    index : tensor [p, d] or [p, d + 1]
        As in `Spectrum.axis_indices`.
    """
    on_axes, term = split_index(index, len(grid.axes))
    used = term.unique().tolist()
    if len(used) <= 1:
        return functions(grid, theta, on_axes, *used)
    members = [(term == t).nonzero()[:, 0] for t in used]
    parts = [functions(grid, theta, on_axes[which], t) for t, which in zip(used, members, strict=True)]
    place = torch.cat(members).argsort()  # [p]
    return lambda X: torch.cat([part(X) for part in parts]).index_select(0, place)


def _build_tree(leaves: list[Tensor]) -> Branch:
    """The tree over all axes; the products of its root are the eigenfunctions in their order."""
    if len(leaves) == 1:
        return Branch(0, None, leaves[0], leaves[0])
    middle = len(leaves) // 2
    left, left_index = _build_subtree(leaves, 0, middle)
    right, right_index = _build_subtree(leaves, middle, len(leaves))
    return Branch(left, right, left_index, right_index)


def _build_subtree(leaves: list[Tensor], begin: int, end: int) -> tuple[Branch | int, Tensor]:
    """The tree over axes begin to end - 1, and which of its products [p] each eigenfunction contains."""
    if end - begin == 1:
        return begin, leaves[begin]
    middle = (begin + end) // 2
    left, left_index = _build_subtree(leaves, begin, middle)
    right, right_index = _build_subtree(leaves, middle, end)
    width = int(right_index.max()) + 1
    pairs, place = torch.unique(left_index * width + right_index, return_inverse=True)
    return Branch(left, right, pairs // width, pairs % width), place


def grid_root(kernel: Kernel, theta: Float[Tensor, " P"], X: Float[Tensor, "n d"], rank: int) -> Float[Tensor, "n r"]:
    """Return a low-rank root Phi of the kernel matrix, K ~ Phi Phi', for preconditioning exact solves (section 4.1).

    Parameters
    ----------
    kernel, theta : Kernel, Tensor [P]
        The kernel and its hyperparameters.
    X : tensor [n, d]
        Rows of the kernel matrix.
    rank : int
        The most columns r of the root; there are never more than n.

    Returns
    -------
    tensor [n, r]
        Phi, which `linalg.preconditioners.woodbury` takes. The cost is about 3 n r flops, and no kernel column.

    Raises
    ------
    KernelError
        If the kernel is not a product over its inputs.
    """
    with torch.no_grad():
        grid = Grid(kernel, X, ROOT_POINTS)
        index = grid.spectrum(theta, min(rank, len(X))).axis_indices
        basis, root = on_grid(Eigenfunctions, grid, theta, index), X.new_empty(len(X), len(index))
        for rows in row_blocks(len(X), 3 * X.element_size() * len(index), X):
            root[rows] = basis(X[rows]).T
    return root


def axis_shares(grid: Grid, theta: Tensor, X: Tensor, functions: type[Eigenfunctions] = Eigenfunctions) -> list[float]:
    """Return the share of each input's own kernel that its grid points represent, the least over the products of a sum.

    Parameters
    ----------
    theta : tensor [P]
    X : tensor [n, d]
        Training inputs; at most 500 rows of them are used. O(500 d (500 + mbar^2)) flops.
    functions : type of Eigenfunctions
        How the functions follow from the grid: by Nyström's formula, or interpolated. The share of a value that is
        interpolated between points too far apart is negative: its error is larger than the value.
    """
    shares, rows = [1.0] * len(grid.axes), X[:: max(len(X) // SHARE_ROWS, 1)][:SHARE_ROWS]
    with torch.no_grad():
        for term in range(len(grid.terms(theta))):
            kernels, pairs = grid.axis_kernels(theta, term), grid.axis_eigen(theta, term)
            for i, (k, U, pair) in enumerate(zip(kernels, grid.axes, pairs, strict=True)):
                x = rows[:, i]
                represented = functions.represented(k, U, *pair, x)  # [500]
                shares[i] = min(shares[i], float(represented.sum() / k(x, x).diagonal().sum()))
    return shares


def share_left_out(grid: Grid, theta: Tensor, p: int) -> float:
    """Return the share of the variance on the grid that its p largest eigenfunctions leave out."""
    total = 0.0
    with torch.no_grad():
        for term in range(len(grid.terms(theta))):
            total += math.prod(
                float(values.sum() / len(U))
                for (values, _), U in zip(grid.axis_eigen(theta, term), grid.axes, strict=True)
            )
        kept = float((grid.spectrum(theta, p).log_values - sum(math.log(len(U)) for U in grid.axes)).exp().sum())
    return max(1.0 - kept / total, 0.0)


def allowed_loss(grid: Grid, theta: Tensor, X: Tensor, p: int, part: float = SMALL_LOSS) -> float:
    """Return the share of its variance that the points of an input may leave out.

    Parameters
    ----------
    theta : tensor [P]
    X : tensor [n, d]
    p : int
        Number of eigenfunctions.
    part : float
        Of the noise variance.
    """
    noise_share = math.exp(2.0 * float(theta[-1])) / float(grid.kernel.diag(theta, X).mean())
    return max(part * noise_share, SMALL_PART * share_left_out(grid, theta, p), MOST * SMALLEST_RATIO)


def sizes_by_lengthscale(
    kernel: Kernel, X: Tensor, theta: Tensor, spacing: str, p: int, functions: type[Eigenfunctions] = Eigenfunctions
) -> list[int]:
    """Return the number of grid points of each input at this theta: 10, doubled until they are enough or are 160.

    Parameters
    ----------
    kernel : Kernel
        A product over inputs, or a sum of such products.
    X : tensor [n, d]
    theta : tensor [P]
    spacing : str
        Where the points of an axis lie, as in `Grid`.
    p : int
        Number of eigenfunctions that will be used.
    functions : type of Eigenfunctions
        How the functions follow from the grid.

    Notes
    -----
    Points are enough if they leave out at most 5 % of the variance along their input, and at most a thousandth of the
    noise variance or a tenth of what the p functions leave out, whichever is more. It reads 500 rows and the ends of
    each input, and computes in float64 on the CPU: d (500 + mbar)^2 kernel entries per doubling.
    """
    sample = torch.cat([X[:: max(len(X) // SHARE_ROWS, 1)][:SHARE_ROWS], X.min(0).values[None], X.max(0).values[None]])
    sample, theta, sizes = sample.cpu().double(), theta.cpu().double(), [FEWEST] * X.shape[1]  # too small for a GPU
    while True:
        grid = Grid(kernel, sample, sizes, spacing)
        shares = axis_shares(grid, theta, sample, functions)
        least = max(1.0 - allowed_loss(grid, theta, sample, p), ENOUGH)
        doubled = [2 * m if share < least and 2 * m <= MOST else m for m, share in zip(sizes, shares, strict=True)]
        if doubled == sizes:
            return sizes
        sizes = doubled
