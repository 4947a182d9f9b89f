"""Numbers below the smallest normal one, with which a processor computes 10 to 100 times as slowly.

A kernel with short lengthscales is full of them: e^-750 is 0, which torch computes in 40 ns and not in 1, e^-720 takes
140 ns, and the product of two entries of 1e-160 in a matrix product or a Cholesky factor is such a number too. None of
them changes a sum with 1e-290, so they are 0 here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from .deferred_reads import is_traced

LEAST = {torch.float64: -707.0, torch.float32: -87.0}  # above, e^x is a normal number and takes no detour
MARGIN = 0.25  # e^(LEAST - MARGIN) takes no detour either, and rounding cannot lift it above e^LEAST

for precision in (np.float32, np.float64):
    np.finfo(precision)  # NumPy before 2.4 keeps its first answer, and warns if that was asked for while flushing


def exponential(x: Tensor, least: float = -math.inf) -> Tensor:
    """Return e^x, and 0 where x is below -707, or below -87 in float32. Overwrites x unless a gradient is needed.

    Parameters
    ----------
    x : Tensor
        A temporary of the caller.
    least : float
        A lower bound of x, if one is known. It saves the pass that looks for the smallest entry.

    Notes
    -----
    Of a GPU, the exponential is as fast everywhere, and numbers are 0 where they cannot be represented.
    """
    limit = LEAST.get(x.dtype, -math.inf)
    exp, raised, zeroed = torch.exp_, torch.clamp_min_, torch.threshold_
    if x.requires_grad:
        exp, raised, zeroed = torch.exp, torch.clamp_min, torch.threshold
    if not x.is_cpu or is_traced() or least >= limit or not x.numel() or bool(x.detach().amin() >= limit):
        return exp(x)
    return zeroed(exp(raised(x, limit - MARGIN)), math.exp(limit), 0.0)


@contextmanager
def flushed_to_zero() -> Iterator[None]:
    """Let the processor replace numbers below the smallest normal one by 0 inside a `with` block, in this thread."""
    flushes_already = math.ulp(0.0) == 0.0
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushes_already)
