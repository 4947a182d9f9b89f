"""The cost of a step of the minibatch methods, by formula."""

from __future__ import annotations

from typing import Any, Protocol

from ...linalg.blocks import BLOCK_BYTES
from ...problem import Cost
from .model import Model

HALF_RATE_ORDER = 512.0  # LAPACK factorises and inverts a matrix of this order at half the speed of a matrix product
FOURIER_CALLS = 20.0  # torch calls for random Fourier features, forward and backward
BLOCK_CALLS = 15.0  # torch calls per block of rows in the exact likelihood


class StepSettings(Protocol):
    """The settings that the cost of a step depends on."""

    minibatches: Any  # int, per step
    evaluate_every: Any  # int, epochs


def factorisation_flops(order: float) -> float:
    """Return order^3 flops of a factorisation and inverse, counted as flops of a product that takes equally long."""
    return order**3 * (1.0 + HALF_RATE_ORDER / order)


def feature_flops(model: Model) -> float:
    """Return the flops of the features of one row."""
    return 2.0 * model.map.size + (2.0 * model.waves.Omega.numel() if model.waves else 0.0)


def step_cost(
    method: StepSettings, model: Model, batch_size: int, *, algebra: float, matrices: float, calls: float
) -> Cost:
    """Return the cost of a step: its minibatches, and its share of a pass over all rows for the exact likelihood.

    Parameters
    ----------
    method : StepSettings
        The settings of the method.
    model : Model
        The feature map and the rows.
    batch_size : int
        Rows per minibatch; 0 for a method that takes all rows, block by block.
    algebra : float
        Flops of a minibatch apart from its features, which are computed once forward and once backward.
    matrices : float
        Number of D x D matrices in memory, in units of the precision of the features.
    calls : float
        Torch calls per minibatch with a network's features, from reading the rows to the optimiser's update.
    """
    s, D, p = model.like.element_size(), model.D, model.size
    in_memory = min(batch_size, model.n)
    b = in_memory or model.n
    minibatch = algebra + 3.0 * b * feature_flops(model) + 12.0 * (p + D)
    per_epoch = max(model.n // b, 1)
    count = min(method.minibatches, per_epoch)
    share = count / (per_epoch * method.evaluate_every)  # of an evaluation of the exact likelihood
    evaluation = share * model.n * (feature_flops(model) + 2.0 * D * D)
    bytes_moved = count * s * (3.0 * matrices * D * D + 10.0 * (p + D) + 8.0 * b * D)
    arrays = {
        "parameters, gradient and averages": 8.0 * s * (p + D),
        "D x D matrices": 1.0 * s * matrices * D * D,
        "minibatch": 6.0 * s * in_memory * (D + model.map.width),
        "block of features": min((4.0 if in_memory else 8.0) * s * model.n * D, 1.3 * BLOCK_BYTES),
        "order of the rows": 8.0 * model.n,
    }
    bytes_read = share * s * model.n * (D + model.problem.train.d)
    blocks = 1.0 + 4.0 * s * model.n * D / BLOCK_BYTES
    all_calls = count * (calls + (FOURIER_CALLS if model.waves else 0.0)) + BLOCK_CALLS * share * blocks
    return Cost(count * minibatch + evaluation, bytes_moved + bytes_read, arrays, all_calls)
