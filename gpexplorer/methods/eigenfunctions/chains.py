"""The chains of type I: what they carry from step to step, how one step advances them, and what it reports.

They sample the posterior density of weights and noise, with log-normal priors:

    log p(z | y) = LML(z) + sum_j log N(z_j; mu_j, tau_j^2),   z = (log w, log s2) [r + 1]

The priors are given by mode and variance, as in section 6 of Evans and Nair (2018):

    x ~ LN(mu, tau^2):  mode = exp(mu - tau^2),  var = (g - 1) g exp(2 mu),  g = exp(tau^2)
    var / mode^2 = g^3 (g - 1),  mu = log mode + tau^2

A chain on log x sees the normal density N(mu, tau^2).

Predictions averaged over draws of weights and noise, from running means and covariances in O(r) numbers.

    f(x) = psi(x)'b,   E b = E m,   Var b = E v + Cov m
    Cov(m)_ij = Cov(m_i, zeta) Cov(m_j, zeta) / Var(zeta) for i != j,   zeta = log s2

m and v [r] are the posterior mean and variance of the coefficients b at one draw. Given the noise, the coefficients
are independent, so that they covary only through the noise. This dependence is kept to first order in zeta, so that
O(r) numbers replace the O(r^2) numbers of a covariance matrix.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, NamedTuple, Protocol

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import SettingError
from ...kernels.theta.restrictions import NoiseLimits
from ...linalg.randomness import generator
from ...problem import Problem, channel
from ..chain_diagnostics import bulk_ess, rhat
from ..langevin import Density, Evaluate, Tuning, adaptation, initial_tuning, randomness, run_chains
from .orthogonal_basis import OrthogonalBasis, coefficient_posterior, fisher_information, likelihood, likelihood_terms


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


WATCHED = 3  # leading weights whose draws are kept for R-hat, beside the likelihood and the noise
MAX_WATCHED = 256  # draws kept per chain for R-hat; every second is dropped when there are more


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


class Sampler(Protocol):
    """The settings that sampling reads from a method."""

    seed: Any  # int
    chains: Any  # int
    per_step: Any  # int, iterations per step
    warm_up: Any  # int, steps
    thin: Any  # int, iterations per draw
    acceptance: Any  # float, target of the acceptance rate


class ChainState(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "subset" | "trial" | "search" | "warm-up" | "sample": the phase to which the step belongs
    position: int  # evaluations of this initial value on the subset, or steps of the chains
    theta: Tensor  # [P]
    z: Tensor  # [C, r + 1] log w and log s2 of each chain
    sd: Tensor  # [r + 1] scales of the proposals
    tuning: Tuning
    moments: Moments  # of all draws of the phase "sample"; during warm-up, of the last step
    watched: Tensor  # [C, N, 2 + WATCHED] log likelihood, log s2 and leading log weights of some draws
    stride: int  # draws from one watched draw to the next
    value: float  # mean log likelihood at z
    # while theta is learned, as in the state of learning.py
    round: int = 0
    theta_begin: Tensor | None = None  # [P]
    objective: float = math.inf
    chosen: Tensor | None = None  # [P] the theta at which the functions were chosen; None is `theta`
    spacing: str = ""  # of their grid; empty is as the method is set
    functions: Tensor | None = None  # [p, d] the functions, where they were chosen by evidence
    exact: float = math.nan  # best NLML of the exact GP on the subset
    is_cut: bool = False


class ChainInfo(NamedTuple):
    """What a step reports. A channel is nan if it does not apply."""

    phase: str
    objective: Annotated[float, channel("NLML, subset then mean of chains", "nat")] = math.nan
    acceptance: Annotated[float, channel("acceptance")] = math.nan
    step_size: Annotated[float, channel("step size", log=True)] = math.nan
    rhat: Annotated[float, channel("largest R-hat")] = math.nan
    ess: Annotated[float, channel("smallest effective sample size")] = math.nan
    noise: Annotated[float, channel("noise sd")] = math.nan
    evidence: Annotated[float, channel("NLML on the subset", "nat")] = math.nan
    kept: Annotated[float, channel("share of the prior variance kept")] = math.nan


def initial_state(problem: Problem) -> ChainState:
    """Return the state before any work."""
    empty = problem.theta.new_zeros(0)
    return ChainState(
        step=0,
        phase="subset",
        position=0,
        theta=problem.theta.clone(),
        z=empty.reshape(0, 0),
        sd=empty,
        tuning=initial_tuning(1),
        moments=Moments(
            size=0, weight=empty, weight2=empty, m=empty, m2=empty, v=empty, noise=0.0, noise2=0.0, cross=empty
        ),
        watched=empty.reshape(0, 0, 0),
        stride=1,
        value=math.nan,
        theta_begin=problem.theta.clone(),
        chosen=problem.theta.clone(),
    )


def advance(sampler: Sampler, target: Target, state: ChainState, warming_up: bool) -> tuple[ChainState, float]:
    """Do one step: `per_step` iterations of every chain.

    Parameters
    ----------
    sampler : Sampler
        The method, which holds the settings.
    state : ChainState
        A state of the phase "warm-up" or "sample".
    warming_up : bool
        Whether the step size and the scales of the proposals adapt.

    Returns
    -------
    ChainState
        The next state.
    float
        The mean acceptance rate of the step.
    """
    like, basis = state.theta, target.basis
    if not state.position:
        state = _begin(sampler, target, state)
    z, sd = state.z.to(basis.e), state.sd.to(basis.e)
    if warming_up and state.position:
        sd = _scales(target, z.mean(0))

    tuning, adapt = adaptation(state.tuning, z.shape[1], sampler.acceptance, warming_up)
    source = generator(sampler.seed, "mala", state.position)
    every = min(sampler.thin, sampler.per_step)
    segment = run_chains(target.density(), z, sd, randomness(z, source, sampler.per_step), adapt, tuning, every)
    draws = segment.draws.flatten(0, 1)  # [k C, r + 1]
    moments, steps_before = moments_of(basis, draws), state.position - (0 if warming_up else sampler.warm_up)
    if steps_before and not warming_up:
        moments = merge(cast(state.moments, basis.e), moments)
    values = likelihood(likelihood_terms(basis), draws).value  # [k C]
    draws_before = steps_before * len(segment.draws)
    watched, stride = _watch(state, segment.draws, values.view(segment.draws.shape[:2]), draws_before)
    return state._replace(
        step=state.step + 1,
        phase="warm-up" if warming_up else "sample",
        position=state.position + 1,
        z=segment.z.to(like),
        sd=sd.to(like),
        tuning=segment.tuning,
        moments=cast(moments, like),
        watched=watched,
        stride=stride,
        value=float(values[-len(z) :].mean()),
    ), segment.acceptance


def _begin(sampler: Sampler, target: Target, state: ChainState) -> ChainState:
    """Chains near the mode of the prior, at different points so that R-hat means something."""
    mode, (_, tau) = target.mode, target.prior
    normal = torch.randn(sampler.chains, len(mode), generator=generator(sampler.seed, "begin"), dtype=torch.float64)
    z = mode + 0.5 * normal.to(mode) * tau.clamp_max(1.0)  # [C, r + 1]
    z[:, -1].clamp_(*target.limits)
    watched = state.theta.new_zeros(sampler.chains, 0, 2 + min(WATCHED, len(mode) - 1))
    return state._replace(z=z, sd=_scales(target, mode), tuning=initial_tuning(len(mode)), watched=watched)


def _scales(target: Target, z: Tensor) -> Tensor:
    """sqrt(D) [r + 1]: the Fisher information and the prior precision at z."""
    scales = (fisher_information(target.basis, z) + target.prior[1].square().reciprocal()).rsqrt()
    if target.limits[0] == target.limits[1]:
        scales[-1] = 0.0  # the noise is fixed
    return scales


def _watch(state: ChainState, draws: Tensor, values: Tensor, draws_before: int) -> tuple[Tensor, int]:
    """The watched numbers with those of the new draws appended; every second is dropped if there are too many."""
    count = min(WATCHED, draws.shape[2] - 1)
    numbers = torch.cat([values[..., None], draws[..., -1:], draws[..., :count]], 2).transpose(0, 1).to(state.theta)
    stride = state.stride if draws_before else 1
    previous = state.watched if draws_before else state.watched[:, :0]
    watched = torch.cat([previous, numbers[:, -draws_before % stride :: stride]], 1)
    while watched.shape[1] > MAX_WATCHED:
        watched, stride = watched[:, ::2].clone(), 2 * stride
    return watched, stride


def report(state: ChainState, acceptance: float, kept: float) -> ChainInfo:
    """Return the channels of a step; R-hat and the effective sample size are the worst of all watched numbers.

    `kept` is the share of the prior variance that the basis functions represent.
    """
    watched = state.watched.double().cpu().numpy()
    series = [watched[:, :, j] for j in range(watched.shape[2]) if np.ptp(watched[:, :, j])]  # without fixed noise
    return ChainInfo(
        phase=state.phase,
        objective=-state.value,
        acceptance=acceptance,
        step_size=math.exp(state.tuning.log_eps),
        rhat=max(map(rhat, series), default=math.nan),
        ess=min(map(bulk_ess, series), default=math.nan),
        noise=math.exp(0.5 * state.moments.noise),
        kept=kept,
    )
