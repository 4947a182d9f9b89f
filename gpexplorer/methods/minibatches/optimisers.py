"""Optimisers that move a flat vector of parameters in place, with running averages of its size.

adadelta   v <- rho v + (1 - rho) g^2,  dx = sqrt(u + e) / sqrt(v + e) g,  u <- rho u + (1 - rho) dx^2   Zeiler (2012)
adam       m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2,  dx = mhat / (sqrt(vhat) + e)      Kingma and Ba (2015)
sgd        m <- b m + g,  dx = m
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.optim.adam import adam as public_adam

from ...linalg.deferred_reads import Number, add_multiple

Averages = tuple[Tensor, ...]
RHO, ADADELTA_EPS = 0.9, 1e-6
ADAM: dict[str, Any] = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}
ADAM |= {"amsgrad": False, "maximize": False}
MOMENTUM = 0.9
FUSED_ADAM = getattr(torch, "_fused_adam_", None)


class Optimiser(NamedTuple):
    """An update rule and the number of running averages it needs, each of the size of the parameter vector."""

    move: Callable[[Tensor, Tensor, Averages, Number, Number], None]  # x, gradient, averages, earlier moves, rate
    averages: int


def adadelta(x: Tensor, gradient: Tensor, averages: Averages, t: Number, rate: Number) -> None:
    """Move x by steps of the size of earlier steps; `rate` is a factor, 1 in the paper."""
    squares, steps = averages
    squares.mul_(RHO).addcmul_(gradient, gradient, value=1.0 - RHO)
    step = (steps + ADADELTA_EPS).div_(squares + ADADELTA_EPS).sqrt_().mul_(gradient)
    steps.mul_(RHO).addcmul_(step, step, value=1.0 - RHO)
    add_multiple(x, step, -rate)


def adam(x: Tensor, gradient: Tensor, averages: Averages, t: Number, rate: Number) -> None:
    """Move every entry of x by about `rate`, in one pass over memory.

    On a GPU, the number of earlier moves and the rate may be tensors.

    The one-pass kernel is a private function of torch. If it is missing, torch's public function is used, with which a
    minibatch takes about 8 % longer.
    """
    (mean, squares), factors = averages, {**ADAM, "lr": rate.float() if isinstance(rate, Tensor) else rate}
    moves = (t + 1.0).float() if isinstance(t, Tensor) else x.new_full((), t + 1.0, dtype=torch.float32)
    if FUSED_ADAM is None:
        public_adam([x], [gradient], [mean], [squares], [], [moves - 1.0], fused=True, **factors)
    else:
        FUSED_ADAM([x], [gradient], [mean], [squares], [], [moves], **factors)


def sgd(x: Tensor, gradient: Tensor, averages: Averages, t: Number, rate: Number) -> None:
    """Move x against the gradient with heavy-ball momentum."""
    averages[0].mul_(MOMENTUM).add_(gradient)
    add_multiple(x, averages[0], -rate)


OPTIMISERS = {"adam": Optimiser(adam, 2), "adadelta": Optimiser(adadelta, 2), "sgd": Optimiser(sgd, 1)}
