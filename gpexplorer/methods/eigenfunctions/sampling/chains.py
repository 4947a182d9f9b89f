"""What type I carries from stretch to stretch, how a stretch is walked, and what it reports.

log p(z | y) = LML(z) + sum_j log N(z_j; mu_j, tau_j^2),  z = (log w, log s2)
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Problem
from ..orthogonal_basis import Rotated, fisher, halves, likelihood
from .diagnostics import bulk_ess, rhat
from .mala import Density, Evaluate, Tuning, randomness, tuned, tuning, walk
from .moments import Moments, cast, merged, moments
from .priors import LogNormal

WATCHED, HELD = 3, 256  # leading weights watched beside likelihood and noise; draws of them held, a chain


class State(NamedTuple):
    """All that the trajectory depends on."""

    step: int
    phase: str  # "subset" | "warm-up" | "sample": what the step was part of
    position: int  # evaluations on the subset, or stretches
    theta: Tensor  # [P]
    z: Tensor  # [C, r + 1] log w and log s2 of each chain
    sd: Tensor  # [r + 1] scaling of the moves
    tuning: Tuning
    moments: Moments  # of the draws kept; of this stretch while warming up
    watched: Tensor  # [C, N, 2 + WATCHED] log likelihood, log s2 and leading log weights of draws kept
    stride: int  # draws from one watched to the next
    value: float  # mean log likelihood at z


class Info(NamedTuple):
    """What a step reports. Channels are nan where they do not apply."""

    phase: str
    objective: float = math.nan
    acceptance: float = math.nan
    step_size: float = math.nan
    rhat: float = math.nan
    ess: float = math.nan
    noise: float = math.nan
    evidence: float = math.nan


class Target(NamedTuple):
    """The posterior density of weights and noise."""

    basis: Rotated
    weights: LogNormal
    noise: LogNormal

    @property
    def prior(self) -> tuple[Tensor, Tensor]:
        """Means and standard deviations [r + 1] of z."""
        like, r = self.basis.e, len(self.basis.e)
        mu, tau = like.new_full((r + 1,), self.weights.mu), like.new_full((r + 1,), self.weights.tau)
        mu[-1], tau[-1] = self.noise
        return mu, tau

    def density(self) -> Evaluate:
        """log p(z | y), without its constant, and its slope; one call at a time."""
        given, (mu, tau) = halves(self.basis), self.prior
        precision, off = tau.square().reciprocal(), mu[:0]

        def density(z: Tensor, slope: Tensor | None = None) -> Density:
            nonlocal off
            if off.shape != z.shape:
                off = torch.empty_like(z)
            data = likelihood(given, z, slope)
            torch.sub(z, mu, out=off)
            data.slope.addcmul_(off, precision, value=-1.0)
            return Density(data.value.addmv_(off.square_(), precision, alpha=-0.5), data.slope)

        return density

    @property
    def mode(self) -> Tensor:
        """Where the prior of w and s2 is highest: where sampling begins."""
        mu, tau = self.prior
        return mu - tau.square()


def opened(problem: Problem) -> State:
    """The start: nothing drawn yet."""
    none = problem.theta.new_zeros(0)
    empty = Moments(0, none, none, none, none, none, 0.0, 0.0, none)
    wide, held = none.reshape(0, 0), none.reshape(0, 0, 0)
    return State(0, "subset", 0, problem.theta.clone(), wide, none, tuning(1), empty, held, 1, math.nan)


def begun(method: Any, target: Target, state: State) -> State:
    """Chains at the prior's mode, each a fair way off; scaled by the Fisher information there."""
    mode, (_, tau) = target.mode, target.prior
    off = torch.randn(method.chains, len(mode), generator=generator(method.seed, "begin"), dtype=torch.float64)
    z = mode + 0.5 * off.to(mode) * tau.clamp_max(1.0)
    watched = state.theta.new_zeros(method.chains, 0, 2 + min(WATCHED, len(mode) - 1))
    return state._replace(z=z, sd=_scaling(target, mode), tuning=tuning(len(mode)), watched=watched)


def _scaling(target: Target, z: Tensor) -> Tensor:
    return (fisher(target.basis, z) + target.prior[1].square().reciprocal()).rsqrt()


def stretch(method: Any, target: Target, state: State, warming: bool) -> tuple[State, float]:
    """One step: so many iterations of every chain; the mean acceptance beside it."""
    like, basis = state.theta, target.basis
    if not state.position:
        state = begun(method, target, state)
    z, sd = state.z.to(basis.e), state.sd.to(basis.e)
    if warming and state.position:
        sd = _scaling(target, z.mean(0))
    course = _adapting(method, z.shape[1]) if warming else fixed
    eps = state.tuning if warming else state.tuning._replace(log_eps=state.tuning.average)
    source = generator(method.seed, "mala", state.position)
    every = min(method.thin, method.per_step)
    found = walk(target.density(), z, sd, randomness(z, source, method.per_step), course, eps, every)
    draws = found.draws.flatten(0, 1)  # [k C, r + 1]
    seen, before = moments(basis, draws), state.position - (0 if warming else method.warm_up)
    if before and not warming:
        seen = merged(cast(state.moments, basis.e), seen)
    values = likelihood(halves(basis), draws).value
    watched, stride = _watch(state, found.draws, values.view(found.draws.shape[:2]), before * len(found.draws))
    return state._replace(
        step=state.step + 1,
        phase="warm-up" if warming else "sample",
        position=state.position + 1,
        z=found.z.to(like),
        sd=sd.to(like),
        tuning=found.tuning,
        moments=cast(seen, like),
        watched=watched,
        stride=stride,
        value=float(values[-len(z) :].mean()),
    ), found.acceptance


def _adapting(method: Any, q: int) -> Any:
    return lambda now, rate: tuned(now, q, rate, method.acceptance)


def fixed(now: Tuning, rate: float) -> Tuning:
    """The step size does not move: what sampling needs to be exact."""
    return now


def _watch(state: State, draws: Tensor, values: Tensor, before: int) -> tuple[Tensor, int]:
    """The watched numbers with these draws, `before` of their kind seen; every other is let go when too many."""
    count = min(WATCHED, draws.shape[2] - 1)
    these = torch.cat([values[..., None], draws[..., -1:], draws[..., :count]], 2).transpose(0, 1).to(state.theta)
    stride = state.stride if before else 1
    watched = torch.cat([state.watched if before else state.watched[:, :0], these[:, -before % stride :: stride]], 1)
    while watched.shape[1] > HELD:
        watched, stride = watched[:, ::2].clone(), 2 * stride
    return watched, stride


def report(target: Target, state: State, acceptance: float) -> Info:
    """Channels of a stretch; R-hat and effective sample size over all that is watched."""
    watched = state.watched.double().cpu().numpy()
    each = [watched[:, :, j] for j in range(watched.shape[2])]
    return Info(
        state.phase,
        -state.value,
        acceptance,
        math.exp(state.tuning.log_eps),
        max(map(rhat, each)),
        min(map(bulk_ess, each)),
        math.exp(0.5 * state.moments.noise),
    )
