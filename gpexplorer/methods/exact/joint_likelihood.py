"""Hyperparameters of the full GP by maximum likelihood, without its matrix: stochastic gradients and warm starts.

    NLML   = (y'A^-1 y + log det A) / 2
    dNLML  = (tr(A^-1 dA) - a'dA a) / 2,   A a = y
    tr(A^-1 dA) = E[u'dA z],   A u = z,   z of independent entries +1 and -1          Hutchinson (1990)

One step solves for y and for the probes z through the same blocks, from the solutions of the step before, and then
takes one step of Adam. The probes are the same at all steps, as in Lin et al. (2024), section 3: the solutions then
change as little as theta does, and the objective that is descended is one function. A step ends after a few passes over
the rows even if a residual is still above its limit; later steps continue from there.

References: Gardner et al. (2018), section 2; Wu et al. (2024), section 4; Kingma and Ba (2015), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.theta.restrictions import projected
from ...linalg.blocks import row_blocks
from ...linalg.randomness import generator
from ...objectives import noise_derivative, noise_variance
from ...problem import Problem
from .block import BlockSizes
from .right_hand_sides import Columns, solve_together
from .system import System

PASSES = 2.0  # over the rows, per step
TARGET_RESIDUAL = 0.1  # noise standard deviations per row, for y
PROBE_RESIDUAL = 0.05  # of the norm of a probe
DECAYS = (0.9, 0.99)  # of the moments in Adam


class Learner(NamedTuple):
    """How hyperparameters are learned on all rows; the fields are settings of GBCD."""

    steps: int
    probes: int
    rate: float
    cache: float  # bytes of kernel rows that are kept within a step
    sizes: BlockSizes


class Position(NamedTuple):
    """All that the remaining steps depend on."""

    step: int  # steps done
    theta: Tensor  # [p]
    alpha: Tensor  # [n] approximate solution for y
    solutions: Tensor  # [n, s] approximate solutions for the probes; empty before the first step
    moments: Tensor  # [2, p] of Adam; empty before the first step
    gradient: float = float("nan")  # norm of the gradient that led here, per row


def learn_on_all_rows(problem: Problem, learner: Learner, position: Position) -> Iterator[Position]:
    """Descend the negative log marginal likelihood of all rows, one step of Adam at a time.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    learner : Learner
        Numbers of steps and probes, the rate, and sizes of blocks.
    position : Position
        Where to continue.

    Yields
    ------
    Position
        After each step. The rate decreases linearly to zero.

    Notes
    -----
    Per step at most (PASSES + 1) n^2 kernel entries, of which n^2 / 2 are differentiated, and O(n (s + b)) memory.
    """
    n, y = len(problem.train), problem.train.y
    Z = rademacher(n, learner.probes, learner.sizes.seed).to(y)  # [n, s]
    while position.step < learner.steps:
        system = System(problem, position.theta, learner.cache)
        solutions = position.solutions if len(position.solutions) else torch.zeros_like(Z)
        V = torch.cat([position.alpha[:, None], solutions], 1)  # [n, 1 + s]
        R = torch.cat([y[:, None], Z], 1)
        limits = R.norm(dim=0).mul_(PROBE_RESIDUAL)
        limits[0] = TARGET_RESIDUAL * (system.s2 * n) ** 0.5
        start = (V, system.product(V)) if bool(V.any()) else None
        columns = Columns(R, lambda columns, _, limits=limits: limits[columns], 2, start)  # type: ignore[misc]
        for _ in solve_together(system, [columns], learner.sizes, PASSES):
            pass
        V = columns.result()[0]
        gradient = likelihood_gradient(problem, position.theta, V[:, 0], V[:, 1:], Z)
        if (restrictions := getattr(problem.kernel, "restrictions", None)) is not None:
            gradient = gradient + restrictions.penalty(position.theta)[1]
            gradient = restrictions.parameters.descending(position.theta, gradient)
        rate = learner.rate * (1.0 - position.step / learner.steps)
        theta, moments = adam_step(position.theta, gradient, position.moments, position.step + 1, rate)
        theta = projected(problem.kernel, theta)
        norm = float(gradient.norm()) / n
        position = Position(position.step + 1, theta, V[:, 0].clone(), V[:, 1:].clone(), moments, norm)
        yield position


def rademacher(n: int, count: int, seed: int) -> Float[Tensor, "n s"]:
    """Independent entries +1 and -1, so that the mean of z z' is the identity."""
    return 2.0 * torch.randint(2, (n, count), generator=generator(seed, "probes")).double() - 1.0


def likelihood_gradient(
    problem: Problem, theta: Tensor, alpha: Tensor, U: Float[Tensor, "n s"], Z: Float[Tensor, "n s"]
) -> Float[Tensor, " p"]:
    """Estimate the gradient of the negative log marginal likelihood with respect to theta.

    Parameters
    ----------
    problem : Problem
        Training rows and a kernel with `theta_gradient`.
    theta : Tensor [p]
        Log-hyperparameters.
    alpha : Tensor [n]
        A^-1 y.
    U, Z : Tensor [n, s]
        Solutions A^-1 Z, and the probes. If the mean of the products z z' is the identity, the gradient is exact.

    Returns
    -------
    Tensor [p]

    Notes
    -----
    n^2 / 2 kernel entries with derivatives, in blocks of rows; each entry off the diagonal serves both of its places.
    """
    kernel: Any = problem.kernel
    X, n, s = problem.train.X, len(alpha), Z.shape[1]
    left = torch.cat([U / s, Z / s, -2.0 * alpha[:, None]], 1)  # [n, 2 s + 1]
    right = torch.cat([Z, U, alpha[:, None]], 1)
    gradient = torch.zeros_like(theta)
    for rows in row_blocks(n, 4 * alpha.element_size() * n, alpha):
        weights = 0.5 * left[rows] @ right[rows.start :].T  # [block, n - start], twice those of one place
        weights[:, : rows.stop - rows.start] *= 0.5
        gradient += kernel.theta_gradient(theta, X[rows], X[rows.start :], weights)
    by_noise = noise_variance(theta) * (float((U * Z).sum()) / s - float(alpha @ alpha))  # dA/dtheta_p = 2 s2 I
    gradient[-1] += noise_derivative(kernel, by_noise)
    return gradient


def adam_step(
    theta: Tensor, gradient: Tensor, moments: Tensor, number: int, rate: float
) -> tuple[Float[Tensor, " p"], Float[Tensor, "2 p"]]:
    """Step `number` of Adam, counted from 1, and the moments for the next one."""
    first, second = moments if len(moments) else theta.new_zeros(2, len(theta))
    first = DECAYS[0] * first + (1.0 - DECAYS[0]) * gradient
    second = DECAYS[1] * second + (1.0 - DECAYS[1]) * gradient.square()
    mean, square = first / (1.0 - DECAYS[0] ** number), second / (1.0 - DECAYS[1] ** number)
    scale = square.sqrt().clamp_min_(torch.finfo(theta.dtype).tiny)
    return theta - rate * mean / scale, torch.stack([first, second])
