"""The clock of a run: read only when the device has done all it was asked."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


def read(clock: Callable[[], float], y: Tensor) -> float:
    """Seconds on this clock, once the device that holds y is idle: a GPU answers before it has computed."""
    if y.device.type == "cuda":
        torch.cuda.synchronize(y.device)
    return clock()
