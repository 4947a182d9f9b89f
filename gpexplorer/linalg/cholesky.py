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
SMALLEST_PIVOT = 500.0  # times eps and the mean of the diagonal: smaller pivots consist of rounding
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


def cholesky(
    A: Float[Tensor, "m m"], name: str, largest: float = 1e-4, noted: bool = True, accurate: bool = False
) -> Cholesky:
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
    accurate : bool, default False
        Whether jitter is also added where a factor exists, but only by chance, because one of its squared pivots is
        not larger than SMALLEST_PIVOT. For a matrix such as K_mm, whose inverse is applied and to which nothing was
        added before.

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
        more = 10.0 * jitter if jitter else 8.0 * torch.finfo(A.dtype).eps * scale
        if int(info) == 0 and not (accurate and more <= largest * scale and _has_small_pivot(L, scale)):
            if jitter and noted and (record := _record.get()) is not None:
                record[name] = max(jitter, record.get(name, 0.0))
            return Cholesky(L, jitter)
        jitter = more
        if jitter > largest * scale or scale <= 0.0:
            raise NotPositiveDefinite(name, size, jitter, FLOAT32_HINT if A.dtype == torch.float32 else "")


def independent_rows(A: Float[Tensor, "k k"], least: Float[Tensor, " k"]) -> Tensor:
    """Return the rows of a covariance matrix that those before them do not explain.

    Parameters
    ----------
    A : Tensor [k, k]
        Symmetric, positive semidefinite to rounding.
    least : Tensor [k]
        A residual variance that is not larger counts as explained.

    Returns
    -------
    Tensor [<= k]
        Indices in increasing order. Among these rows alone, A has a Cholesky factor.

    Notes
    -----
    At most k^3 flops.
    """
    D, columns = A.diagonal().clone(), torch.zeros_like(A)  # columns of the Cholesky factor
    accepted: list[int] = []
    for j in range(len(A)):
        if float(D[j]) <= float(least[j]):
            continue
        k = len(accepted)
        column = (A[:, j] - columns[:, :k] @ columns[j, :k]) / D[j].sqrt()
        columns[:, k] = column
        D = D - column.square()
        accepted.append(j)
    return torch.tensor(accepted, dtype=torch.int64, device=A.device)


def _has_small_pivot(L: Tensor, scale: float) -> bool:
    """Whether a squared pivot of a factor is so small beside the diagonal that it consists of rounding."""
    least = SMALLEST_PIVOT * torch.finfo(L.dtype).eps * scale
    return bool(len(L)) and float(L.diagonal().min()) ** 2 <= least


def logdet(L: Float[Tensor, "m m"]) -> float:
    """Return log det A for the lower factor L of A."""
    return 2.0 * float(L.diagonal().log().sum())


def solve_transposed(L: Float[Tensor, "m m"], B: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
    """Return L^-T B for a lower triangular L. m^2 k flops."""
    return torch.linalg.solve_triangular(L.T, B, upper=True)
