"""Random numbers that depend on a seed and a place in the computation, and on nothing else.

A generator is made afresh for each place (an epoch, a step), so a method's state need not carry 5 kB of generator
state, and any step can be replayed alone.
"""

from __future__ import annotations

import hashlib

import torch


def generator(seed: int, *place: int | str) -> torch.Generator:
    """A CPU generator for this seed and place; equal arguments give equal streams in every process."""
    digest = hashlib.blake2b(repr((seed, *place)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
