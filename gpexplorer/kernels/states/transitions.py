"""Kernels of one input as the first entries of a small state that moves through time.

    f(t) = h'x(t),   x(t + dt) = F x(t) + q,   q ~ N(0, Q),   x ~ N(0, P) at any time

Matern: the state is f with its derivatives, each in units of the rate lambda = sqrt(2 nu) / l, and divided by the
standard deviation, so that its numbers are of order one at any scale. With tau = lambda dt,

    F = exp(-tau) (F_0 + F_1 tau + F_2 tau^2),   Q = sum_k Q_k G(k, 2 tau),

where G is the regularised lower incomplete gamma function, from the integral of the noise that enters in dt. No digit
of Q is lost, however small dt is.

Periodic: a constant and J waves. Their variances are those of Fourier's series, with z = 1 / l^2 and the modified
Bessel functions I_j,

    exp(z cos a - z) = sum_j q_j cos(j a),   q_0 = exp(-z) I_0(z),   q_j = 2 exp(-z) I_j(z)

J is the first at which the variance of all further waves is small beside that of the noise; see `StateSpace`. Since
waves last for ever, a periodic term of a sum needs no state: it is w'phi(t) with w ~ N(0, I), a linear model beside the
states. In a product, each wave is two numbers that F turns by j 2 pi dt / period, and Q = 0.

States of a sum are stacked. The state of a product is the Kronecker product of both, F = F_1 (x) F_2 and
Q = Q_1 (x) P_2 + F_1 P_1 F_1' (x) Q_2, where F_1 P_1 F_1' = P_1 - Q_1.

Small matrices have their rows and columns in the first two dimensions, and times in those behind them.

References: Hartikainen and Sarkka (2010), Kalman filtering and smoothing solutions to temporal Gaussian process
regression models; Solin and Sarkka (2014), Explicit link between periodic covariance functions and state space models;
Sarkka and Solin (2019), Applied stochastic differential equations, section 12.3.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cache, reduce
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ...errors import KernelError
from ...problem import described_rows
from ..composites import atoms
from ..row_scaled import unscaled_kernel
from ..theta.descent_units import period_entries

MOST_STATES = 64  # numbers of a state, or of waves: time per row grows with their cube, or their square
LONGER, LONGER_STEPS = 1.1, 60  # times which a lengthscale that takes too many waves becomes longer, at most
TOLERANCE = 1e-6  # variance of all waves that are left out, in units of the noise variance
SURPLUS = 40  # waves behind the last one, from which the recurrence of Bessel functions begins
MATERN = {"matern12": 1, "matern32": 2, "matern52": 3}  # numbers of the state, nu + 1/2


class TooManyStates(KernelError):
    """A periodic kernel needs more waves than a state has room for."""


class Part(NamedTuple):
    """A kernel, or a part of one, as a state of its own."""

    h: Tensor  # [d]
    P: Tensor  # [d, d]
    move: Callable[[Tensor], tuple[Tensor, Tensor]]  # spans of time [...] -> F and Q [d, d, ...]


class StateSpace:
    """A kernel of one input as a process with a state of d numbers, and q waves beside it.

    Parameters
    ----------
    kernel : Kernel
        Matern and periodic kernels, their sums and products, or a `RowScaled` one of them; see `check_states`.
    theta : Tensor [p]
        Log-hyperparameters, which autograd may differentiate.

    Attributes
    ----------
    h : Tensor [d]
        f = h'x + w'phi.
    P : Tensor [d, d]
        The covariance of the state at any time.
    d, q : int
        Numbers of the state, and of waves: cosines, sines and constants.

    Raises
    ------
    TooManyStates
        If there are more than `MOST_STATES` of either.

    Notes
    -----
    Exact without periodic parts. With them, d and q depend on theta: the variance of the waves that are left out is at
    most `TOLERANCE` times that of the noise, so that the log likelihood of n rows changes by n `TOLERANCE` nats or
    less, in expectation under the model. For rows that the model does not describe, the change may be as many times
    larger as y'(K + V)^-1 y is larger than n.
    """

    def __init__(self, kernel: Any, theta: Float[Tensor, " p"]) -> None:
        theta = theta.double()
        terms = list(_terms(unscaled_kernel(kernel), theta))
        left_out = 0.0
        if any(part.key == "periodic" for term, _ in terms for part in atoms(term)):  # reading theta waits for a GPU
            left_out = TOLERANCE * math.exp(2.0 * float(theta[-1].detach())) / len(terms)
        parts = [_part(term, own, left_out) for term, own in terms if term.key != "periodic"]
        part = reduce(_stacked, parts) if parts else _no_state(theta)
        self.h, self.P, self.transitions, self.d = part.h, part.P, part.move, len(part.h)
        self._waves = [Waves(own, left_out) for term, own in terms if term.key == "periodic"]
        self.q = _limited(sum(2 * len(waves.amplitudes) - 1 for waves in self._waves))

    def waves(self, t: Tensor) -> Float[Tensor, "waves ..."]:
        """phi at these times, which should be counted from one nearby."""
        if not self._waves:
            return t.new_zeros(0, *t.shape)
        return torch.cat([waves.at(t) for waves in self._waves])


class Waves:
    """A periodic kernel as a constant and J waves.

    Parameters
    ----------
    theta : Tensor
        It begins with the log-hyperparameters of the kernel.
    left_out : float
        The variance that may be left out.
    """

    def __init__(self, theta: Tensor, left_out: float) -> None:
        sd, z = torch.exp(theta[0]), torch.exp(-2.0 * theta[1])
        J = wave_count(float(z.detach()), left_out / float(sd.detach()) ** 2)
        _limited(2 * J + 1)
        self.amplitudes = sd * wave_variances(z, J).sqrt()  # [J + 1]
        self.frequencies = 2.0 * math.pi * torch.exp(-theta[2]) * torch.arange(1, J + 1).to(theta)

    def angles(self, t: Tensor) -> Float[Tensor, "waves ..."]:
        """What the waves have turned by after these times."""
        return self.frequencies.reshape(-1, *[1] * t.ndim) * t

    def at(self, t: Tensor) -> Float[Tensor, "waves ..."]:
        """The constant, then cosines and sines, times the standard deviation of each."""
        angles, amplitudes = self.angles(t), self.amplitudes.reshape(-1, *[1] * t.ndim)
        constant = amplitudes[:1].expand(1, *t.shape)
        return torch.cat([constant, amplitudes[1:] * angles.cos(), amplitudes[1:] * angles.sin()])


def check_states(kernel: Any, theta: Float[Tensor, " p"], X: Any, method: str) -> None:
    """Raise KernelError unless there is one input and the kernel has such a form.

    Parameters
    ----------
    theta : Tensor [p]
        Log-hyperparameters.
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
    if not _has_state(base):
        raise KernelError(
            f"{method} needs matern12, matern32, matern52 or periodic, or sums and products of them such as "
            f"matern52+matern12*periodic, but the kernel is {kernel.key}; choose one of them, or the method vecchia "
            "for any stationary kernel."
        )
    StateSpace(kernel, theta)


def with_fewer_waves(kernel: Any, theta: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
    """The same theta, or one with longer lengthscales of its periodic parts where it needs too many waves."""
    if not _has_state(unscaled_kernel(kernel)):
        return theta  # `check_states` says why the kernel cannot be used
    names, longer = unscaled_kernel(kernel).names, theta.clone()
    entries = [names.index(f"{names[i].removesuffix('period')}lengthscale") for i in period_entries(kernel)]
    for _ in range(LONGER_STEPS):
        try:
            StateSpace(kernel, longer)
        except TooManyStates:
            longer[entries] += math.log(LONGER)
        else:
            return longer
    return theta


def state_size(kernel: Any, theta: Float[Tensor, " p"]) -> tuple[int, int]:
    """The numbers d and q, for forecasts of cost; a kernel that has no state counts as Matern 3/2."""
    try:
        space = StateSpace(kernel, theta) if _has_state(unscaled_kernel(kernel)) else None
    except TooManyStates:
        return MOST_STATES, MOST_STATES
    return (space.d, space.q) if space else (2, 0)


def _terms(kernel: Any, theta: Tensor) -> Iterator[tuple[Any, Tensor]]:
    """The terms of a sum, each with the theta that begins with its own entries."""
    if getattr(kernel, "sign", "") == "+":
        first, second = kernel.parts
        yield from _terms(first, theta)
        yield from _terms(second, theta[first.size :])
    else:
        yield kernel, theta


def _has_state(kernel: Any) -> bool:
    """Whether all that a kernel is made of has a small state."""
    return all(part.key == "periodic" or _matern_key(part) in MATERN for part in atoms(kernel))


def _matern_key(kernel: Any) -> str:
    """With one input, one lengthscale per input is one."""
    return str(kernel.key).removesuffix("-ard")


def _part(kernel: Any, theta: Tensor, left_out: float) -> Part:
    """The state of a kernel, which may leave out waves of this variance."""
    if kernel.key == "periodic":
        return _periodic(theta, left_out)
    if not getattr(kernel, "parts", ()):
        return _matern(MATERN[_matern_key(kernel)], theta)
    (first, second), own = kernel.parts, (theta, theta[kernel.parts[0].size :])
    if kernel.sign == "+":
        return _stacked(_part(first, own[0], left_out / 2.0), _part(second, own[1], left_out / 2.0))
    priors = [part.diag(t.detach(), t.new_zeros(1, 1)) for part, t in zip(kernel.parts, own, strict=True)]
    by_first, by_second = (left_out / 2.0 / float(variance[0]) for variance in priors)
    return _multiplied(_part(first, own[0], by_second), _part(second, own[1], by_first))


def _matern(d: int, theta: Tensor) -> Part:
    """The state of a Matern kernel: f and its first d - 1 derivatives."""
    rate = math.sqrt(2.0 * d - 1.0) * torch.exp(-theta[1])
    powers, gammas = (torch.from_numpy(matrices).to(theta).permute(1, 2, 0) for matrices in _matern_matrices(d))

    def move(dt: Tensor) -> tuple[Tensor, Tensor]:
        tau = rate * dt
        decay = torch.exp(-tau)
        F = torch.tensordot(powers, torch.stack([decay * tau**k for k in range(d)]), 1)
        return F, torch.tensordot(gammas, _gammas(2.0 * tau, decay.square(), 2 * d - 1), 1)

    return Part(torch.exp(theta[0]) * torch.eye(d).to(theta)[0], gammas.sum(2), move)


@cache
def _matern_matrices(d: int) -> tuple[np.ndarray, np.ndarray]:
    """F_0, F_1, ... [d, d, d] and Q_1, Q_2, ... [2 d - 1, d, d] of a Matern kernel whose state has d numbers.

    With the companion matrix A of (1 + x)^d, F = exp(A tau) is exp(-tau) times the powers of I + A up to d - 1. Noise
    enters at the last number alone, and spreads as the last columns f_k of F_k: Q is the integral of
    exp(-2 tau) sum_jk tau^(j + k) f_j f_k', scaled so that the variance of f is 1.
    """
    I_A = np.eye(d) + np.eye(d, k=1)
    I_A[-1] -= [math.comb(d, k) for k in range(d)]
    F = np.stack([np.linalg.matrix_power(I_A, k) / math.factorial(k) for k in range(d)])
    Q = np.zeros((2 * d - 1, d, d))
    for j, k in product(range(d), repeat=2):
        Q[j + k] += math.factorial(j + k) / 2.0 ** (j + k + 1) * np.outer(F[j, :, -1], F[k, :, -1])
    return F, Q / Q.sum(0)[0, 0]


def _periodic(theta: Tensor, left_out: float) -> Part:
    """The state of a periodic factor: a constant, then two numbers for each wave."""
    waves = Waves(theta, left_out)
    pairs = torch.stack([waves.amplitudes[1:], torch.zeros_like(waves.amplitudes[1:])], 1)
    h = torch.cat([waves.amplitudes[:1], pairs.flatten()])
    cosine = 2 * torch.arange(len(waves.frequencies), device=theta.device) + 1

    def move(dt: Tensor) -> tuple[Tensor, Tensor]:
        angles = waves.angles(dt)  # [J, ...]
        F = torch.eye(len(h)).to(dt).reshape(len(h), len(h), *[1] * dt.ndim).repeat(1, 1, *dt.shape)
        F[cosine, cosine] = F[cosine + 1, cosine + 1] = angles.cos()
        F[cosine, cosine + 1] = angles.sin()
        F[cosine + 1, cosine] = -angles.sin()
        return F, torch.zeros_like(F)

    return Part(h, torch.eye(len(h)).to(theta), move)


def _no_state(theta: Tensor) -> Part:
    """Of waves alone."""
    return Part(theta.new_zeros(0), theta.new_zeros(0, 0), lambda dt: (dt.new_zeros(0, 0, *dt.shape),) * 2)


def wave_count(z: float, share: float) -> int:
    """The waves J of a periodic kernel with z = 1 / l^2 behind which at most this share of its variance lies.

    If there are more than `MOST_STATES` numbers have room for, it is that number.
    """
    from scipy.special import ive

    shares = 2.0 * ive(np.arange(4 * MOST_STATES), z)
    behind = np.cumsum(shares[:0:-1])[::-1]  # [j] the share of all waves after the first j
    enough = np.flatnonzero(behind[:MOST_STATES] <= share)
    return int(enough[0]) if len(enough) else MOST_STATES


def wave_variances(z: Tensor, count: int) -> Float[Tensor, " waves"]:
    """The shares q_0, ..., q_J of the variance, which autograd can differentiate.

    The ratios r_j = I_j / I_j-1 = 1 / (2 j / z + r_j+1) come from behind, where all terms are positive; q_0 follows
    from the sum of all shares, 1.
    """
    ratio, ratios = torch.zeros_like(z), []
    for j in range(count + SURPLUS, 0, -1):
        ratio = 1.0 / (2.0 * j / z + ratio)
        ratios.append(ratio)
    relative = torch.cat([torch.ones_like(z)[None], 2.0 * torch.cumprod(torch.stack(ratios[::-1]), 0)])
    return relative[: count + 1] / relative.sum()


def _stacked(first: Part, second: Part) -> Part:
    """The state of a sum."""
    _limited(len(first.h) + len(second.h))

    def move(dt: Tensor) -> tuple[Tensor, Tensor]:
        F, Q = (_diagonal(*both) for both in zip(first.move(dt), second.move(dt), strict=True))
        return F, Q

    return Part(torch.cat([first.h, second.h]), _diagonal(first.P, second.P), move)


def _multiplied(first: Part, second: Part) -> Part:
    """The state of a product."""
    _limited(len(first.h) * len(second.h))

    def move(dt: Tensor) -> tuple[Tensor, Tensor]:
        (F_1, Q_1), (F_2, Q_2) = first.move(dt), second.move(dt)
        P_1, P_2 = (P.reshape(*P.shape, *[1] * dt.ndim) for P in (first.P, second.P))
        return _kronecker(F_1, F_2), _kronecker(Q_1, P_2) + _kronecker(P_1 - Q_1, Q_2)

    return Part(torch.kron(first.h, second.h), torch.kron(first.P, second.P), move)


def _limited(d: int) -> int:
    """The same number, if a state may have so many."""
    if d > MOST_STATES:
        raise TooManyStates(
            f"The kernel needs {d} numbers for its waves or its state, or more, and {MOST_STATES} are the most: a "
            "short lengthscale of a periodic part, beside little noise, takes many waves. Raise that lengthscale, "
            "which is one of a sine, or the noise; or choose the method vecchia."
        )
    return d


def _diagonal(A: Float[Tensor, "a a *B"], B: Float[Tensor, "b b *B"]) -> Float[Tensor, "d d *B"]:
    """Two blocks along the diagonal."""
    above, below = (X.new_zeros(len(X), len(Y), *X.shape[2:]) for X, Y in ((A, B), (B, A)))
    return torch.cat([torch.cat([A, above], 1), torch.cat([below, B], 1)])


def _kronecker(A: Float[Tensor, "a a ..."], B: Float[Tensor, "b b ..."]) -> Float[Tensor, "d d ..."]:
    """Kronecker products; times may be broadcast."""
    d, product = len(A) * len(B), A[:, None, :, None] * B[None, :, None]
    return product.reshape(d, d, *product.shape[4:])


def _gammas(x: Tensor, decay: Tensor, count: int) -> Tensor:
    """G(1, x), ..., G(count, x), from the last one downwards, since all terms are positive then; decay = exp(-x)."""
    if count == 1:
        return -torch.expm1(-x)[None]
    values = [torch.special.gammainc(torch.full_like(x, float(count)), x)]
    for k in range(count - 1, 0, -1):
        values.append(values[-1] + decay * x**k / math.factorial(k))
    return torch.stack(values[::-1])
