"""How many grid points an input needs: enough that they represent its own kernel at the training rows.

A row between two grid points that are many lengthscales apart is correlated with neither, and what the grid does not
represent counts as noise. The share of the variance that mbar points U represent is

    sum_x k(x, U) K_UU^-1 k(U, x) / sum_x k(x, x)

It is about 1.8 l / h for a lengthscale l that is much shorter than the spacing h of the points. With the setting
`grid_points = 0` the number of points of an input is doubled until they represent nearly all of the variance.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...features.grid_eigenfunctions import Grid
from ...problem import Kernel

FEWEST, MOST = 10, 160  # grid points of an input; eigenvectors of an axis cost MOST^3 flops per evaluation
ENOUGH = 0.95  # share of the variance along an input that its points must represent
ROWS = 500  # number of rows from which the share is computed


def axis_shares(grid: Grid, theta: Tensor, X: Tensor) -> list[float]:
    """Return the share of each input's own kernel that its grid points represent, the least over the products of a sum.

    Parameters
    ----------
    theta : tensor [P]
    X : tensor [n, d]
        Training inputs; at most 500 rows of them are used. O(500 d (500 + mbar^2)) flops.
    """
    shares, rows = [1.0] * len(grid.axes), X[:: max(len(X) // ROWS, 1)][:ROWS]
    with torch.no_grad():
        for term in range(len(grid.terms(theta))):
            kernels, pairs = grid.axis_kernels(theta, term), grid.axis_eigen(theta, term)
            for i, (k, U, (values, vectors)) in enumerate(zip(kernels, grid.axes, pairs, strict=True)):
                x = rows[:, i]
                represented = (k(x, U) @ vectors).square() / values  # [500, mbar]
                shares[i] = min(shares[i], float(represented.sum() / k(x, x).diagonal().sum()))
    return shares


def sizes_by_lengthscale(kernel: Kernel, X: Tensor, theta: Tensor, spacing: str) -> list[int]:
    """Return the number of grid points of each input at this theta: 10, doubled until they represent 95 % or are 160.

    Parameters
    ----------
    kernel : Kernel
        A product over inputs, or a sum of such products.
    X : tensor [n, d]
    theta : tensor [P]
    spacing : str
        Where the points of an axis lie, as in `Grid`.

    Notes
    -----
    It reads 500 rows and the ends of each input, and computes on the CPU: d (500 + mbar)^2 kernel entries per doubling.
    """
    sample = torch.cat([X[:: max(len(X) // ROWS, 1)][:ROWS], X.min(0).values[None], X.max(0).values[None]])
    sample, theta, sizes = sample.cpu(), theta.cpu(), [FEWEST] * X.shape[1]  # matrices too small for a GPU
    while True:
        shares = axis_shares(Grid(kernel, sample, sizes, spacing), theta, sample)
        doubled = [2 * m if share < ENOUGH and 2 * m <= MOST else m for m, share in zip(sizes, shares, strict=True)]
        if doubled == sizes:
            return sizes
        sizes = doubled
