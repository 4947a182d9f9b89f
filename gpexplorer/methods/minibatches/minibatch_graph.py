"""A minibatch as a CUDA graph: the GPU repeats a recorded sequence of kernels that the host starts with one call.

A minibatch with D = 128 features is about 60 kernels of a few microseconds each, so that a GPU that is asked for one
after another mostly waits. What changes from one minibatch to the next lies in tensors that the recorded kernels read:
the indices of the rows, the number of earlier minibatches, and the learning rate.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class MinibatchGraph:
    """A recorded minibatch.

    Parameters
    ----------
    work : callable
        Takes the indices of the rows, the number of earlier minibatches [] and the learning rate []. It changes tensors
        in place, and must neither read a value nor send one to the GPU. It is called once, and nothing is computed.
    indices : tuple of Tensor
        Indices of any minibatch [b], on the GPU.

    Raises
    ------
    RuntimeError
        If an operation cannot be recorded.
    """

    def __init__(self, work: Callable[[tuple[Tensor, ...], Tensor, Tensor], None], indices: tuple[Tensor, ...]) -> None:
        device = indices[0].device
        self.indices = tuple(index.clone() for index in indices)
        self.earlier, self.rate = (torch.zeros((), dtype=torch.float64, device=device) for _ in range(2))
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            work(self.indices, self.earlier, self.rate)

    def replay(self, indices: tuple[Tensor, ...], earlier: int, rate: float) -> None:
        """Take a minibatch with these rows: five launches, and no read."""
        for recorded, index in zip(self.indices, indices, strict=True):
            recorded.copy_(index)
        self.earlier.fill_(float(earlier))
        self.rate.fill_(rate)
        self.graph.replay()
