"""How each method's minibatch gradients are spread around the exact gradient at one theta."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ....linalg.randomness import generator
from ....problem import Problem
from ..exact_likelihood import Exact, exact, exact_gradient
from ..model import Model
from ..state import State


class Spread(NamedTuple):
    """Of gradients in theta, in units of the exact gradient's norm."""

    bias: float  # |mean - exact|, what the draws' own scatter adds to it taken off
    sd: float  # root mean squared distance from the mean
    along: Tensor  # [draws] component along the exact gradient; 1 where a draw is exact


def look(method: Any, problem: Problem, theta: Float[Tensor, " p"], draws: int) -> Spread:
    """Gradients of this method's minibatches, its matrix as exact as it can be. Two passes and `draws` minibatches."""
    model = Model(method, problem, method.validation)
    now = exact(model, theta)
    want = exact_gradient(model, theta, now) / model.n
    held, found = _settled(method, model, theta, now), []
    for k in range(draws):
        learner = method.learner(model, held)
        order = torch.randperm(model.n, generator=generator(method.seed, "microscope", k))
        learner.gradient(order[: learner.rows.size], 0)
        found.append(learner.point.g[len(held.w) : len(held.w) + model.size].clone())
    G, size = torch.stack(found), float(want.norm())
    mean, scatter = G.mean(0), float((G - G.mean(0)).square().sum(1).sum()) / max(draws - 1, 1)
    off = float((mean - want).square().sum()) - scatter / draws
    return Spread(math.sqrt(max(off, 0.0)) / size, math.sqrt(scatter) / size, (G @ want) / size**2)


def _settled(method: Any, model: Model, theta: Tensor, now: Exact) -> State:
    """The state in which a method would have rested at this theta."""
    A = now.gram / model.n
    matrices: tuple[Tensor, ...] = ()
    if method.key == "scgd":
        w = now.w.double()
        matrices = A.to(now.w), (A @ w + (now.s2 / model.n) * w).to(now.w)
    if method.key == "minimax":
        A = A.clone()
        A.diagonal().add_(now.s2 / model.n)
        B = torch.cholesky_inverse(now.L) * (-model.n * A.norm() / method.mu)
        matrices = (A, B / B.norm().clamp_min(1.0))
    return State(1, "learn", 1, theta, now.w, (), matrices, method.rate)
