"""A step and the last few taken together: how far to go along each costs no kernel entry.

    min over c of f(a + P c),   P = [t, p_1, ..., p_h],   P'A P c = -P'g        Narkiss and Zibulevsky (2005), SESOP

t is what a block has just moved and the p are what the steps before it moved. A p is the difference that a step made to
the gradient, and that is carried. With one block of all rows and h = 1 this is conjugate gradients; with greedy blocks
two halve the iterations, and more bring little.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Point(NamedTuple):
    """alpha [n] and its gradient [n]; or the difference of two."""

    alpha: Tensor
    gradient: Tensor


def conjugated(
    before: Point, now: Point, memory: tuple[Tensor, ...], keep: int, turn: int
) -> tuple[Point, tuple[Tensor, ...]]:
    """The best point on the plane of this step and the `keep` before it, and the memory [n, ...] to go on from.

    Each step kept has its place in the memory, and `turn` says whose it takes. 4 n (keep + 1) + 2 n flops.
    """
    if not keep:
        return now, ()
    P = torch.stack([now.alpha - before.alpha, *memory[0::2]])  # [h, n]
    AP = torch.stack([now.gradient - before.gradient, *memory[1::2]])
    c = _least(P @ AP.T, P @ now.gradient)
    found = Point(torch.addmv(now.alpha, P.T, c), torch.addmv(now.gradient, AP.T, c))
    place, step = 2 * (turn % keep), (found.alpha - before.alpha, found.gradient - before.gradient)
    return found, (*memory[:place], *step, *memory[place + 2 :])


def _least(H: Tensor, slope: Tensor) -> Tensor:
    """c [h] of least c'H c / 2 + slope'c, nought along what rounding alone tells from the other directions."""
    scale = H.diagonal().clamp_min(torch.finfo(H.dtype).tiny).rsqrt()
    unit = (0.5 * (H + H.T)) * scale * scale[:, None]
    rounding = len(H) * torch.finfo(H.dtype).eps ** 0.5
    return -scale * (torch.linalg.pinv(unit, rtol=rounding, hermitian=True) @ (scale * slope))
