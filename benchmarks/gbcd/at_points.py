"""Mean, variances and samples of the exact GP at chosen points: targets, samples and points share all kernel rows.

    A alpha = y,   A C = H + E,   A V = K       H prior paths at the rows, E noise, K = k(X, Z) for the points Z
    mean    = K'alpha,   var = k(z, z) + 2 min f,   samples = mean + H(Z) - K'C

K need not be kept once V and its gradient G = A V - K are known: with the residuals g of the other right-hand sides R,

    K'S = (A V - G)'S = V'(R + g) - G'S         for S = alpha or C

so that the points take n t kernel entries in all, whatever the number of passes over the rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from gpexplorer.linalg.blocks import row_blocks
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.exact.block import BlockSizes
from gpexplorer.methods.exact.right_hand_sides import Columns, Limit, solve_together, variance_limit
from gpexplorer.methods.exact.system import System
from gpexplorer.posteriors.sample_paths import FEATURES, prior_paths
from gpexplorer.problem import Problem

CONJUGATE = 2  # previous steps that a step for targets and samples is combined with


class PointsRequest(NamedTuple):
    """The points, and what is to be computed at them."""

    points: Any  # inputs [t, d] or sequence
    samples: int  # number of joint samples at the points
    tolerance: float  # largest relative error of a predictive variance of y
    seed: int = 0  # of the samples


class PointsAnswer(NamedTuple):
    """The exact posterior at the points, and how many blocks were needed."""

    mean: Tensor  # [t]
    var: Tensor  # [t] of f, an upper bound
    samples: Tensor  # [s, t] of f
    alpha: Tensor  # [n]
    blocks: int
    unfinished: int  # right-hand sides whose residual is above its limit


def posterior_at(
    system: System, problem: Problem, request: PointsRequest, limit: Limit, sizes: BlockSizes
) -> PointsAnswer:
    """Solve for targets, samples and points together.

    Parameters
    ----------
    system : System
        A at the theta in question, in the precision of the data.
    problem : Problem
        Training rows and kernel.
    request : PointsRequest
        Points, number of samples and tolerance.
    limit : Limit
        For the targets and the samples.
    sizes : BlockSizes
        Sizes of blocks.

    Returns
    -------
    PointsAnswer

    Raises
    ------
    PosteriorError
        If samples are asked for and the kernel has no random features.

    Notes
    -----
    Memory: 2 n t numbers, and 6 n (s + 1) for targets and samples.
    """
    kernel, theta, X, y = problem.kernel, system.columns.theta, problem.train.X, problem.train.y
    n, Z, draw = len(y), request.points, generator(request.seed, "posterior at points")
    R, H = y[:, None], y.new_zeros(0, len(Z))
    if request.samples:
        paths = prior_paths(kernel, theta, request.samples, draw)
        noise = torch.randn(n, request.samples, generator=draw, dtype=torch.float64).to(y)
        at_rows = torch.cat([paths(X[rows]) for rows in row_blocks(n, 8 * (FEATURES + request.samples), X)], 1)
        R, H = torch.cat([R, at_rows.T + system.s2**0.5 * noise], 1), paths(Z)  # [n, 1 + s], [s, t]
    prior = kernel.diag(theta, Z)
    targets = Columns(R.clone(), limit, CONJUGATE)
    points = Columns(kernel(theta, X, Z), variance_limit(prior, system.s2, request.tolerance))
    blocks = max(solve_together(system, [targets, points], sizes, passes=100.0), default=0)
    (S, g, _), (V, G, values) = targets.result(), points.result()
    K_S = V.T @ (R + g) - G.T @ S  # [t, 1 + s]
    mean, unfinished = K_S[:, 0], len(targets.active) + len(points.active)
    return PointsAnswer(mean, prior + values, mean + H - K_S[:, 1:].T, S[:, 0].clone(), blocks, unfinished)
