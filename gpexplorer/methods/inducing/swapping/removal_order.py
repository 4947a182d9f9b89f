"""The order in which inducing points are offered for removal.

The paper offers each point in turn, in random order ("random"). The default ("least loss") offers the points whose
removal increases the objective least. This increase is known exactly for every point in O(m^2) flops;
for the tight VFE it is estimated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import torch

from ....linalg.randomness import generator
from .factor import Factor


class Turn(NamedTuple):
    """Which swap of a run comes next.

    Attributes
    ----------
    epoch : int
    position : int
        Swaps done in this epoch.
    per_epoch : int
        Swaps in each epoch.
    swaps : int
        Swaps until the pivots are chosen again; this many slots are chosen together.
    seed : int
    """

    epoch: int
    position: int
    per_epoch: int
    swaps: int
    seed: int


class RemovalOrder(ABC):
    """Chooses the slots whose points are offered for removal. It has no memory: a state carries what it needs."""

    @abstractmethod
    def slots(self, factor: Factor, turn: Turn, remaining: list[int]) -> list[int]:
        """Return the slots to offer from now on until the pivots are chosen again; there may be more.

        Parameters
        ----------
        factor : Factor
        turn : Turn
        remaining : list of int
            What `to_carry` returned after the previous swap.
        """

    @abstractmethod
    def to_carry(self, slots: list[int]) -> list[int]:
        """Return the part of `slots` that a state has to carry after the first of them was offered."""


class RandomOrder(RemovalOrder):
    """Every slot in turn: random permutations of all m, continued from epoch to epoch (Cao et al. 2013, section 3)."""

    def slots(self, factor: Factor, turn: Turn, remaining: list[int]) -> list[int]:
        order = removal_permutation(factor.m, turn.epoch, turn.per_epoch, turn.seed)
        return order[turn.position : turn.position + turn.swaps + 1]

    def to_carry(self, slots: list[int]) -> list[int]:
        return []  # the order follows from the seed


class LeastLoss(RemovalOrder):
    """The slots whose points the objective needs least, by its increase without each; see `Factor.losses`."""

    def slots(self, factor: Factor, turn: Turn, remaining: list[int]) -> list[int]:
        return remaining or least_loss(factor, turn.swaps)

    def to_carry(self, slots: list[int]) -> list[int]:
        return slots[1:]


ORDERS: dict[str, RemovalOrder] = {"random": RandomOrder(), "least loss": LeastLoss()}


def removal_permutation(m: int, epoch: int, per_epoch: int, seed: int) -> list[int]:
    """Return the slots to offer in this epoch and the next one after: permutations of all m, joined over epochs."""
    begin, order = epoch * per_epoch, []
    for turn in range(begin // m, (begin + per_epoch) // m + 1):
        order += torch.randperm(m, generator=generator(seed, "removals", turn)).tolist()
    return order[begin % m : begin % m + per_epoch + 1]


def least_loss(factor: Factor, count: int) -> list[int]:
    """Return the `count` slots whose removal increases the objective least. O(m^2)."""
    return factor.losses().topk(min(count, factor.m), largest=False).indices.tolist()
