"""The GPU of the tests: the card where torch sees one, and a simulated one elsewhere.

A test that counts launches and reads, or needs a card of a certain size, uses the simulated one everywhere.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from benchmarks.gpu.simulated_gpu import SimulatedGPU


def a_gpu() -> AbstractContextManager[object]:
    """A context in which device "cuda" exists."""
    return nullcontext() if torch.cuda.is_available() else SimulatedGPU()
