"""The direction of theta along which the whole covariance, noise included, is multiplied by one number.

k(theta + t u) = e^(2t) k(theta)    so that    sum_j u_j dk/dtheta_j = 2 k        Euler, k being homogeneous in its sds

Along u no predicted mean moves, hence no cross-validated squared error: it has to be fixed while one is lowered, and
the scale to be found from the residuals. Every kernel here has such a direction if any of its factors has an sd.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...problem import Problem, take

ROWS = 8  # 36 pairs
CLOSE = 1e-3  # relative, at twice the covariance


def direction(problem: Problem) -> Tensor | None:
    """u [p], its last entry (the noise) 1; None where the kernel has no sd. A few dozen kernel entries."""
    kernel: Any = problem.kernel
    theta, n = problem.theta, len(problem.train)
    X = take(problem.train.X, torch.linspace(0, n - 1, min(ROWS, n)).long().to(theta.device))
    K, pairs = kernel(theta, X, X), [(i, j) for i in range(len(X)) for j in range(i + 1)]
    slopes = torch.stack([kernel.theta_gradient(theta, X[i : i + 1], X[j : j + 1], K.new_ones(1, 1)) for i, j in pairs])
    twice = torch.stack([2.0 * K[i, j] for i, j in pairs])
    if not bool(slopes.isfinite().all() and K.isfinite().all()):
        return None
    u = theta.new_ones(len(theta))
    u[:-1] = (torch.linalg.pinv(slopes[:, :-1].double(), rtol=1e-6) @ twice.double()).to(theta)
    error = (kernel(theta + 0.5 * math.log(2.0) * u, X, X) - 2.0 * K).abs().max()
    return u if float(error) <= CLOSE * float(K.abs().max()) else None
