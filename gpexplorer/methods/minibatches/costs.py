"""What a step of minibatches costs, from the formulas."""

from __future__ import annotations

from typing import Any

from ...linalg.blocks import BLOCK_BYTES
from ...problem import Cost
from .model import Model

HALF_RATE = 512.0  # order at which LAPACK makes and inverts factors at half a product's rate


def factored(order: float) -> float:
    """order^3 flops of factors and their inverses, in flops of a product that take as long: small ones are slow."""
    return order**3 * (1.0 + HALF_RATE / order)


def forward(model: Model) -> float:
    """Flops of the features of one row."""
    return 2.0 * model.map.size + (2.0 * model.waves.Omega.numel() if model.waves else 0.0)


WAVES = 20.0  # calls of Fourier features, forward and back
A_BLOCK = 15.0  # calls of a block of rows in the exact likelihood


def cost(method: Any, model: Model, algebra: float, matrices: float, calls: float) -> Cost:
    """`algebra`: flops of a minibatch beside its features, once forward and back; `matrices` of D x D held, in numbers
    as wide as the features.

    `calls` are those of a minibatch, from its rows to the optimiser's step, with a network's features.

    A step is its minibatches, and its share of a pass over all rows for the exact likelihood.
    """
    s, D, p = model.like.element_size(), model.D, model.size
    held = min(getattr(method, "batch_size", 0), model.n)  # a method without this setting takes all rows, in blocks
    b = held or model.n
    minibatch = algebra + 3.0 * b * forward(model) + 12.0 * (p + D)
    epoch = max(model.n // b, 1)
    count = min(method.minibatches, epoch)
    share = count / (epoch * method.evaluate_every)
    whole = share * model.n * (forward(model) + 2.0 * D * D)
    moved = count * s * (3.0 * matrices * D * D + 10.0 * (p + D) + 8.0 * b * D)
    arrays = {
        "parameters, gradient and averages": 8.0 * s * (p + D),
        "D x D matrices": 1.0 * s * matrices * D * D,
        "minibatch": 6.0 * s * held * (D + model.map.width),
        "block of features": min((4.0 if held else 8.0) * s * model.n * D, 1.3 * BLOCK_BYTES),
        "order of the rows": 8.0 * model.n,
    }
    read = share * s * model.n * (D + model.problem.train.d)
    asked = count * (calls + (WAVES if model.waves else 0.0)) + A_BLOCK * share * (
        1.0 + 4.0 * s * model.n * D / BLOCK_BYTES
    )
    return Cost(count * minibatch + whole, moved + read, arrays, asked)
