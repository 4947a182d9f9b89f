"""Metropolis-adjusted Langevin chains, many at once, in coordinates scaled by the Fisher information.

z' = z + eps^2 D grad / 2 + eps sqrt(D) xi,   D = 1 / (Fisher + prior precision), diagonal    Girolami and Calderhead
h = eps sqrt(D) (grad + grad') / 2,  log ratio = log p(z') - log p(z) - (xi + h / 2)'h       (2011), eqs 5 and 6
log eps by dual averaging to an acceptance of 0.574                        Hoffman and Gelman (2014), section 3.2
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple, Protocol

import torch
from jaxtyping import Float
from torch import Tensor

GAMMA, DELAY, KAPPA = 0.05, 10.0, 0.75  # Hoffman and Gelman's constants
BEST = 1.65  # eps is BEST q^(-1/6) for q independent coordinates (Roberts and Rosenthal 1998)


class Density(NamedTuple):
    """Log density of each chain, and its slope."""

    value: Tensor  # [C]
    slope: Tensor  # [C, q]


class Evaluate(Protocol):
    """The density of C chains."""

    def __call__(self, z: Tensor, slope: Tensor | None = None) -> Density:
        """At z [C, q]; `slope` [C, q] is an array that may be written over and handed back."""


At = tuple[Tensor, Density]  # where chains are, and what is known there


class Tuning(NamedTuple):
    """Dual averaging of log eps."""

    log_eps: float
    average: float  # of log eps, weighted to the last: what sampling uses
    shortfall: float  # mean of target - acceptance
    updates: int


class Walk(NamedTuple):
    """A stretch of the chains."""

    z: Tensor  # [C, q] where they end
    draws: Tensor  # [k, C, q] every so many iterations
    values: Tensor  # [k, C] log density at the draws
    acceptance: float
    tuning: Tuning


def tuning(q: int) -> Tuning:
    """Where dual averaging begins for q coordinates."""
    log_eps = math.log(BEST) - math.log(q) / 6.0
    return Tuning(log_eps, log_eps, 0.0, 0)


def tuned(now: Tuning, q: int, acceptance: float, target: float) -> Tuning:
    """One update by the mean acceptance of all chains."""
    updates = now.updates + 1
    part = 1.0 / (updates + DELAY)
    shortfall = (1.0 - part) * now.shortfall + part * (target - acceptance)
    log_eps = tuning(q).log_eps - math.sqrt(updates) / GAMMA * shortfall
    weight = updates**-KAPPA
    return Tuning(log_eps, weight * log_eps + (1.0 - weight) * now.average, shortfall, updates)


def walk(
    density: Evaluate,
    z: Float[Tensor, "C q"],
    sd: Float[Tensor, " q"],
    random: Iterable[tuple[Tensor, Tensor]],
    course: Callable[[Tuning, float], Tuning],
    start: Tuning,
    every: int,
) -> Walk:
    """An iteration for each pair of normals [C, q] and uniforms [C]; eps as `course` makes it. O(C q) each.

    Beside the density's there are nine passes over C q numbers, into arrays that are held; normals are written over.
    """
    here, there = (z.clone(), density(z)), (torch.empty_like(z), torch.empty_like(z))
    now, accepted, k, h = start, 0.0, 0, torch.empty_like(z)
    draws, values, half, half2, eps = [], [], sd, sd, math.nan
    for k, (xi, uniform) in enumerate(random, 1):
        if now.log_eps != eps:
            eps = now.log_eps
            half = sd * math.exp(eps)
            half2 = 0.5 * half.square()
        (z, at), (proposed, slope) = here, there
        torch.addcmul(z, half, xi, out=proposed).addcmul_(half2, at.slope)
        new = density(proposed, slope)
        torch.add(at.slope, new.slope, out=h).mul_(half)  # twice the legend's
        chance = (new.value - at.value).sub_(xi.add_(h, alpha=0.25).mul_(h).sum(1), alpha=0.5)
        chance = chance.nan_to_num_(nan=-math.inf).clamp_max_(0.0).exp_()
        here, there = _stepped(uniform < chance, here, (proposed, new))
        rate = float(chance.mean())
        accepted += rate
        now = course(now, rate)
        if k % every == 0:
            draws.append(here[0].clone())
            values.append(here[1].value)
    return Walk(here[0], torch.stack(draws), torch.stack(values), accepted / max(k, 1), now)


def _stepped(taken: Tensor, here: At, there: At) -> tuple[At, tuple[Tensor, Tensor]]:
    """Each chain where it is, or where it was to go; and the arrays that are free now.

    Nothing is copied where all do the same.
    """
    count, (z, at), (proposed, new), rows = int(taken.sum()), here, there, taken[:, None]
    if count == len(taken):
        return there, (z, at.slope)
    if count:
        torch.where(rows, proposed, z, out=z)
        torch.where(rows, new.slope, at.slope, out=at.slope)
        at = Density(torch.where(taken, new.value, at.value), at.slope)
    return (z, at), (proposed, new.slope)


def randomness(z: Tensor, source: torch.Generator, iterations: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Normals and uniforms, drawn an iteration at a time into the same arrays: they stay in cache.

    Single precision draws normals five times as fast, and is fine enough for proposals.
    """
    drawn, xi = torch.empty(z.shape, dtype=torch.float32), torch.empty_like(z)
    for _ in range(iterations):
        xi.copy_(drawn.normal_(generator=source))
        yield xi, torch.rand(len(z), generator=source, dtype=torch.float64).to(z)
