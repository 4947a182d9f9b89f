"""The posterior density of weights and noise, log-normal priors included, that the chains of type I sample.

    log p(z | y) = LML(z) + sum_j log N(z_j; mu_j, tau_j^2),   z = (log w, log s2) [r + 1]

The priors are log-normal and given by mode and variance, as in section 6 of Evans and Nair (2018):

    x ~ LN(mu, tau^2):  mode = exp(mu - tau^2),  var = (g - 1) g exp(2 mu),  g = exp(tau^2)
    var / mode^2 = g^3 (g - 1),  mu = log mode + tau^2

A chain on log x sees the normal density N(mu, tau^2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ....errors import SettingError
from ....kernels.theta.restrictions import NoiseLimits
from ...langevin import Density, Evaluate
from ..orthogonal_basis import OrthogonalBasis, likelihood, likelihood_terms


class LogNormal(NamedTuple):
    """A log-normal distribution."""

    mu: float  # mean of log x
    tau: float  # standard deviation of log x


def log_normal(mode: float, variance: float) -> LogNormal:
    """Return the log-normal distribution with this mode and variance; both must be positive."""
    ratio = variance / mode**2
    from scipy.optimize import brentq

    tau2 = brentq(lambda t: 3.0 * t + math.log(math.expm1(t)) - math.log(ratio), 1e-300, 1.0 + math.log1p(ratio))
    return LogNormal(math.log(mode) + tau2, math.sqrt(tau2))


def given_noise_prior(limits: NoiseLimits, key: str) -> LogNormal | None:
    """Return the prior of s2 from that of the noise sd that a person gave; None if there is none.

    Raises
    ------
    SettingError
        If it is not log-normal, as the densities on log s2 of this family are.
    """
    if limits.prior is None:
        return None
    parameter, prior = limits.prior
    if prior.name != "lognormal":
        raise SettingError(f"Method {key!r} takes a log-normal prior of the noise, and not {prior}.")
    mean, sd = prior.numbers
    return LogNormal(2.0 * (mean - math.log(parameter.factor)), 2.0 * sd)


class Target(NamedTuple):
    """The posterior density of weights and noise."""

    basis: OrthogonalBasis
    weights: LogNormal  # prior of every weight
    noise: LogNormal  # prior of the noise variance
    limits: tuple[float, float] = (-math.inf, math.inf)  # of log s2; equal where the noise is fixed

    @property
    def prior(self) -> tuple[Tensor, Tensor]:
        """Means and standard deviations [r + 1] of z under the prior."""
        like, r = self.basis.e, len(self.basis.e)
        mu, tau = like.new_full((r + 1,), self.weights.mu), like.new_full((r + 1,), self.weights.tau)
        mu[-1], tau[-1] = self.noise
        return mu, tau

    @property
    def mode(self) -> Tensor:
        """The z [r + 1] at which the prior of (w, s2) is largest; sampling begins there (section 6)."""
        mu, tau = self.prior
        mode = mu - tau.square()
        mode[-1] = mode[-1].clamp(*self.limits)
        return mode

    def density(self) -> Evaluate:
        """Return a function that evaluates log p(z | y), without its constant, and its gradient.

        The function reuses its arrays, so that only one thread may call it at a time.
        """
        terms, (mu, tau) = likelihood_terms(self.basis), self.prior
        precision, offset = tau.square().reciprocal(), mu[:0]

        def density(z: Tensor, gradient: Tensor | None = None) -> Density:
            nonlocal offset
            if offset.shape != z.shape:
                offset = torch.empty_like(z)
            data = likelihood(terms, z, gradient)
            torch.sub(z, mu, out=offset)
            data.gradient.addcmul_(offset, precision, value=-1.0)
            value = data.value.addmv_(offset.square_(), precision, alpha=-0.5)
            if self.limits[0] > -math.inf or self.limits[1] < math.inf:
                value.masked_fill_((z[..., -1] < self.limits[0]) | (z[..., -1] > self.limits[1]), -math.inf)
            return Density(value, data.gradient)

        return density
