"""Cholesky factors that report how much jitter they needed."""

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

FLOAT32_HINT = (
    "float32 resolves its entries to 7 digits only: use dtype float64, raise the noise, drop duplicate rows, or use "
    "fewer points."
)
_record: ContextVar[dict[str, float] | None] = ContextVar("jitter", default=None)  # of the current thread


class Cholesky(NamedTuple):
    """The lower factor of A + jitter I, and the jitter, which is 0 if none was needed."""

    L: Tensor  # [m, m]
    jitter: float


@contextmanager
def record_jitter(record: dict[str, float]) -> Iterator[None]:
    """Write the largest jitter of every matrix that is factored inside this context into `record`, by its name."""
    token = _record.set(record)
    try:
        yield
    finally:
        _record.reset(token)


def cholesky(A: Float[Tensor, "m m"], name: str, largest: float = 1e-4, noted: bool = True) -> Cholesky:
    """Factor a symmetric matrix, with as little jitter as it needs.

    Parameters
    ----------
    A : Tensor [m, m]
        Symmetric matrix.
    name : str
        Its name in error messages and in the record of jitter.
    largest : float, default 1e-4
        Largest jitter, relative to the mean of the diagonal.
    noted : bool, default True
        Whether the jitter is recorded. It need not be where it changes no result, as in a preconditioner.

    Returns
    -------
    Cholesky
        The lower factor of A + jitter I, and the jitter.

    Raises
    ------
    NotPositiveDefinite
        If A has values that are not finite, or if the largest jitter is not enough.

    Notes
    -----
    m^3 / 3 flops per attempt. The first attempt uses no jitter, the second 8 eps times the mean of the diagonal, and
    each later one ten times more.
    """
    size = A.shape[0]
    scale = float(A.diagonal().mean()) if size else 1.0
    if not math.isfinite(scale):
        raise NotPositiveDefinite(name, size, 0.0, "It contains values that are not finite: check the hyperparameters.")
    jitter = 0.0
    while True:
        L, info = torch.linalg.cholesky_ex(A if jitter == 0.0 else A + jitter * torch.eye(size).to(A))
        if int(info) == 0:
            if jitter and noted and (record := _record.get()) is not None:
                record[name] = max(jitter, record.get(name, 0.0))
            return Cholesky(L, jitter)
        jitter = 10.0 * jitter if jitter else 8.0 * torch.finfo(A.dtype).eps * scale
        if jitter > largest * scale or scale <= 0.0:
            raise NotPositiveDefinite(name, size, jitter, FLOAT32_HINT if A.dtype == torch.float32 else "")


def logdet(L: Float[Tensor, "m m"]) -> float:
    """Return log det A for the lower factor L of A."""
    return 2.0 * float(L.diagonal().log().sum())
