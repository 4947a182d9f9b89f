"""The columns by which the next inducing points are removed, computed together and updated through swaps.

For the slots that are offered next, whose columns of T are t, this keeps L t, G t and P t. Divided by |t| they are the
v, G w and P w of the removal. An accepted swap changes the columns of T to t - beta w and L to L + a w', so that

    L t <- L t - beta v + (w't) a
    G t <- G t - beta G w + (w't) half + (half't) w                     with the new t on the right,
    P t <- P t - (q't) q / kappa + (g't) g / s                          except for q't, which uses the old t

L is therefore read once for all of them, in one matrix product together with the rows of pivots or proposals. G and P
are read as rarely, so that their changes can wait as well.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .factor import Factor
from .swap_effects import Change, Removal


class RemovalColumn(NamedTuple):
    """The arguments of `Factor.remove` for one slot."""

    v: Tensor  # [n]
    products: tuple[Tensor, Tensor, Tensor]  # w, G w and P w [m]


class RemovalColumns:
    """Columns for the k slots that are offered next.

    Parameters
    ----------
    factor : Factor
    slots : list of int
        In the order in which they are offered.
    V : Tensor [k, n]
        L t for these slots.
    """

    def __init__(self, factor: Factor, slots: list[int], V: Tensor) -> None:
        self.factor, self.slots, self.V = factor, slots, V
        self.multiply()

    def multiply(self) -> None:
        """Compute G t and P t from the factor: 4 k m^2 flops."""
        T = self.factor.T[:, self.slots].T  # [k, m]
        self.GT, self.PT = T @ self.factor.G, T @ self.factor.P  # [k, m]

    def take(self, slot: int) -> RemovalColumn | None:
        """Return the column of this slot if it is the next one, and drop it; otherwise None."""
        if not self.slots or self.slots[0] != slot:
            return None
        t = self.factor.T[:, slot]
        length = t.norm()
        v, (w, Gw, q) = self.V[0] / length, torch.stack([t, self.GT[0], self.PT[0]]).div_(length)
        self.slots, self.V, self.GT, self.PT = self.slots[1:], self.V[1:], self.GT[1:], self.PT[1:]
        return RemovalColumn(v, (w, Gw, q))

    def follow(self, removal: Removal, change: Change) -> None:
        """Update the columns after an accepted swap."""
        if not self.slots:
            return
        w, s2 = removal.w, self.factor.s2
        factors = torch.stack([-change.beta, change.wT, change.halfT, change.qT, change.gT])[:, self.slots].T  # [k, 5]
        self.V.addmm_(factors[:, :2], torch.stack([removal.v, change.a]))
        self.GT.addmm_(factors[:, :3], torch.stack([torch.add(removal.Lv, w, alpha=s2), change.half, w]))
        self.PT.addmm_(factors[:, 3:], torch.stack([removal.q / -removal.kappa, change.g / change.s]))
