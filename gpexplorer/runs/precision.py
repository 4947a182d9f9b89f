"""Whether float32 can hold a problem: the rounding of covariances beside the noise variance.

The objectives of every method contain K + s2 I or K_hat + s2 I. If rounding changes an entry of K by delta, objectives
and bands change as if the noise variance had changed by a multiple of delta. So a method can be trusted in float32
only where delta is small beside s2. Two things cause delta, and both are measured on a few hundred rows:

    inputs        X is stored in float32; a lengthscale that is far below the range magnifies the last digit of X
    covariances   k(x, z) is computed in float32, with a relative error of 1e-7 and more
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..linalg.randomness import generator, random_rows
from ..mixed_rows import MixedRows
from ..objectives import noise_variance
from ..problem import Problem
from .monotone import Rise, rise_sentence
from .trace import Record

ROWS = 256  # above this many rows, draw a random sample of this size
SHARE = 1e-2  # of the noise variance: a larger error of covariances is reported


def rounding_notes(rises: Sequence[Rise], problem: Problem, last: Sequence[Record]) -> str:
    """Return what the end of a run says about rounding: rises of monotone channels, and float32 that is too coarse."""
    return f"{rise_sentence(rises)} {precision_sentence(problem, last)}".strip()


def precision_sentence(problem: Problem, last: Sequence[Record]) -> str:
    """Return a sentence with a way out if float32 cannot hold the problem, or an empty text.

    Parameters
    ----------
    problem : Problem
        The scaled training rows, whose precision is that of the run.
    last : sequence of Record
        The last record, or none. A state without hyperparameters of the kernel gives an empty text.

    Notes
    -----
    At most three times 256^2 kernel entries, two of them computed in float64. A run in float64 costs nothing.
    """
    train, theta = problem.train, getattr(last[-1].step.state, "theta", None) if last else None
    if train.y.dtype != torch.float32 or not isinstance(theta, Tensor) or theta.shape != problem.theta.shape:
        return ""
    rows = train.rows(random_rows(len(train), ROWS, generator(0, "precision")).to(train.y.device))
    error, s2 = covariance_rounding(problem.kernel, theta, rows.X), noise_variance(theta)
    if error <= SHARE * s2:
        return ""
    return (
        f"float32 cannot hold this problem: rounding changes covariances by up to {error:.1e}, beside a noise variance "
        f"of {s2:.1e}, so that objectives and bands are inaccurate. Use dtype float64."
    )


def covariance_rounding(kernel: Any, theta: Tensor, X: Any) -> float:
    """Return the largest error of the covariances [n, n] of float32 rows X, for the computation and for the inputs."""
    computed = kernel(theta, X, X).double()
    if not isinstance(X, Tensor):
        X = X.to(theta.device, torch.float64) if isinstance(X, MixedRows) else X
        return float((computed - kernel(theta.double(), X, X)).abs().max())
    exact = kernel(theta.double(), X.double(), X.double())
    error = (computed - exact).abs().max()
    if X.is_floating_point():
        signs = torch.randint(2, X.shape, generator=generator(0, "last digits")).to(X.device).double() * 2.0 - 1.0
        moved = X.double() * (1.0 + 0.5 * torch.finfo(torch.float32).eps * signs)
        error = torch.maximum(error, (kernel(theta.double(), moved, moved) - exact).abs().max())
    return float(error)
