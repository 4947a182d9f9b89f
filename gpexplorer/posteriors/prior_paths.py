"""Functions drawn from the prior: a weighted sum of random features of the kernel.

h(x) = sum_i g_i phi_i(x) / sqrt(D),   g ~ N(0, I),   E phi_i(x) phi_i(z) = k(x, z)       Rahimi and Recht (2007)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import PosteriorError
from ..problem import Kernel
from .weights import normal_columns

FEATURES = 4096  # random features of a prior path: its covariance errs by about 1.5 % of the prior variance
GROUP, MAX_GROUPS = 32, 8  # paths that share random features, at least; more groups make averages over paths better


def prior_paths(kernel: Kernel, theta: Tensor, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
    """Draw `size` functions from the prior of a kernel.

    Parameters
    ----------
    kernel : Kernel
        A kernel with `random_features`.
    theta : Tensor [p]
        Log-hyperparameters.
    size : int
        Number of functions.
    draw : torch.Generator
        Where the random numbers come from.

    Returns
    -------
    callable
        Takes inputs [t, d] and gives values [size, t]. 4096 cosines per row and group, and 8192 flops per value.

    Raises
    ------
    PosteriorError
        If the kernel has no random features.
    """
    groups = [_group(kernel, theta.detach(), len(part), draw) for part in torch.arange(size).chunk(_groups(size))]
    return lambda X: torch.cat([group(X) for group in groups])


def _groups(size: int) -> int:
    return min(MAX_GROUPS, math.ceil(size / GROUP))


def _group(kernel: Kernel, theta: Tensor, size: int, draw: torch.Generator) -> Callable[[Any], Tensor]:
    """Draw functions that share their random features."""
    make = getattr(kernel, "random_features", None)
    features = make(theta, FEATURES, draw) if make else None
    if features is None:
        raise PosteriorError(
            f"Kernel {kernel.key!r} has no random features, so no function can be drawn that is defined everywhere; "
            "draw joint values at given rows with sample(X, size, seed)."
        )
    G = normal_columns(theta, FEATURES, size, draw) / math.sqrt(FEATURES)  # [D, size]
    return lambda X: (features(X).to(G) @ G).T
