"""Weights of eigenfunctions and noise chosen, not sampled: by their likelihood, or by their posterior.

z <- z + a D grad,  D the inverse Fisher information, a the best of ten halvings; all O(p)      eqs 16-18

By likelihood alone w_i = max(u_i^2 - s2, 0) / e_i, which is 0 for every function that noise explains: weights are
held in logarithms and floored, and fit too much. The log-normal prior of type I is what keeps them near the kernel's.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from .orthogonal_basis import Rotated, fisher
from .sampling.chains import Target
from .sampling.mala import Density
from .sampling.priors import LogNormal

FLOOR, FLAT = -60.0, LogNormal(0.0, 1e8)
ROUNDS, GAIN = 300, 1e-9


def chosen(basis: Rotated, weights: LogNormal, noise: LogNormal) -> Tensor:
    """(log w, log s2) [r + 1] at the nearest mode of the posterior; of the likelihood, where both priors are FLAT."""
    target = Target(basis, weights, noise)
    z = target.mode
    if weights is FLAT:
        z = torch.zeros_like(z)
        z[-1] = math.log((basis.rest + float(basis.u.square().sum())) / (2.0 * basis.n))
    return ascend(target.density(), z, lambda at: fisher(basis, at) + target.prior[1].square().reciprocal())


def ascend(density: Callable[[Tensor], Density], z: Tensor, curvature: Callable[[Tensor], Tensor]) -> Tensor:
    """Fisher scoring with a line search whose ten lengths are evaluated at once; the density never falls."""
    lengths = 2.0 ** -torch.arange(10.0).to(z)[:, None]
    for _ in range(ROUNDS):
        at = density(z[None])
        move = at.slope[0] / curvature(z).clamp_min(1e-3)
        tried = (z + lengths * move.clamp(-4.0, 4.0)).clamp_min_(FLOOR)
        values = density(tried).value
        k = int(values.nan_to_num(nan=-math.inf).argmax())
        gain = float(values[k] - at.value[0])
        if not gain > GAIN * max(abs(float(values[k])), 1.0):
            return z
        z = tried[k]
    return z
