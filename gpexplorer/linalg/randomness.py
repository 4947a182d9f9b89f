"""Random numbers that depend only on a seed and on the position in the computation.

A new generator is made for each position (an epoch, a step). The state of a method therefore need not contain the 5 kB
of a generator's state, and any step can be replayed alone.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor


def generator(seed: int, *position: int | str) -> torch.Generator:
    """Make a generator on the CPU for a seed and a position in the computation.

    Parameters
    ----------
    seed : int
        Seed of the method.
    *position : int or str
        What the numbers are for, such as ("epoch", 3).

    Returns
    -------
    torch.Generator
        Equal arguments give equal random numbers in every process.
    """
    digest = hashlib.blake2b(repr((seed, *position)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def random_rows(n: int, size: int, source: torch.Generator) -> Tensor:
    """Draw `size` of n rows without replacement, in random order; all n rows if `size` is larger.

    Parameters
    ----------
    n : int
        Number of rows.
    size : int
        Number of rows to draw.
    source : torch.Generator
        Where the random numbers come from; see `generator`.

    Returns
    -------
    Tensor [min(size, n)]
        Row indices. Every ordered choice is equally likely.

    Notes
    -----
    O(size) memory and time. If n is at most 4 times `size`, it is a permutation of all rows, cut off. Otherwise rows
    are drawn with replacement until enough of them are distinct, and the first `size` distinct ones are kept.
    """
    size = min(size, n)
    if n <= 4 * size:
        return torch.randperm(n, generator=source)[:size]
    distinct = dict.fromkeys(torch.randint(n, (2 * size,), generator=source).tolist())  # as they were drawn
    while len(distinct) < size:
        distinct |= dict.fromkeys(torch.randint(n, (size,), generator=source).tolist())
    return torch.tensor([*distinct][:size], dtype=torch.int64)


def cosines(Omega: Tensor, sd: float | Tensor, draw: torch.Generator) -> Callable[[Tensor], Tensor]:
    """Make the random features sd sqrt(2) cos(omega_i'x + c_i) of a stationary kernel with variance sd^2.

    Two features share a frequency, with phases that differ by pi / 2: their squares add up to a constant, so that the
    variance at every row is exact.

    Parameters
    ----------
    Omega : Tensor [D, d]
        Frequencies drawn from the spectral density of the kernel; the first half of them is used twice.
    sd : float or Tensor [D]
        Standard deviation of the kernel, times the square root of the weight of each frequency.
    draw : torch.Generator
        Draws the phases c, uniform in [0, 2 pi) and in pairs.

    Returns
    -------
    callable
        Takes rows [t, d] and gives [t, D] in float64; the mean of the products over the columns estimates k.

    References
    ----------
    Rahimi and Recht (2007), algorithm 1.
    """
    half = (len(Omega) + 1) // 2
    phases = 2.0 * math.pi * torch.rand(half, generator=draw, dtype=torch.float64)
    phases = torch.cat([phases, phases + 0.5 * math.pi])[: len(Omega)]
    Omega, factors = (
        torch.cat([part[:half], part[: len(Omega) - half]]).double()
        for part in (Omega, math.sqrt(2.0) * torch.as_tensor(sd, dtype=torch.float64).expand(len(Omega)))
    )
    return partial(_cosines, Omega, phases, factors)


def _cosines(Omega: Tensor, phases: Tensor, factors: Tensor, X: Tensor) -> Tensor:
    T = torch.addmm(phases.to(X.device), X.double(), Omega.T.to(X.device))  # [t, D]
    return T.cos() * factors.to(X.device)
