"""The removed points' columns v = L w of the slots that are offered next, kept up to date through swaps.

A swap of slot i changes T's columns to t_k - beta_k t_i and L to L + a w', so that

    v_k <- (|t_k| v_k - beta_k |t_i| v_i + (w't_k) a) / |t_k|,   norms and w't_k of the old and new columns in turn

and L is read once for all of them, by one product that a BLAS does well, or along with another one.
"""

from __future__ import annotations

from torch import Tensor

from .factor import Factor, Removal


class Ahead:
    """Columns V [k, n] of the next k slots."""

    def __init__(self, factor: Factor, slots: list[int], V: Tensor) -> None:
        self.factor, self.slots, self.V = factor, slots, V

    def take(self, slot: int) -> Tensor | None:
        """The column of this slot, if it is the next one; it is then no longer held."""
        if not self.slots or self.slots[0] != slot:
            return None
        v, self.slots, self.V = self.V[0], self.slots[1:], self.V[1:]
        return v

    def lengths(self, also: int) -> Tensor:
        """Norms [k + 1] of T's columns at the slots held, then at `also`."""
        return self.factor.T[:, [*self.slots, also]].norm(dim=0)

    def follow(self, removal: Removal, before: Tensor, a: Tensor, beta: Tensor) -> None:
        """After the swap of `removal`'s slot, which changed L by a w'; `before` are the lengths it had."""
        if not self.slots:
            return
        T, beta = self.factor.T[:, self.slots], beta[self.slots]
        after = T.norm(dim=0)
        self.V = self.V * (before[:-1] / after)[:, None]
        self.V.addr_(beta * before[-1] / after, removal.v, alpha=-1.0).addr_((removal.w @ T) / after, a)
