"""Rows that a run can start from: in a given order, without those that the rows before them already explain.

    D_j = k_jj - k_j' K_SS^-1 k_j,   S the rows accepted so far

Row j is accepted where D_j exceeds the rounding of k_jj, so that K_mm of the accepted rows has a Cholesky factor.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ...errors import SettingError
from ...linalg.cholesky import independent_rows
from ...linalg.randomness import generator
from ...objectives import least_noise, noise_variance, rounding
from ...problem import Dataset, Kernel, Problem


def random_order(problem: Problem, seed: int, first: Tensor | None = None) -> Tensor:
    """Return all rows [n] in the random order from which every method of the family starts, so that runs compare.

    The rows of `first`, if there are any, come before the others.
    """
    order = torch.randperm(len(problem.train), generator=generator(seed, "start")).to(problem.train.y.device)
    return order if first is None else torch.cat([first, order[~torch.isin(order, first)]])


def distinct_rows(kernel: Kernel, theta: Tensor, train: Dataset, order: Tensor, m: int) -> Tensor:
    """Return the first m rows of `order` that are not explained by those before them.

    Parameters
    ----------
    theta : Tensor [p]
    order : Tensor [n]
        Rows of the data.

    Returns
    -------
    Tensor [<= m]
        Fewer where duplicates and near-duplicates leave fewer.

    Notes
    -----
    m^3 flops per m rows of `order` that are looked at; without duplicates these are the first m.
    """
    accepted = order[:0]
    for begin in range(0, len(order), m):
        pool = torch.cat([accepted, order[begin : begin + m]])
        K = kernel(theta, train.rows(pool).X, train.rows(pool).X).double()  # [<= 2 m, <= 2 m]
        accepted = pool[independent_rows(K, rounding(train.y.dtype) * K.diagonal(), m)]
        if len(accepted) == m:
            break
    return accepted


def check_precision(problem: Problem, theta: Tensor) -> None:
    """Refuse a noise variance that the floating-point type cannot resolve.

    Raises
    ------
    SettingError
        The noise variance is smaller than a residual variance that counts as rounding, so that the objective would
        consist of rounding. float32 allows a ratio of signal to noise variance of 8e3, float64 one of 4e10.
    """
    dtype, s2 = problem.train.y.dtype, noise_variance(theta)
    resolved = least_noise(problem.kernel, theta, problem.train)
    if s2 < resolved:
        precision = str(dtype).removeprefix("torch.")
        way_out = "raise the noise" if dtype == torch.float64 else "use dtype float64, or raise the noise"
        raise SettingError(
            f"{precision} resolves variances of this kernel down to {resolved:.2g}, but the noise variance is "
            f"{s2:.2g}, so that the objective would consist of rounding: {way_out}."
        )
