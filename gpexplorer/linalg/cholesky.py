"""Cholesky factors that say how much jitter they needed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NotPositiveDefinite

_SEEN: ContextVar[dict[str, float] | None] = ContextVar("jitter", default=None)  # of one thread, while it is asked for


class Cholesky(NamedTuple):
    """Lower factor of A + jitter I, and the jitter (0 where none was needed)."""

    L: Tensor  # [m, m]
    jitter: float


@contextmanager
def noticed(into: dict[str, float]) -> Iterator[None]:
    """While this lasts, the largest jitter of every matrix that needs some here is written into `into`, by its name."""
    token = _SEEN.set(into)
    try:
        yield
    finally:
        _SEEN.reset(token)


def cholesky(A: Float[Tensor, "m m"], name: str, largest: float = 1e-4, noted: bool = True) -> Cholesky:
    """Factor a symmetric matrix, raising jitter from 0 by decades until it succeeds.

    Jitter starts at a few eps of the mean diagonal and stops at `largest` times it. m^3/3 flops a try.
    Where it changes no answer, as in a preconditioner, it need not be `noted`.
    Raises NotPositiveDefinite, naming the matrix, its size and the last jitter.
    """
    size = A.shape[0]
    scale = float(A.diagonal().mean()) if size else 1.0
    if not math.isfinite(scale):
        raise NotPositiveDefinite(name, size, 0.0, "It holds values that are not finite: check the hyperparameters.")
    jitter = 0.0
    while True:
        L, info = torch.linalg.cholesky_ex(A if jitter == 0.0 else A + jitter * torch.eye(size).to(A))
        if int(info) == 0:
            if jitter and noted and (seen := _SEEN.get()) is not None:
                seen[name] = max(jitter, seen.get(name, 0.0))
            return Cholesky(L, jitter)
        jitter = 10.0 * jitter if jitter else 8.0 * torch.finfo(A.dtype).eps * scale
        if jitter > largest * scale or scale <= 0.0:
            raise NotPositiveDefinite(name, size, jitter)


def logdet(L: Float[Tensor, "m m"]) -> float:
    """log |A| from the lower factor L of A."""
    return 2.0 * float(L.diagonal().log().sum())
