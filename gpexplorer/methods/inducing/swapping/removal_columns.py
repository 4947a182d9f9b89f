"""The columns L t, G t and P t of the slots that are offered next, t being T's, kept up to date through swaps.

Scaled by 1 / |t| they are the v, G w and P w of that slot's removal. A swap changes T's columns to t - beta w and L to
L + a w', so that

    L t <- L t - beta v + (w't) a
    G t <- G t - beta G w + (w't) half + (half't) w                     with the new t on the right,
    P t <- P t - (q't) q / kappa + (g't) g / s                          but for q't, where it is the old one

and L is read once for all of them, by one product that a BLAS does well, along with another one's rows; G and P are
read as seldom, so that their changes may wait as well.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .factor import Factor
from .swap_effects import Change, Removal


class Taken(NamedTuple):
    """What `Factor.remove` asks for."""

    v: Tensor  # [n]
    products: tuple[Tensor, Tensor]  # G w and P w [m]


class Ahead:
    """Of the next k slots, V [k, n], GT and PT [k, m]."""

    def __init__(self, factor: Factor, slots: list[int], V: Tensor) -> None:
        self.factor, self.slots, self.V = factor, slots, V
        T = factor.T[:, slots].T
        self.GT, self.PT = T @ factor.G, T @ factor.P

    def take(self, slot: int) -> Taken | None:
        """The columns of this slot, if it is the next one; they are then no longer held."""
        if not self.slots or self.slots[0] != slot:
            return None
        length = self.factor.T[:, slot].norm()
        v, Gw, q = (held[0] / length for held in (self.V, self.GT, self.PT))
        self.slots, self.V, self.GT, self.PT = self.slots[1:], self.V[1:], self.GT[1:], self.PT[1:]
        return Taken(v, (Gw, q))

    def follow(self, removal: Removal, change: Change) -> None:
        """After a swap that was accepted."""
        if not self.slots:
            return
        at, w, s2 = self.slots, removal.w, self.factor.s2
        along = torch.stack([-change.beta, change.wT, change.halfT, change.qT, change.gT])[:, at].T  # [k, 5]
        self.V.addmm_(along[:, :2], torch.stack([removal.v, change.a]))
        self.GT.addmm_(along[:, :3], torch.stack([removal.Lv + s2 * w, change.half, w]))
        self.PT.addmm_(along[:, 3:], torch.stack([removal.q / -removal.kappa, change.g / change.s]))
