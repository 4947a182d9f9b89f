"""Metropolis-adjusted Langevin algorithm (MALA): several chains at once, with a diagonal preconditioner.

    z' = z + eps^2 D grad / 2 + eps sqrt(D) xi,   D = 1 / (Fisher information + prior precision), diagonal
    h = eps sqrt(D) (grad + grad') / 2,   log ratio = log p(z') - log p(z) - (xi + h / 2)'h
                                                                       Girolami and Calderhead (2011), eqs 5 and 6
    log eps by dual averaging to an acceptance rate of 0.574           Hoffman and Gelman (2014), section 3.2

Symbols: C chains, q coordinates, eps step size, sd = sqrt(D), xi ~ N(0, I), grad and grad' the gradients at z and z'.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

GAMMA, T0, KAPPA = 0.05, 10.0, 0.75  # the constants of Hoffman and Gelman
OPTIMAL = 1.65  # eps = OPTIMAL q^(-1/6) is optimal for q independent coordinates (Roberts and Rosenthal 1998)


class Density(NamedTuple):
    """Log density of each chain, and its gradient."""

    value: Tensor  # [C]
    gradient: Tensor  # [C, q]


class Evaluate(Protocol):
    """A log density, evaluated for C chains at once."""

    def __call__(self, z: Tensor, gradient: Tensor | None = None) -> Density:
        """Evaluate at z [C, q]; `gradient` [C, q] is an array that may be overwritten and returned."""


class Tuning(NamedTuple):
    """The state of dual averaging of log eps."""

    log_eps: float
    average: float  # weighted average of log eps, which sampling uses
    shortfall: float  # mean of the target acceptance minus the acceptance
    updates: int


Adapt = Callable[[Tuning, float], Tuning]  # tuning and acceptance of one iteration -> tuning of the next


class Segment(NamedTuple):
    """A number of consecutive iterations of all chains."""

    z: Tensor  # [C, q] the last points
    draws: Tensor  # [k, C, q] the points of every `every`-th iteration
    values: Tensor  # [k, C] log density at the draws
    acceptance: float  # mean acceptance probability
    tuning: Tuning


def initial_tuning(q: int) -> Tuning:
    """Return the start of dual averaging for q coordinates."""
    log_eps = math.log(OPTIMAL) - math.log(q) / 6.0
    return Tuning(log_eps=log_eps, average=log_eps, shortfall=0.0, updates=0)


def dual_averaging(tuning: Tuning, q: int, acceptance: float, target: float) -> Tuning:
    """Update the step size by the mean acceptance of all chains (Hoffman and Gelman 2014, eq 6)."""
    updates = tuning.updates + 1
    rate = 1.0 / (updates + T0)
    shortfall = (1.0 - rate) * tuning.shortfall + rate * (target - acceptance)
    log_eps = initial_tuning(q).log_eps - math.sqrt(updates) / GAMMA * shortfall
    weight = updates**-KAPPA
    return Tuning(log_eps, weight * log_eps + (1.0 - weight) * tuning.average, shortfall, updates)


def constant_step(tuning: Tuning, acceptance: float) -> Tuning:
    """Return the same step size, which sampling needs so that the chains have the right distribution."""
    return tuning


def adaptation(tuning: Tuning, q: int, target: float, is_warm_up: bool) -> tuple[Tuning, Adapt]:
    """Return the tuning with which a step of q coordinates begins, and how it adapts: during the warm-up alone."""
    if is_warm_up:
        return tuning, lambda tuning, acceptance: dual_averaging(tuning, q, acceptance, target)
    return tuning._replace(log_eps=tuning.average), constant_step


def run_chains(
    density: Evaluate,
    z: Float[Tensor, "C q"],
    sd: Float[Tensor, " q"],
    random: Iterable[tuple[Tensor, Tensor]],
    adapt: Adapt,
    tuning: Tuning,
    every: int,
) -> Segment:
    """Do one iteration of all chains for each pair of random numbers.

    Parameters
    ----------
    z : tensor [C, q]
        The initial points.
    sd : tensor [q]
        Square root of the diagonal of D.
    random : iterable of (tensor [C, q], tensor [C])
        Normal numbers, which are overwritten, and uniform numbers; see `randomness`.
    adapt : callable
        Updates the tuning after each iteration.
    every : int
        Keep the points of every such iteration.

    Returns
    -------
    Segment

    Notes
    -----
    An iteration costs O(C q): nine passes over C q numbers, in arrays that are reused, beside those of the density.
    """
    current, spare = (z.clone(), density(z)), (torch.empty_like(z), torch.empty_like(z))
    accepted, k, h = 0.0, 0, torch.empty_like(z)
    draws, values, scale, half_scale2, log_eps = [], [], sd, sd, math.nan
    for k, (xi, uniform) in enumerate(random, 1):
        if tuning.log_eps != log_eps:
            log_eps = tuning.log_eps
            scale = sd * math.exp(log_eps)  # [q] eps sqrt(D)
            half_scale2 = 0.5 * scale.square()
        (z, here), (proposal, gradient) = current, spare
        torch.addcmul(z, scale, xi, out=proposal).addcmul_(half_scale2, here.gradient)  # eq 5
        there = density(proposal, gradient)
        torch.add(here.gradient, there.gradient, out=h).mul_(scale)  # twice the h of the module docstring
        ratio = (there.value - here.value).sub_(xi.add_(h, alpha=0.25).mul_(h).sum(1), alpha=0.5)  # eq 6
        ratio = ratio.nan_to_num_(nan=-math.inf).clamp_max_(0.0).exp_()  # [C] acceptance probability
        current, spare = _accept(uniform < ratio, current, (proposal, there))
        acceptance = float(ratio.mean())
        accepted += acceptance
        tuning = adapt(tuning, acceptance)
        if k % every == 0:
            draws.append(current[0].clone())
            values.append(current[1].value)
    return Segment(current[0], torch.stack(draws), torch.stack(values), accepted / max(k, 1), tuning)


Point = tuple[Tensor, Density]  # the points of all chains, and the density there


def _accept(accepted: Tensor, current: Point, proposed: Point) -> tuple[Point, tuple[Tensor, Tensor]]:
    """The new points of all chains, and the two arrays that are free for the next iteration.

    Where some chains reject, their points are written over the proposals: fewer rows than all, and whole ones.
    """
    (z, here), (proposal, there) = current, proposed
    rejected = accepted.logical_not().nonzero()[:, 0]
    if len(rejected) == len(accepted):
        return current, (proposal, there.gradient)
    if len(rejected):
        for kept, new in ((z, proposal), (here.gradient, there.gradient)):
            new.index_copy_(0, rejected, kept.index_select(0, rejected))
        there = Density(torch.where(accepted, there.value, here.value), there.gradient)
    return (proposal, there), (z, here.gradient)


def randomness(z: Tensor, source: torch.Generator, iterations: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield normal numbers [C, q] and uniform numbers [C] for each iteration, in arrays that are reused.

    The normal numbers are drawn in single precision, which is five times as fast and precise enough for proposals.
    """
    single, xi = torch.empty(z.shape, dtype=torch.float32), torch.empty_like(z)
    for _ in range(iterations):
        xi.copy_(single.normal_(generator=source))
        yield xi, torch.rand(len(z), generator=source, dtype=torch.float64).to(z)
