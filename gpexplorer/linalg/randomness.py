"""Random numbers that depend on a seed and a place in the computation, and on nothing else.

A generator is made afresh for each place (an epoch, a step), so a method's state need not carry 5 kB of generator
state, and any step can be replayed alone.
"""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor


def generator(seed: int, *place: int | str) -> torch.Generator:
    """A CPU generator for this seed and place; equal arguments give equal streams in every process."""
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def some(n: int, size: int, source: torch.Generator) -> Tensor:
    """`size` of n rows, each at most once, in random order; all of them where there are no more. O(size) memory.

    Rows are drawn until enough of them differ, which keeps every order equally likely; a permutation of all where
    that is no larger.
    """
    size = min(size, n)
    if n <= 4 * size:
        return torch.randperm(n, generator=source)[:size]
    drawn = torch.randint(n, (2 * size,), generator=source)
    while True:
        values, place = torch.unique(drawn, return_inverse=True)
        if len(values) >= size:
            break
        drawn = torch.cat([drawn, torch.randint(n, (size,), generator=source)])
    at = torch.arange(len(drawn))
    first = torch.full((len(values),), len(drawn)).scatter_reduce(0, place, at, "amin")
    return drawn[first.sort().values[:size]]
