"""Langevin chains over weights and noise after the features were learned, step by step, and the posterior they give."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any, Protocol

import torch
from torch import Tensor

from ....errors import SettingError
from ....features.learned import LearnedFeatures
from ....linalg.randomness import generator
from ....posteriors.features import FeaturePosterior
from ....posteriors.weights import CovarianceRoot
from ....problem import Step
from ...chain_diagnostics import rhat
from ...langevin import Tuning, constant_step, dual_averaging, initial_tuning, randomness, run_chains
from ..exact_likelihood import exact_likelihood
from ..held_out_refit import MIN_ROWS, rows_set_aside
from ..model import Model
from ..state import Chains, Info, State
from .held_out_density import HeldOutDensity, mixture

CHAINS = 4
ITERATIONS = 50  # per step; the last point of each chain is its draw
WARM_UP = 10  # steps in which the step size adapts; their draws are discarded
ACCEPTANCE = 0.574  # to which the step size is tuned; optimal in many dimensions
WATCHED = 3  # leading weights whose draws enter R-hat, beside the noise


class Sampler(Protocol):
    """The settings of sampling."""

    seed: Any  # int
    samples: Any  # int, steps after the warm-up


def refuse_few_rows(title: str, held: int) -> None:
    """Raise SettingError if too few rows are set aside to choose weights and noise."""
    if held < MIN_ROWS:
        raise SettingError(
            f"{title} cannot sample weights with {held} rows set aside: raise validation (0.1 by default) until there "
            f"are {MIN_ROWS}, or set samples to 0."
        )


def sample_weights(method: Sampler, model: Model, state: State) -> Generator[Step, None, State]:
    """Sample weights and noise at the theta of this state.

    Parameters
    ----------
    model : Model
        The feature map and the rows.
    state : State
        A state of the phase "best" or "sample".

    Yields
    ------
    One step per 50 iterations of all chains.
    """
    rows = rows_set_aside(model, state.theta, exact_likelihood(model, state.theta))
    density = HeldOutDensity(rows, len(state.fold_thetas) * len(rows.y))
    while (state.chains or _initial(density, method.seed)).position < WARM_UP + method.samples:
        chains = state.chains or _initial(density, method.seed)
        chains, acceptance = _advance(density, chains, method.seed)
        state = state._replace(step=state.step + 1, phase="sample", chains=chains)
        noise = math.exp(0.5 * float(chains.z[:, -1].mean()))
        yield Step(state, Info("sample", noise=noise, acceptance=acceptance, rhat=largest_rhat(chains.draws)))
    return state


def _initial(density: HeldOutDensity, seed: int) -> Chains:
    """Chains at different points near the mode of the prior, so that R-hat means something."""
    normal = torch.randn(CHAINS, len(density.mu), generator=generator(seed, "weights"), dtype=torch.float64)
    z = density.mu + 0.5 * density.tau * normal.to(density.mu)
    return Chains(z, initial_tuning(z.shape[1]), z.new_zeros(0, *z.shape), 0)


def _advance(density: HeldOutDensity, chains: Chains, seed: int) -> tuple[Chains, float]:
    """Do one step of all chains: their next state, and the mean acceptance rate."""
    warming_up, q = chains.position < WARM_UP, chains.z.shape[1]
    tuning = chains.tuning if warming_up else chains.tuning._replace(log_eps=chains.tuning.average)

    def adapt(tuning: Tuning, acceptance: float) -> Tuning:
        return dual_averaging(tuning, q, acceptance, ACCEPTANCE) if warming_up else constant_step(tuning, acceptance)

    random = randomness(chains.z, generator(seed, "weights", chains.position), ITERATIONS)
    segment = run_chains(density, chains.z, density.scales(), random, adapt, tuning, ITERATIONS)
    draws = chains.draws if warming_up else torch.cat([chains.draws, segment.z[None]])
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
