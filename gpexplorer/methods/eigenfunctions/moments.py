"""Predictions averaged over draws of weights and noise, from running means and covariances in O(r) numbers.

    f(x) = psi(x)'b,   E b = E m,   Var b = E v + Cov m
    Cov(m)_ij = Cov(m_i, zeta) Cov(m_j, zeta) / Var(zeta) for i != j,   zeta = log s2

m and v [r] are the posterior mean and variance of the coefficients b at one draw. Given the noise, the coefficients
are independent, so that they covary only through the noise. This dependence is kept to first order in zeta, so that
O(r) numbers replace the O(r^2) numbers of a covariance matrix.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .orthogonal_basis import OrthogonalBasis, coefficient_posterior


class Moments(NamedTuple):
    """Means and centred sums over `size` draws of log w, m and zeta, and the mean of v."""

    size: int
    weight: Tensor  # [r] mean of log w
    weight2: Tensor  # [r] sum of squares of log w about its mean
    m: Tensor  # [r] mean of m
    m2: Tensor  # [r] sum of squares of m about its mean
    v: Tensor  # [r] mean of v
    noise: float  # mean of zeta
    noise2: float  # sum of squares of zeta about its mean
    cross: Tensor  # [r] sum of products of m and zeta about their means


def moments_of(basis: OrthogonalBasis, z: Float[Tensor, "k q"]) -> Moments:
    """Return the moments of k draws of z = (log w, log s2)."""
    m, v = coefficient_posterior(basis, z)  # [k, r] each
    log_w, zeta, m_mean = z[:, :-1], z[:, -1], m.mean(0)
    m_centred, zeta_centred = m - m_mean, zeta - zeta.mean()
    return Moments(
        size=len(z),
        weight=log_w.mean(0),
        weight2=(log_w - log_w.mean(0)).square().sum(0),
        m=m_mean,
        m2=m_centred.square().sum(0),
        v=v.mean(0),
        noise=float(zeta.mean()),
        noise2=float(zeta_centred.square().sum()),
        cross=zeta_centred @ m_centred,
    )


def merge(first: Moments, second: Moments) -> Moments:
    """Return the moments of both sets of draws together (Chan, Golub and LeVeque 1983)."""
    size = first.size + second.size
    share, weight = second.size / size, first.size * second.size / size
    dw, dm, dz = second.weight - first.weight, second.m - first.m, second.noise - first.noise
    return Moments(
        size=size,
        weight=first.weight + share * dw,
        weight2=first.weight2 + second.weight2 + weight * dw.square(),
        m=first.m + share * dm,
        m2=first.m2 + second.m2 + weight * dm.square(),
        v=first.v + share * (second.v - first.v),
        noise=first.noise + share * dz,
        noise2=first.noise2 + second.noise2 + weight * dz * dz,
        cross=first.cross + second.cross + weight * dz * dm,
    )


def cast(moments: Moments, like: Tensor) -> Moments:
    """Return the same moments in the precision and on the device of `like`."""
    parts: dict[str, Any] = {name: x.to(like) for name, x in moments._asdict().items() if isinstance(x, Tensor)}
    return moments._replace(**parts)


def mean_noise(moments: Moments) -> float:
    """Return the mean of the noise variance s2 over the draws, whose logarithm is taken to be normal."""
    return math.exp(moments.noise + 0.5 * moments.noise2 / moments.size)


def coefficient_covariance(moments: Moments) -> tuple[Tensor, Tensor]:
    """Return the covariance of b as a diagonal [r] and a direction [r]: diag(diagonal) + direction direction'."""
    direction = torch.zeros_like(moments.m)
    if moments.noise2 > 0.0:
        direction = moments.cross / (moments.size * moments.noise2) ** 0.5
    return moments.v + (moments.m2 / moments.size - direction.square()).clamp_min(0.0), direction
