"""Matern kernels of one input, and their sums, as the first entry of a small state that moves through time.

    f(t) = h'x(t),   x(t + dt) = F x(t) + q,   q ~ N(0, Q),   x ~ N(0, P) at any time

The state of a Matern kernel is f with its derivatives, each in units of the rate lambda = sqrt(2 nu) / l, and divided
by the standard deviation, so that its numbers are of order one at any scale. With tau = lambda dt,

    F = exp(-tau) (F_0 + F_1 tau + F_2 tau^2),   Q = sum_k Q_k G(k, 2 tau),

where G is the regularised lower incomplete gamma function, from the integral of the noise that enters in dt. No digit
of Q is lost, however small dt is. States of a sum are stacked.

Small matrices have their rows and columns in the first two dimensions, and times in those behind them.

References: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process
regression models; Sarkka and Solin (2019), Applied stochastic differential equations, section 12.3.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import KernelError
from ...problem import described_rows
from ..row_scaled import unscaled_kernel

DEGREES = {"matern12": 1.0, "matern32": 3.0, "matern52": 5.0}  # 2 nu
POWERS: dict[str, Any] = {  # F_0, F_1, ...
    "matern12": [[[1.0]]],
    "matern32": [[[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0], [-1.0, -1.0]]],
    "matern52": [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [-1.0, -3.0, -2.0]],
        [[0.5, 1.0, 0.5], [-0.5, -1.0, -0.5], [0.5, 1.0, 0.5]],
    ],
}
GAMMAS: dict[str, Any] = {  # Q_1, Q_2, ...
    "matern12": [[[1.0]]],
    "matern32": [[[0.0, 0.0], [0.0, 2.0]], [[0.0, 1.0], [1.0, -2.0]], [[1.0, -1.0], [-1.0, 1.0]]],
    "matern52": [
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 8 / 3]],
        [[0.0, 0.0, 0.0], [0.0, 0.0, 4 / 3], [0.0, 4 / 3, -16 / 3]],
        [[0.0, 0.0, 2 / 3], [0.0, 4 / 3, -10 / 3], [2 / 3, -10 / 3, 20 / 3]],
        [[0.0, 1.0, -2.0], [1.0, -2.0, 3.0], [-2.0, 3.0, -4.0]],
        [[1.0, -1.0, 1.0], [-1.0, 1.0, -1.0], [1.0, -1.0, 1.0]],
    ],
}


class StateSpace:
    """A kernel of one input as a process with a state of d numbers.

    Parameters
    ----------
    kernel : Kernel
        A Matern kernel, a sum of such, or a `RowScaled` one of it; see `check_states`.
    theta : Tensor [p]
        Log-hyperparameters, which autograd may differentiate.

    Attributes
    ----------
    h : Tensor [d]
        f = h'x.
    """

    def __init__(self, kernel: Any, theta: Float[Tensor, " p"]) -> None:
        self.terms, self.theta = _terms(unscaled_kernel(kernel)), theta.double()
        sizes = [len(POWERS[term][0]) for term in self.terms]
        self.d = sum(sizes)
        self._first = [sum(sizes[:i]) for i in range(len(sizes))]
        units = torch.zeros(len(sizes), self.d, dtype=torch.float64, device=theta.device)
        units[torch.arange(len(sizes)), self._first] = 1.0
        self.h = self.theta[: 2 * len(sizes) : 2].exp() @ units

    def stationary(self) -> Float[Tensor, "d d"]:
        """The covariance P of the state at any time."""
        blocks = [torch.tensor(GAMMAS[term], dtype=torch.float64).sum(0) for term in self.terms]
        return torch.block_diag(*blocks).to(self.h.device)

    def transitions(self, dt: Tensor) -> tuple[Tensor, Tensor]:
        """F and Q [d, d, ...] over these spans of time [...], none negative."""
        F, Q = [], []
        for i, term in enumerate(self.terms):
            tau = math.sqrt(DEGREES[term]) * torch.exp(-self.theta[2 * i + 1]) * dt
            decay = torch.exp(-tau)
            powers = _weights(POWERS[term], tau)
            F.append(torch.tensordot(powers, torch.stack([decay * tau**k for k in range(powers.shape[2])]), 1))
            gammas = _weights(GAMMAS[term], tau)
            Q.append(torch.tensordot(gammas, _gammas(2.0 * tau, decay.square(), gammas.shape[2]), 1))
        return self._stacked(F), self._stacked(Q)

    def _stacked(self, blocks: list[Tensor]) -> Tensor:
        """Blocks [d_i, d_i, ...] along the diagonal of matrices [d, d, ...]."""
        if len(blocks) == 1:
            return blocks[0]
        rows = []
        for first, block in zip(self._first, blocks, strict=True):
            before, after = (
                block.new_zeros(len(block), k, *block.shape[2:]) for k in (first, self.d - first - len(block))
            )
            rows.append(torch.cat([before, block, after], 1))
        return torch.cat(rows)


def check_states(kernel: Any, X: Any, method: str) -> None:
    """Raise KernelError unless there is one input and the kernel has such a form.

    Parameters
    ----------
    kernel : Kernel
        Covariance function.
    X : inputs
        Training rows.
    method : str
        Who asks, for the error.
    """
    base = unscaled_kernel(kernel)
    if not isinstance(X, Tensor):
        raise KernelError(f"{method} needs one column of numbers, but the inputs are {described_rows(X)}.")
    columns = X.shape[1] - (base is not kernel)
    if columns != 1:
        raise KernelError(f"{method} needs one input, such as time, but there are {columns}; choose vecchia for more.")
    _terms(base, method)


def state_size(kernel: Any) -> int:
    """The numbers of the state d; those of a kernel that has none count as two, for forecasts of cost."""
    terms = [key.removesuffix("-ard") for key in unscaled_kernel(kernel).key.split("+")]
    return sum(len(POWERS.get(term, POWERS["matern32"])[0]) for term in terms)


def _terms(kernel: Any, method: str = "A state-space model") -> list[str]:
    """The Matern kernels whose sum a kernel is."""
    terms = [key.removesuffix("-ard") for key in kernel.key.split("+")]
    if not set(terms) <= set(POWERS):
        raise KernelError(
            f"{method} needs matern12, matern32 or matern52, or a sum of them such as matern52+matern12, but the "
            f"kernel is {kernel.key}; choose one of them, or the method vecchia for any stationary kernel."
        )
    return terms


def _weights(table: Any, like: Tensor) -> Tensor:
    """A table of matrices [k, d, d] as [d, d, k]."""
    return torch.tensor(table, dtype=like.dtype, device=like.device).permute(1, 2, 0)


def _gammas(x: Tensor, decay: Tensor, count: int) -> Tensor:
    """G(1, x), ..., G(count, x), from the last one downwards, since all terms are positive then; decay = exp(-x)."""
    if count == 1:
        return -torch.expm1(-x)[None]
    values = [torch.special.gammainc(torch.full_like(x, float(count)), x)]
    for k in range(count - 1, 0, -1):
        values.append(values[-1] + decay * x**k / math.factorial(k))
    return torch.stack(values[::-1])
