"""k-means by Lloyd's iterations.

    r2_ij = |x_i - z_j|^2,   label_i = argmin_j r2_ij,   z_j = mean of the rows with label j

Initial centres are drawn as in k-means++: each next centre is a row, with probability proportional to its squared
distance from the nearest centre so far (Arthur and Vassilvitskii 2007).
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.randomness import generator

ITERATIONS = 20  # of Lloyd's algorithm, where k-means only initialises another method


def spread_rows(X: Float[Tensor, "n d"], m: int, seed: int) -> Tensor:
    """Draw up to m distinct rows far from each other, by k-means++.

    Returns
    -------
    Tensor [<= m]
        Fewer where fewer rows are distinct.

    Notes
    -----
    n m d flops.
    """
    rng = generator(seed, "centres")
    rows = [int(torch.randint(len(X), (1,), generator=rng))]
    nearest = _squared_distances(X, X[rows[0]])  # [n] squared distance from the nearest centre
    draws = torch.rand(m, generator=rng, dtype=torch.float64).tolist()
    for draw in draws[1:]:
        cumulative = nearest.double().cumsum(0)  # [n]
        if float(cumulative[-1]) <= 0.0:
            break
        row = int(torch.searchsorted(cumulative, draw * cumulative[-1], right=True).clamp_max(len(X) - 1))
        rows.append(row)
        nearest = torch.minimum(nearest, _squared_distances(X, X[row]))
    return torch.tensor(rows, dtype=torch.int64, device=X.device)


def _squared_distances(X: Float[Tensor, "n d"], z: Float[Tensor, " d"]) -> Float[Tensor, " n"]:
    """The squared distance of each row from one point, with the temporaries of one block of rows."""
    r2 = X.new_empty(len(X))
    for rows in row_blocks(len(X), 2 * X.element_size() * X.shape[1], X):
        torch.sum((X[rows] - z).square_(), 1, out=r2[rows])
    return r2


def lloyd(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> tuple[Float[Tensor, "m d"], float]:
    """Do one iteration.

    Returns
    -------
    centres : Tensor [m, d]
        The mean of the rows nearest to each centre; a centre without rows stays.
    spread : float
        Mean squared distance from the nearest centre, before the iteration.

    Notes
    -----
    2 n m d flops.
    """
    sums, counts, spread = torch.zeros_like(Z), Z.new_zeros(len(Z)), 0.0
    for rows in row_blocks(len(X), X.element_size() * len(Z), X):
        near = nearest(X[rows], Z)
        spread += float(near.values.sum())
        sums.index_add_(0, near.indices, X[rows])
        counts.index_add_(0, near.indices, torch.ones_like(X[rows, 0]))
    centres = torch.where(counts[:, None] > 0, sums / counts.clamp_min(1.0)[:, None], Z)
    return centres, spread / len(X)


def kmeans_centres(X: Float[Tensor, "n d"], m: int, seed: int) -> Float[Tensor, "m d"]:
    """Return centres after a few iterations from a k-means++ start."""
    Z = X[spread_rows(X, min(m, len(X)), seed)].clone()
    for _ in range(ITERATIONS):
        Z, _ = lloyd(X, Z)
    return Z


def nearest(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> torch.return_types.min:
    """Find the nearest of Z for each row of X: squared distances (`values`) and indices (`indices`), each [n]."""
    centre = Z.mean(0)
    A, B = X - centre, Z - centre
    r2 = torch.addmm(B.square().sum(1).expand(len(A), -1), A, B.T, alpha=-2.0) + A.square().sum(1)[:, None]  # [n, m]
    return r2.clamp_min_(0.0).min(1)


def rows_near(X: Float[Tensor, "n d"], Z: Float[Tensor, "m d"]) -> Tensor:
    """Return the distinct rows of X nearest to the points Z: at most m of them, in the order of Z."""
    rows = nearest(Z, X).indices.tolist()
    return torch.tensor(list(dict.fromkeys(rows)), dtype=torch.int64, device=X.device)
