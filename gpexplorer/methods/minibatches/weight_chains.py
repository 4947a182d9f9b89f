"""Langevin chains over weights and noise after the features were learned, step by step, and the posterior they give.

The density that they sample, of the rows set aside as predicted from the others:

    f(x) = p(x)'b,   p = Q'phi(x),   b_j ~ N(0, w_j) a priori,   Phi'Phi = Q diag(lambda) Q',   c = Q'Phi'y
    b_j | y ~ N(a_j c_j, s2 a_j),   a_j = w_j / (s2 + w_j lambda_j)
    log p(z | y_v) = sum_i log N(y_i; p_i'(a c), V_i) + sum_j log N(z_j; mu_j, tau_j^2)
    V_i = s2 (1 + sum_j P_ij^2 a_j)

Symbols: z = (log w, log s2) [D + 1], C chains, v rows set aside, P [v, D]. The features were learned from the other
rows, so the marginal likelihood of those rows would choose too small a noise; the rows set aside do not. The weights
multiply the learned prior variance of each direction. A priori log w ~ N(0, 1), and log s2 is normal about the refitted
value with variance 2 / v', v' being the rows of the other parts from which it was refitted, but at most 1. Evans and
Nair (2018), section 6, sample from the marginal likelihood, with weaker priors of mode 1.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import SettingError
from ...features.learned import LearnedFeatures
from ...linalg.randomness import generator
from ...posteriors.features import FeaturePosterior
from ...posteriors.weights import CovarianceRoot
from ...problem import Step
from ..chain_diagnostics import rhat
from ..langevin import Density, adaptation, initial_tuning, randomness, run_chains
from .exact_likelihood import exact_likelihood
from .held_out_refit import MIN_ROWS, SetAside, rows_set_aside
from .model import Model
from .state import Chains, MinibatchInfo, MinibatchState

TAU = 1.0  # prior standard deviation of log w, and the largest one of log s2


class HeldOutDensity:
    """The log density of z, without its constant, for C chains at once.

    Parameters
    ----------
    rows : SetAside
        The rows set aside, and features that were learned without them.
    other_rows : int
        Rows of the other parts, which also chose the noise.

    Notes
    -----
    An evaluation costs 8 C v D flops.
    """

    def __init__(self, rows: SetAside, other_rows: int = 0) -> None:
        self.rows, self.P2 = rows, rows.P.square()  # [v, D]
        D = len(rows.lam)
        self.tau = rows.lam.new_full((D + 1,), TAU)
        self.tau[-1] = math.sqrt(2.0 / max(other_rows, 2))
        self.mu = torch.zeros_like(self.tau)  # [D + 1]
        self.mu[-1] = math.log(rows.s2)

    def __call__(self, z: Float[Tensor, "C q"], gradient: Tensor | None = None) -> Density:
        """Evaluate at z [C, D + 1]."""
        data, s2 = self.rows, z[:, -1:].exp()  # [C, 1]
        t = s2 + z[:, :-1].exp() * data.lam  # [C, D]
        a = z[:, :-1].exp() / t
        r = data.y - (a * data.c) @ data.P.T  # [C, v]
        V = s2 * (1.0 + a @ self.P2.T)
        offset = z - self.mu
        value = -0.5 * ((V.log() + r.square() / V).sum(1) + (offset / self.tau).square().sum(1))

        q = 0.5 * (r.square() / V - 1.0) / V  # [C, v] d / dV
        by_a = data.c * ((r / V) @ data.P) + s2 * (q @ self.P2)  # [C, D] d / da
        by_log_w = by_a * a * s2 / t
        gradient = torch.empty_like(z) if gradient is None else gradient
        torch.cat([by_log_w, ((q * V).sum(1) - by_log_w.sum(1))[:, None]], 1, out=gradient)
        return Density(value, gradient.sub_(offset / self.tau.square()))

    def scales(self) -> Float[Tensor, " q"]:
        """Return the scales of the proposals: the prior precision, and for the noise the Fisher information as well."""
        precision = self.tau.square().reciprocal()
        precision[-1] += 0.5 * len(self.rows.y)
        return precision.rsqrt()


class Mixture(NamedTuple):
    """Mean and covariance of the coefficients b, averaged over draws of z, and the mean noise variance."""

    mean: Tensor  # [D]
    root: Tensor  # [D, D + draws] a root of the covariance
    noise: float


def mixture(rows: SetAside, draws: Float[Tensor, "k q"]) -> Mixture:
    """Average the normal distributions of b over draws of z: E b = E m,   Cov b = diag(E v) + Cov m."""
    s2 = draws[:, -1:].exp()  # [k, 1]
    a = draws[:, :-1].exp() / (s2 + draws[:, :-1].exp() * rows.lam)  # [k, D]
    m = a * rows.c
    spread = (m - m.mean(0)) / math.sqrt(len(m))  # [k, D]
    return Mixture(m.mean(0), torch.cat([(s2 * a).mean(0).sqrt().diag(), spread.T], 1), float(s2.mean()))


CHAINS = 4
ITERATIONS = 50  # per step; the last point of each chain is its draw
WARM_UP = 10  # steps in which the step size adapts; their draws are discarded
ACCEPTANCE = 0.574  # to which the step size is tuned; optimal in many dimensions
WATCHED = 3  # leading weights whose draws enter R-hat, beside the noise


def refuse_few_rows(title: str, held: int) -> None:
    """Raise SettingError if too few rows are set aside to choose weights and noise."""
    if held < MIN_ROWS:
        raise SettingError(
            f"{title} cannot sample weights with {held:,} rows set aside: raise validation (0.1 by default) until "
            f"there are {MIN_ROWS}, or set samples to 0."
        )


def sample_weights(
    model: Model, state: MinibatchState, seed: int, samples: int
) -> Generator[Step, None, MinibatchState]:
    """Sample weights and noise at the theta of this state.

    Parameters
    ----------
    model : Model
        The feature map and the rows.
    state : MinibatchState
        A state of the phase "best" or "sample".
    samples : int
        Number of steps after the warm-up.

    Yields
    ------
    One step per 50 iterations of all chains.
    """
    rows = rows_set_aside(model, state.theta, exact_likelihood(model, state.theta))
    density = HeldOutDensity(rows, len(state.fold_thetas) * len(rows.y))
    chains = state.chains or _initial(density, seed)
    while chains.position < WARM_UP + samples:
        chains, acceptance = _advance(density, chains, seed)
        state = state._replace(step=state.step + 1, phase="sample", chains=chains)
        noise = math.exp(0.5 * float(chains.z[:, -1].mean()))
        yield Step(state, MinibatchInfo("sample", noise=noise, acceptance=acceptance, rhat=largest_rhat(chains.draws)))
    return state


def _initial(density: HeldOutDensity, seed: int) -> Chains:
    """Chains at different points near the mode of the prior, so that R-hat means something."""
    normal = torch.randn(CHAINS, len(density.mu), generator=generator(seed, "weights"), dtype=torch.float64)
    z = density.mu + 0.5 * density.tau * normal.to(density.mu)
    return Chains(z, initial_tuning(z.shape[1]), z.new_zeros(0, *z.shape), 0)


def _advance(density: HeldOutDensity, chains: Chains, seed: int) -> tuple[Chains, float]:
    """Do one step of all chains: their next state, and the mean acceptance rate."""
    is_warm_up = chains.position < WARM_UP
    tuning, adapt = adaptation(chains.tuning, chains.z.shape[1], ACCEPTANCE, is_warm_up)
    random = randomness(chains.z, generator(seed, "weights", chains.position), ITERATIONS)
    segment = run_chains(density, chains.z, density.scales(), random, adapt, tuning, ITERATIONS)
    draws = chains.draws if is_warm_up else torch.cat([chains.draws, segment.z[None]])
    return Chains(segment.z, segment.tuning, draws, chains.position + 1), segment.acceptance


def largest_rhat(draws: Tensor) -> float:
    """Return the largest R-hat of the noise and the leading weights; nan if there are fewer than four draws."""
    if len(draws) < 4:
        return math.nan
    watched = torch.cat([draws[..., -1:], draws[..., -1 - WATCHED : -1]], 2).double().cpu().numpy()  # [k, C, .]
    return max(rhat(watched[:, :, j].T) for j in range(watched.shape[2]))


def sampled_posterior(model: Model, theta: Tensor, chains: Chains) -> FeaturePosterior:
    """Return the posterior of f averaged over the draws: one pass over the rows, then D (D + draws) flops per row."""
    rows = rows_set_aside(model, theta, exact_likelihood(model, theta))
    b = mixture(rows, chains.draws.flatten(0, 1))
    features = LearnedFeatures(model.map, model.waves, theta)
    return FeaturePosterior(features, CovarianceRoot(b.mean.to(theta), b.root.to(theta)), b.noise, V=rows.Q.to(theta))


def mean_noise(chains: Chains) -> float:
    """Return the mean noise variance over the draws."""
    return float(chains.draws[..., -1].exp().mean())
