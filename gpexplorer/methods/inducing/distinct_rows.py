"""Where a run starts: random rows, passing over those that the rows before them already explain."""

from __future__ import annotations

import torch
from torch import Tensor

from ...problem import Dataset, Kernel


def distinct_rows(kernel: Kernel, theta: Tensor, train: Dataset, order: Tensor, m: int) -> Tensor:
    """The first m rows of `order` that are not explained by those before them: an inducing set to start from.

    Duplicates and near-duplicates are passed over, so fewer than m may be left. O(m^3) on [<= 4 m] rows.
    """
    kept = order[:0]
    for begin in range(0, len(order), m):
        pool = torch.cat([kept, order[begin : begin + m]])
        K = kernel(theta, train.rows(pool).X, train.rows(pool).X).double()
        kept = pool[independent(K, rounding(train.y.dtype))][:m]
        if len(kept) == m:
            break
    return kept


def rounding(dtype: torch.dtype) -> float:
    """Share of a row's variance: what is left of it by others is rounding below. 2e-11 in float64, 1e-4 in float32."""
    return (1e5 if dtype == torch.float64 else 1e3) * torch.finfo(dtype).eps


def independent(K: Tensor, least: float) -> Tensor:
    """Indices of K's [k, k] rows, in order, whose residual after those before exceeds `least` of their variance."""
    size = K.shape[0]
    prior, D = K.diagonal(), K.diagonal().clone()
    columns = K.new_zeros(size, size)
    kept: list[int] = []
    for j in range(size):
        if float(D[j]) <= least * float(prior[j]):
            continue
        k = len(kept)
        column = (K[:, j] - columns[:, :k] @ columns[j, :k]) / D[j].sqrt()
        columns[:, k] = column
        D = D - column.square()
        kept.append(j)
    return torch.tensor(kept, dtype=torch.int64, device=K.device)
