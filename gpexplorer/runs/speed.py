"""How fast this machine is, so that a count of operations and bytes becomes seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch

from ..problem import Cost

ORDER, LENGTH, TIMES = 384, 2_000_000, 4


class Speed(NamedTuple):
    """Double-precision operations and bytes a second."""

    flops: float
    bytes: float

    def seconds(self, cost: Cost) -> float:
        """A step's time where arithmetic and memory traffic overlap: the slower of the two."""
        return max(cost.flops / self.flops, cost.bytes / self.bytes)


@cache
def machine() -> Speed:
    """A middling matrix product and a sum of long vectors, timed once, in about 40 ms."""
    a, x = torch.ones(ORDER, ORDER, dtype=torch.float64), torch.ones(LENGTH, dtype=torch.float64)
    return Speed(TIMES * 2 * ORDER**3 / _took(lambda: a @ a), TIMES * 3 * 8 * LENGTH / _took(lambda: x + x))


def _took(work: Callable[[], torch.Tensor]) -> float:
    work()
    begin = time.perf_counter()
    for _ in range(TIMES):
        work()
    return max(time.perf_counter() - begin, 1e-6)
