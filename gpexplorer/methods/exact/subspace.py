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
    steps = torch.stack([after.alpha - before.alpha, after.gradient - before.gradient, *memory])
    P, AP = steps.unflatten(0, (-1, 2)).unbind(1)  # [h, n] each
    H = P @ AP.T  # [h, h]
    if happens(0.0 * torch.linalg.vector_norm(H, torch.inf)):  # nan, as the step has overflowed: it will be rejected
        return after, memory
    c = _greatest_decrease(H, P @ after.gradient)  # [h]
    point = Point(torch.addmv(after.alpha, P.T, c, alpha=-1.0), torch.addmv(after.gradient, AP.T, c, alpha=-1.0))
    slot, step = 2 * (iteration % keep), (point.alpha - before.alpha, point.gradient - before.gradient)
    return point, (*memory[:slot], *step, *memory[slot + 2 :])


def _greatest_decrease(H: Tensor, gradient: Tensor) -> Tensor:
    """The minimiser c [h] of c'H c / 2 - gradient'c; zero along directions that only rounding tells apart."""
    scale = H.diagonal().clamp_min(torch.finfo(H.dtype).tiny).rsqrt()
    unit = torch.lerp(H, H.T, 0.5).mul_(scale).mul_(scale[:, None])  # the mean of H and H', with a unit diagonal
    rounding = len(H) * torch.finfo(H.dtype).eps ** 0.5
    return scale * (torch.linalg.pinv(unit, rtol=rounding, hermitian=True) @ (scale * gradient))
