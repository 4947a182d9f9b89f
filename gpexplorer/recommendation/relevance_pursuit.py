"""Rows that get a noise of their own, chosen greedily by the evidence of an exact GP: relevance pursuit.

With A = K + s2 R for the noise R = diag(r) so far, a = A^-1 y and q_i = [A^-1]_ii, the noise of row i that maximises
the evidence is larger by rho_i, which gains g_i:

    rho_i = (a_i / q_i)^2 - 1 / q_i,    g_i = (z_i^2 - 1 - log z_i^2) / 2,    z_i^2 = a_i^2 / q_i

z_i is the residual of row i, left out, in its own standard deviations. Rows whose gain exceeds log n plus a margin are
added, the largest gains first, and theta and the noise of all chosen rows are learned again, until no row gains enough.
A model of new rows has to know that some of them are like these: its density is a mixture with a wide part of the share
of such rows.

References
----------
Ament, S., Santorella, E., Eriksson, D., Letham, B., Balandat, M. and Bakshy, E. (2024). Robust Gaussian processes via
relevance pursuit. NeurIPS.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..data import Split
from ..errors import GPExplorerError
from ..kernels.row_scaled import with_row_noise
from ..linalg.cholesky import cholesky
from ..linalg.randomness import generator
from ..linalg.replayed_descent import Evaluated, descend
from ..objectives import evidence, noise_variance
from ..posteriors import InUnits, Widening, widened
from ..problem import Dataset, Problem, RowNoise
from ..runs.run import Run
from ..runs.spec import Spec
from .arguments import NO_ROWS

MOST_ROWS, LEARNING_ROWS = 3000, 400  # of the factor, and of the likelihood that learns theta
ROUNDS, EVALUATIONS = 6, 15  # of choosing rows, and of the likelihood in each
MARGIN = 3.0  # nats that a row has to gain beyond log n
LEAST_OF_LARGEST = 0.2  # share of the largest gain that others need to be added in the same round
MOST_SHARE = 0.1  # of the rows


class Pursued(NamedTuple):
    """What relevance pursuit has chosen.

    Attributes
    ----------
    rows : array [k]
        The rows with a noise of their own.
    ratio : Tensor [n]
        The noise variance of each row over that of the other rows.
    sd : float
        The standard deviation of the noise of the chosen rows, in units of the target.
    """

    rows: NDArray[np.int64]
    ratio: Tensor
    sd: float


@lru_cache(maxsize=8)
def _pursued(key: str, kernel: str, rows: Dataset) -> Pursued:
    """Choose rows until none gains enough."""
    n, chosen = len(rows), np.empty(0, dtype=np.int64)
    ratio = torch.ones(n, dtype=torch.float64)
    if n > MOST_ROWS:
        return Pursued(chosen, ratio, 0.0)
    spec = Spec("ml", kernel={"name": kernel, "start": "one"})
    plain = spec.open(data=Split(rows, rows.rows(NO_ROWS), "pursuit", key="pursuit")).problem
    scale = plain.train.scale
    assert scale is not None
    learning = torch.randperm(n, generator=generator(0, "pursuit"))[:LEARNING_ROWS]
    s2, is_settled = 0.0, False
    for _ in range(ROUNDS):
        problem = with_row_noise(replace(plain, train=replace(plain.train, noise=RowNoise(ratio))))
        problem = replace(problem, theta=_learned(problem, learning))
        plain, s2 = replace(plain, theta=problem.theta), noise_variance(problem.theta)
        # a = A^-1 y [n] and the diagonal of A^-1 [n], of rows that were multiplied to equal noise
        A = problem.kernel(problem.theta, problem.train.X, problem.train.X)
        A.diagonal().add_(s2)
        inverse = torch.cholesky_inverse(cholesky(A, "K + s2 R").L)
        a, q = (inverse @ problem.train.y).numpy(), inverse.diagonal().numpy().copy()
        z2 = np.maximum(np.square(a) / q, np.finfo(float).tiny)
        gain = np.where(z2 > 1.0, 0.5 * (z2 - 1.0 - np.log(z2)), 0.0)
        gain[chosen] = 0.0
        least = max(math.log(n) + MARGIN, LEAST_OF_LARGEST * gain.max())
        new = [row for row in np.argsort(-gain) if gain[row] > least]
        new = new[: max(int(MOST_SHARE * n) - len(chosen), 0)]
        chosen = np.sort(np.r_[chosen, np.array(new, dtype=np.int64)])
        # y and A of these rows were divided by r^1/2: r s2 is the squared residual without the variance of f.
        r = ratio[chosen].numpy()
        total = r * np.square(a[chosen] / q[chosen]) - (r / q[chosen] - r * s2)
        ratio[chosen] = torch.from_numpy(np.maximum(total / s2, 1.0))
        if not new and (is_settled or not len(chosen)):
            break
        is_settled = not new  # after a round with new rows, theta moves away from where they had led it
    sd = float((ratio[chosen].mean() * s2).sqrt()) * scale.y_sd if len(chosen) else 0.0
    return Pursued(chosen, ratio, sd)


def models_of(run: Run, pursues: bool, widening: Widening | None = None) -> list[tuple[InUnits, float]]:
    """The distributions of y whose mixture a run predicts with, each with its weight.

    Parameters
    ----------
    run : Run
        A run of an exact GP.
    pursues : bool
        Whether the noise of its rows was chosen here. Then the second distribution is that of rows like the chosen
        ones, whose noise variance is larger by the mean ratio of these.
    widening : Widening, optional
        By how much the variances have to be wider after the last row.
    """
    own, noise = run.posterior(of="y"), run.split.train.noise if run.split is not None else None
    chosen = noise.ratio[noise.ratio > 1.0] if pursues and noise is not None else torch.ones(0)
    if noise is None or not len(chosen):
        return [(widened(own, widening), 1.0)]
    share = _share(len(chosen), len(noise.ratio))
    like_chosen = own.asked_for("y", noise_variance=own.noise_variance * float(chosen.mean()))
    return [(widened(own, widening), 1.0 - share), (widened(like_chosen, widening), share)]


def _share(chosen: int, rows: int) -> float:
    """The share of new rows like the chosen ones: one more of each kind than were seen."""
    return (chosen + 1.0) / (rows + 2.0)


def pursuit(split: Split, kernel: str) -> Pursued:
    """The training rows that get a noise of their own; none if no exact GP can be fitted."""
    try:
        return _pursued(split.key, kernel, split.train)
    except GPExplorerError:
        return Pursued(np.empty(0, dtype=np.int64), torch.ones(len(split.train), dtype=torch.float64), 0.0)


def _learned(problem: Problem, rows: Tensor) -> Tensor:
    """Theta after some evaluations of the likelihood of these rows."""
    part = problem.train.rows(rows)

    def evaluate(point: NDArray[np.float64]) -> Evaluated | None:
        try:
            value, gradient = evidence(problem.kernel, torch.as_tensor(point).to(problem.theta), part)
        except GPExplorerError:
            return None
        return Evaluated(value, gradient.double().numpy(), None) if math.isfinite(value) else None

    point = problem.theta.double().numpy()
    for best in descend(evaluate, point, "L-BFGS-B", EVALUATIONS):
        point = best.point
    return torch.as_tensor(point).to(problem.theta)
