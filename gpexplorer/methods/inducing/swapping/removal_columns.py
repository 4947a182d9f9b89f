"""The columns by which the next inducing points are removed, computed together and updated through swaps.

For the slots that are offered next, whose columns of T are t, this keeps L t, G t and P t. Divided by |t| they are the
v, G w and P w of a removal. An accepted swap changes the columns of T to t - beta w and L to L + a w', so that

    L t <- L t - beta v + (w't) a
    G t <- G t - beta G w + (w't) half + (half't) w                     with the new t on the right,
    P t <- P t - (q't) q / kappa + (g't) g / s                          except for q't, which uses the old t

L is therefore read once for all of them, in one matrix product together with the rows of pivots or proposals. G and P
are read as rarely, so that their changes can wait as well.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .factor import Factor
from .swap_effects import Change, Column


class RemovalColumns:
    """Columns for the k slots that are offered next.

    Parameters
    ----------
    factor : Factor
    slots : list of int
        In the order in which they are offered.
    V : Tensor [k, n]
        L t for these slots.

    Attributes
    ----------
    products : Tensor [k, 3, m]
        t, G t and P t.
    """

    def __init__(self, factor: Factor, slots: list[int], V: Tensor) -> None:
        self.factor, self.slots, self.V = factor, slots, V
        self._index = torch.tensor(slots, dtype=torch.int64, device=V.device)
        self.multiply()

    def multiply(self) -> None:
        """Compute G t and P t from the factor: 4 k m^2 flops."""
        T = self.factor.T[:, self._index].T  # [k, m]
        self.products = torch.stack([T, T @ self.factor.G, T @ self.factor.P], 1)  # [k, 3, m]

    @property
    def GT(self) -> Tensor:
        """G t [k, m]."""
        return self.products[:, 1]

    @property
    def PT(self) -> Tensor:
        """P t [k, m]."""
        return self.products[:, 2]

    def drop_first(self) -> None:
        """Drop the slot that was offered."""
        self.slots, self._index = self.slots[1:], self._index[1:]
        self.V, self.products = self.V[1:], self.products[1:]

    def follow(self, new: Column, change: Change) -> None:
        """Update the columns after an accepted swap."""
        if not self.slots:
            return
        factors = change.factors.index_select(1, self._index).T  # [k, 5]
        self.V.addmm_(factors[:, :2], new.vua[::2])  # v and a
        self.products.flatten(1).addmm_(factors, change.vectors.columns.view(5, -1))
