"""The direction u of theta along which the whole covariance, noise included, is multiplied by a number.

    k(theta + t u) = exp(2 t) k(theta),   hence   sum_j u_j dk/dtheta_j = 2 k      Euler's theorem, k homogeneous in sds

Along u no predicted mean changes, and therefore no cross-validated squared error. Methods that lower such an error
keep this direction fixed and determine the scale from the residuals. A kernel has such a direction if it has an sd.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from ...kernels.theta.restrictions import is_free
from ...problem import Problem, take

ROWS = 8  # they give 36 pairs
CLOSE = 1e-3  # largest relative error of k(theta + u log(2) / 2) = 2 k(theta)


def scale_direction(problem: Problem) -> Tensor | None:
    """Determine u [p], with 1 as its last entry (the noise).

    It solves Euler's equation by least squares on the pairs of ROWS training rows, and verifies the result.

    Returns
    -------
    Tensor [p] or None
        None where the kernel has no such direction, as a kernel without an sd, or where an entry along it is
        restricted.
    """
    kernel: Any = problem.kernel
    theta, n = problem.theta, len(problem.train)
    X = take(problem.train.X, torch.linspace(0, n - 1, min(ROWS, n), dtype=torch.float64).long().to(theta.device))
    K, pairs = kernel(theta, X, X), [(i, j) for i in range(len(X)) for j in range(i + 1)]
    own = [kernel.theta_gradient(theta, X[i : i + 1], X[j : j + 1], K.new_ones(1, 1)) for i, j in pairs]
    gradients = torch.stack(own)  # [pairs, p]
    doubled = torch.stack([2.0 * K[i, j] for i, j in pairs])
    if not bool(gradients.isfinite().all() and K.isfinite().all()):
        return None
    u = theta.new_ones(len(theta))
    u[:-1] = (torch.linalg.pinv(gradients[:, :-1].double(), rtol=1e-6) @ doubled.double()).to(theta)
    error = (kernel(theta + 0.5 * math.log(2.0) * u, X, X) - 2.0 * K).abs().max()
    if not is_free(kernel, u.abs() > CLOSE):
        return None
    return u if float(error) <= CLOSE * float(K.abs().max()) else None
