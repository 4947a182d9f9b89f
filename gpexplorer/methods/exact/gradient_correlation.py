"""Correlation of gradient entries between neighbouring rows: why a block should not consist of neighbours.

    corr(g_i, g_j) over iterations, for random rows i and their nearest rows j      Bo and Sminchisescu (2008), figure 1

Two rows whose gradients rise and fall together promise nearly the same decrease of the objective, so that solving for
both brings little more than solving for one.

Apart because it is a measurement for a picture: no solver needs it to take a step.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.kernel_columns import kernel_rows, large_blocks
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...problem import Problem, take
from ..capabilities import Correlations

STILL = 1e-9  # share of the largest variation: below it an entry was kept at zero and varies by rounding alone


def gradient_entries(
    problem: Problem, theta: Tensor, alphas: Float[Tensor, "t n"], rows: Tensor
) -> Float[Tensor, "t r"]:
    """Entries of the gradient A alpha - y at some rows, for several iterates; at most n kernel entries per row."""
    train, out = problem.train, noise_variance(theta) * alphas[:, rows] - problem.train.y[rows]
    nonzero = alphas.any(0).nonzero()[:, 0]
    X, weights, chosen = take(train.X, nonzero), alphas[:, nonzero], take(train.X, rows)
    for block in large_blocks(len(rows), 2 * alphas.element_size() * len(nonzero), alphas):
        out[:, block] += weights @ kernel_rows(problem.kernel, theta, chosen[block], X).T
    return out


def nearest_rows(problem: Problem, theta: Tensor, centres: Tensor, count: int) -> Tensor:
    """Indices [c, count] of the rows nearest to each centre, by distance, or by kernel value if inputs are objects."""
    X = problem.train.X
    numeric = isinstance(X, Tensor)
    closeness = -torch.cdist(X[centres], X) if numeric else problem.kernel(theta, take(X, centres), X)
    closeness[torch.arange(len(centres), device=centres.device), centres] = -torch.inf  # not the centre itself
    return closeness.topk(count).indices


def gradient_correlations(
    problem: Problem, theta: Tensor, alphas: Float[Tensor, "t n"], centres: int = 100, neighbours: int = 50
) -> Correlations:
    """Correlations over iterations between the gradient of a row, of its neighbours, and of random rows.

    Parameters
    ----------
    problem, theta : Problem, Tensor [p]
        Training rows, and the kernel with its log-hyperparameters.
    alphas : Tensor [t, n]
        Iterates. With fewer than two there are no coefficients.
    centres : int, default 100
        Number of rows drawn at random.
    neighbours : int, default 50
        Number of nearest rows, and of random rows, per centre.

    Returns
    -------
    Correlations
        Pearson's coefficients for both kinds of pairs.

    References
    ----------
    Bo and Sminchisescu (2008), section 2.3 and figure 1.
    """
    if len(alphas) < 2:
        return Correlations(near=alphas.new_zeros(0), far=alphas.new_zeros(0), iterations=len(alphas))
    n, device = len(problem.train), problem.train.y.device
    random, count = generator(0, "correlations"), min(neighbours, n - 1)
    chosen = torch.randperm(n, generator=random)[:centres].to(device)
    far = torch.randint(n, (len(chosen), count), generator=random).to(device)
    near = nearest_rows(problem, theta, chosen, count)
    members = torch.cat([chosen[:, None], near, far], 1)  # [c, 1 + 2 count]
    distinct, position = members.unique(return_inverse=True)

    g = gradient_entries(problem, theta, alphas, distinct)  # [t, needed]
    g = g - g.mean(0)
    size = g.norm(dim=0)
    g = g / size.clamp_min(torch.finfo(g.dtype).tiny)
    coefficients = torch.einsum("tc,tck->ck", g[:, position[:, 0]], g[:, position[:, 1:]])  # [c, 2 count]

    is_centre = torch.arange(members.shape[1], device=device) == 0
    varies = (size[position] > STILL * float(size.max())) & ((members != chosen[:, None]) | is_centre)
    valid = varies[:, :1] & varies[:, 1:]  # both rows vary, and a centre is not paired with itself
    near_pairs, far_pairs = coefficients[:, :count][valid[:, :count]], coefficients[:, count:][valid[:, count:]]
    return Correlations(near=near_pairs, far=far_pairs, iterations=len(alphas))
