"""Combine a step with the previous steps: the best coefficients along each cost no kernel entry.

    min over c of f(a + P c),   P = [p_0, p_1, ..., p_h],   P'A P c = -P'g        Narkiss and Zibulevsky (2005), SESOP

p_0 is the step that a block has just made, and p_1 ... p_h are the steps before it. A p is the change of the gradient
that a step made, so it is available. With one block of all rows and h = 1 this is the method of conjugate gradients.
With greedy blocks, h = 2 halves the number of iterations, and larger h bring little more.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...linalg.deferred_reads import happens
from .reliability import Point


def combine_steps(
    before: Point, after: Point, memory: tuple[Tensor, ...], keep: int, iteration: int
) -> tuple[Point, tuple[Tensor, ...]]:
    """Move to the minimiser of f on the plane that the last step and `keep` earlier steps span.

    Parameters
    ----------
    before, after : Point
        The iterates before and after the step.
    memory : tuple of Tensor [n]
        Earlier steps p and their products A p, alternating; empty at the start.
    keep : int
        Number of earlier steps; 0 returns `after` unchanged.
    iteration : int
        Number of the iteration: the new step replaces the oldest one, in place iteration % keep.

    Returns
    -------
    point : Point
        The minimiser with its gradient.
    memory : tuple of Tensor [n]
        Steps and products for the next call.

    Notes
    -----
    4 n (keep + 1) + 2 n flops besides the small system.
    """
    if not keep:
        return after, ()
    P = torch.stack([after.alpha - before.alpha, *memory[0::2]])  # [h, n]
    AP = torch.stack([after.gradient - before.gradient, *memory[1::2]])  # [h, n]
    H = P @ AP.T
    if happens(~(H.abs().amax() < torch.inf)):  # the step has overflowed; the caller will reject it
        return after, memory
    c = _least_quadratic(H, P @ after.gradient)
    point = Point(torch.addmv(after.alpha, P.T, c), torch.addmv(after.gradient, AP.T, c))
    place, step = 2 * (iteration % keep), (point.alpha - before.alpha, point.gradient - before.gradient)
    return point, (*memory[:place], *step, *memory[place + 2 :])


def _least_quadratic(H: Tensor, gradient: Tensor) -> Tensor:
    """The minimiser c [h] of c'H c / 2 + gradient'c; zero along directions that only rounding tells apart."""
    scale = H.diagonal().clamp_min(torch.finfo(H.dtype).tiny).rsqrt()
    unit = (0.5 * (H + H.T)) * scale * scale[:, None]
    rounding = len(H) * torch.finfo(H.dtype).eps ** 0.5
    return -scale * (torch.linalg.pinv(unit, rtol=rounding, hermitian=True) @ (scale * gradient))
