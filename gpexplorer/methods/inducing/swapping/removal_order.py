"""The order in which inducing points are offered for removal."""

from __future__ import annotations

import torch

from ....linalg.randomness import generator
from .factor import Factor

ORDERS = ("random", "least loss")


def removal_order(m: int, epoch: int, limit: int, seed: int) -> list[int]:
    """Slots to offer in this epoch, and the one after: permutations of all m, carried on from epoch to epoch."""
    begin, order = epoch * limit, []
    for turn in range(begin // m, (begin + limit) // m + 1):
        order += torch.randperm(m, generator=generator(seed, "removals", turn)).tolist()
    return order[begin % m : begin % m + limit + 1]


def least_loss(factor: Factor, many: int) -> list[int]:
    """The slots whose points the objective would miss least, by its exact rise without each. O(m^2)."""
    return factor.losses().topk(min(many, factor.m), largest=False).indices.tolist()
