"""Predictions averaged over draws, from running means and covariances in O(r) numbers.

f(x) = psi(x)'b,  E b = E m,  Var b = E v + Cov m,  m and v the coefficients' mean and variance at a draw
Cov(m)_ij = Cov(m_i, zeta) Cov(m_j, zeta) / Var(zeta),  i != j,  zeta = log s2

Given the noise the coefficients are independent, so they vary together only as it does; that dependence is kept to
first order, which is what makes O(r) numbers do for the O(r^2) of a covariance matrix.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..orthogonal_basis import Rotated, coefficients


class Moments(NamedTuple):
    """Means and centred sums over `size` draws, of log w, m and zeta; the mean alone of v."""

    size: int
    weight: Tensor  # [r] mean of log w
    weight2: Tensor  # [r] sum of its squares about the mean
    m: Tensor  # [r]
    m2: Tensor  # [r]
    v: Tensor  # [r]
    noise: float  # mean of zeta
    noise2: float
    cross: Tensor  # [r] sum of products of m and zeta about their means


def moments(basis: Rotated, z: Float[Tensor, "k q"]) -> Moments:
    """Of these draws of (log w, log s2)."""
    m, v = coefficients(basis, z)
    w, zeta, m_mean = z[:, :-1], z[:, -1], m.mean(0)
    about, swing = m - m_mean, zeta - zeta.mean()
    return Moments(
        len(z), w.mean(0), (w - w.mean(0)).square().sum(0), m_mean, about.square().sum(0), v.mean(0),
        float(zeta.mean()), float(swing.square().sum()), swing @ about,
    )  # fmt: skip


def merged(one: Moments, other: Moments) -> Moments:
    """Of both together (Chan, Golub and LeVeque 1983)."""
    size = one.size + other.size
    share, weight = other.size / size, one.size * other.size / size
    dw, dm, dz = other.weight - one.weight, other.m - one.m, other.noise - one.noise
    return Moments(
        size,
        one.weight + share * dw,
        one.weight2 + other.weight2 + weight * dw.square(),
        one.m + share * dm,
        one.m2 + other.m2 + weight * dm.square(),
        one.v + share * (other.v - one.v),
        one.noise + share * dz,
        one.noise2 + other.noise2 + weight * dz * dz,
        one.cross + other.cross + weight * dz * dm,
    )


def cast(now: Moments, like: Tensor) -> Moments:
    """The same numbers in the precision and on the device of `like`."""
    parts: dict[str, Any] = {name: part.to(like) for name, part in now._asdict().items() if isinstance(part, Tensor)}
    return now._replace(**parts)


def spread(now: Moments) -> tuple[Tensor, Tensor]:
    """Variance of the coefficients as a diagonal [r] and a direction [r]: diag + direction direction'."""
    direction = now.cross / (now.size * now.noise2) ** 0.5 if now.noise2 > 0.0 else torch.zeros_like(now.m)
    return now.v + (now.m2 / now.size - direction.square()).clamp_min(0.0), direction
