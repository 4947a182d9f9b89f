"""Optimisers as functions of one flat vector, updated in place with the averages it is given.

adadelta   v <- rho v + (1 - rho) g^2,  dx = sqrt(u + e) / sqrt(v + e) g,  u <- rho u + (1 - rho) dx^2   Zeiler
adam       m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  dx = mhat / (sqrt(vhat) + e)      Kingma and Ba
sgd        m <- b m + g,  dx = m
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam as public_adam

Averages = tuple[Tensor, ...]
RHO, ADADELTA_EPS = 0.9, 1e-6
ADAM: dict[str, Any] = {
    "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0, "amsgrad": False, "maximize": False,
}  # fmt: skip
MOMENTUM = 0.9
FUSED = getattr(torch, "_fused_adam_", None)


class Optimiser(NamedTuple):
    """How a vector moves against its gradient, and how many averages of its size it carries."""

    move: Callable[[Tensor, Tensor, Averages, int, float], None]  # x, gradient, averages, moves before, rate
    averages: int


def adadelta(x: Tensor, g: Tensor, held: Averages, t: int, rate: float) -> None:
    """Steps of the size of past steps; the rate is a factor, 1 in the paper."""
    squares, steps = held
    squares.mul_(RHO).addcmul_(g, g, value=1.0 - RHO)
    step = (steps + ADADELTA_EPS).div_(squares + ADADELTA_EPS).sqrt_().mul_(g)
    steps.mul_(RHO).addcmul_(step, step, value=1.0 - RHO)
    x.sub_(step, alpha=rate)


def adam(x: Tensor, g: Tensor, held: Averages, t: int, rate: float) -> None:
    """Steps of about `rate` an entry, in one pass over memory.

    The pass is torch's own and not promised: without it, its public function, which takes some 8 % longer a minibatch.
    """
    (mean, squares), factors = held, {**ADAM, "lr": rate}
    if FUSED is None:
        before = x.new_full((), float(t), dtype=torch.float32)
        public_adam([x], [g], [mean], [squares], [], [before], fused=True, **factors)
    else:
        FUSED([x], [g], [mean], [squares], [], [x.new_full((), t + 1.0, dtype=torch.float32)], **factors)


def sgd(x: Tensor, g: Tensor, held: Averages, t: int, rate: float) -> None:
    """Steepest descent with heavy-ball momentum."""
    held[0].mul_(MOMENTUM).add_(g)
    x.sub_(held[0], alpha=rate)


OPTIMISERS = {"adam": Optimiser(adam, 2), "adadelta": Optimiser(adadelta, 2), "sgd": Optimiser(sgd, 1)}
