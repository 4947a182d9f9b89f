"""How alike the gradients of neighbouring rows move while a system is solved: why a block should not be of neighbours.

corr(g_i, g_j) over iterations, for rows i drawn at random and their nearest j     Bo and Sminchisescu (2008), figure 1
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.randomness import generator
from ...objectives import noise_variance
from ...problem import Problem, take

STILL = 1e-9  # of the largest movement: below it a gradient was kept at nought, and moves by rounding alone


class Correlations(NamedTuple):
    """Coefficients between -1 and 1; a row whose gradient never moved is left out."""

    near: Tensor  # [<= centres * neighbours] with the nearest rows
    far: Tensor  # with as many rows drawn at random


def gradients(problem: Problem, theta: Tensor, alphas: Float[Tensor, "t n"], rows: Tensor) -> Float[Tensor, "t r"]:
    """Entries of A alpha - y at these rows for every alpha: n kernel entries a row."""
    train, s2, out = problem.train, noise_variance(theta), alphas.new_empty(len(alphas), len(rows))
    for block in row_blocks(len(rows), alphas.element_size() * len(train)):
        at = rows[block]
        K = problem.kernel(theta, take(train.X, at), train.X)  # [block, n]
        out[:, block] = alphas @ K.T + s2 * alphas[:, at] - train.y[at]
    return out


def nearest(problem: Problem, theta: Tensor, centres: Tensor, count: int) -> Tensor:
    """The nearest rows [c, count] of each centre, itself left out: by distance, or by kernel where inputs have none."""
    X = problem.train.X
    numeric = isinstance(X, Tensor)
    closeness = -torch.cdist(X[centres], X) if numeric else problem.kernel(theta, take(X, centres), X)
    closeness[torch.arange(len(centres), device=centres.device), centres] = -torch.inf
    return closeness.topk(count).indices


def correlations(
    problem: Problem, theta: Tensor, alphas: Float[Tensor, "t n"], centres: int = 100, neighbours: int = 50
) -> Correlations:
    """Of gradients over the iterations given, for `centres` random rows. Needs two alphas that differ."""
    n, device = len(problem.train), problem.train.y.device
    random, count = generator(0, "correlations"), min(neighbours, n - 1)
    chosen = torch.randperm(n, generator=random)[:centres].to(device)
    far = torch.randint(n, (len(chosen), count), generator=random).to(device)
    near = nearest(problem, theta, chosen, count)
    every = torch.cat([chosen[:, None], near, far], 1)  # [c, 1 + 2 count]
    needed, place = every.unique(return_inverse=True)
    g = gradients(problem, theta, alphas, needed)
    g = g - g.mean(0)
    size = g.norm(dim=0)
    g = g / size.clamp_min(torch.finfo(g.dtype).tiny)
    together = torch.einsum("tc,tck->ck", g[:, place[:, 0]], g[:, place[:, 1:]])
    moves = (size[place] > STILL * float(size.max())) & (
        (every != chosen[:, None]) | (torch.arange(every.shape[1], device=device) == 0)
    )
    known = moves[:, :1] & moves[:, 1:]
    return Correlations(together[:, :count][known[:, :count]], together[:, count:][known[:, count:]])
