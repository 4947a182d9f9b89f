"""Weights of eigenfunctions that are orthogonal on the training rows: likelihood and all its slopes in O(p).

Phi'Phi = V diag(e) V',  Psi = Phi V,  Psi'Psi = diag(e),  u_i = psi_i'y / sqrt(e_i)        Evans and Nair, section 5
K ~ Psi diag(w) Psi'     (w = 1: the grid's own kernel, eq 16-17 in the rotated basis),   t_i = s2 + w_i e_i
LML = -(sum_i u_i^2 / t_i + log t_i  +  (y'y - u'u) / s2 + (n - r) log s2) / 2              eq 18 with P diagonal
dLML/dlog w_i = w_i e_i (u_i^2 / t_i - 1) / 2 t_i
dLML/dlog s2  = s2 sum_i (u_i^2 / t_i - 1) / 2 t_i + (y'y - u'u) / 2 s2 - (n - r) / 2
f(x) = psi(x)'b,  b_i | y ~ N(w_i psi_i'y / t_i, s2 w_i / t_i)

n enters through e, u and two numbers only. The b_i are independent given the noise: so are their weights.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from .together import Together

Floats = NDArray[np.float64]


class Rotated(NamedTuple):
    """What is left of n rows once the basis is orthogonal on them; in float64, whatever the rows were."""

    V: Tensor  # [p, r] eigenvectors of the Gram matrix, r <= min(n, p)
    e: Tensor  # [r] its eigenvalues, largest first
    u: Tensor  # [r] coordinates of y along the functions, made unit vectors
    rest: float  # y'y - u'u: what of y no function reaches
    n: int


class Likelihood(NamedTuple):
    """Log marginal likelihood without its constant, and its slopes, for each of C chains."""

    value: Tensor  # [C]
    slope: Tensor  # [C, r + 1] in log w and, last, log s2


def rotate(A: Float[Tensor, "p p"], c: Float[Tensor, " p"], yy: float, n: int, eps: float) -> Rotated:
    """The basis from Phi'Phi, Phi'y and y'y. 9 p^3 flops, once.

    Directions below `eps` p of the largest eigenvalue are rounding, and are left out: the Gram matrix holds squares.
    """
    e, V = torch.linalg.eigh(A.double())
    e, V = e.flip(0), V.flip(1)
    rank = min(int((e > eps * len(e) * e[0]).sum()), n)
    e, V = e[:rank], V[:, :rank].contiguous()
    u = (V.T @ c.double()) / e.sqrt()
    return Rotated(V, e, u, max(yy - float(u @ u), 0.0), n)


class Halves(NamedTuple):
    """Half of everything the likelihood sums, the noise's own terms standing last: one row of operations does all."""

    e: Tensor  # [r + 1] eigenvalues, and 1
    u2: Tensor  # [r + 1] u^2 / 2, and (y'y - u'u) / 2
    times: Tensor  # [r + 1] how often each log t counts: 1/2, and (n - r) / 2
    alone: Alone | None  # for one chain, where numpy can reach it
    together: Together  # for many


def halves(basis: Rotated) -> Halves:
    """What every evaluation needs, arranged once."""
    one = basis.e.new_ones(1)
    e = torch.cat([basis.e, one])
    u2 = torch.cat([basis.u.square(), basis.rest * one]).mul_(0.5)
    times = torch.cat([torch.ones_like(basis.e), (basis.n - len(basis.e)) * one]).mul_(0.5)
    alone = None if e.is_cuda else Alone(e.numpy(), u2.numpy(), times.numpy())
    return Halves(e, u2, times, alone, Together(e, u2, times))


def likelihood(given: Halves, z: Float[Tensor, "C q"], slope: Float[Tensor, "C q"] | None = None) -> Likelihood:
    """LML and all r + 1 slopes at z = (log w, log s2), written into `slope` where it is given and C > 1.

    About 15 r flops a chain, whatever n was.
    """
    if given.alone and len(z) == 1:
        total, slopes = given.alone(z[0].numpy())
        return Likelihood(torch.from_numpy(total), torch.from_numpy(slopes)[None])
    slope = torch.empty_like(z) if slope is None else slope
    return Likelihood(given.together(z, slope), slope)


class Alone:
    """The likelihood of one chain: with r = 1000 a call costs as much as its arithmetic.

    So there are few of them, numpy's, which cost half of torch's, into arrays that are held: one thread at a time.
    """

    def __init__(self, e: Floats, u2: Floats, times: Floats) -> None:
        self._e, self._u2, self._times, self._ones = e, u2, times, np.ones_like(e)
        self._t, self._common = np.empty_like(e), np.empty_like(e)

    def __call__(self, z: Floats) -> tuple[Floats, Floats]:
        """Value [1], and slopes [r + 1] in an array of their own."""
        t, common = self._t, self._common
        with np.errstate(all="ignore"):  # a move too far is infinite or no number, and is refused
            parts = np.exp(z)
            np.multiply(parts, self._e, parts)
            s2 = parts[-1]
            np.add(parts, s2, t)
            t[-1] = s2
            np.divide(self._u2, t, common)
            value = common.dot(self._ones)
            np.subtract(common, self._times, common)
            np.divide(common, t, common)
            np.log(t, t)
            np.multiply(parts, common, parts)
            parts[-1] = s2 * common.dot(self._ones)
            return np.array([-value - t.dot(self._times)]), parts


def fisher(basis: Rotated, z: Float[Tensor, " q"]) -> Float[Tensor, " q"]:
    """Expected curvature of the likelihood in each of log w and log s2, at one point."""
    s2, we = z[-1].exp(), z[:-1].exp() * basis.e
    t = we + s2
    noise = s2.square() * t.square().reciprocal().sum() + (basis.n - len(basis.e))
    return 0.5 * torch.cat([(we / t).square(), noise[None]])


def coefficients(basis: Rotated, z: Float[Tensor, "k q"]) -> tuple[Tensor, Tensor]:
    """Posterior mean and variance [k, r] of the coefficients b at each of k draws."""
    s2, w = z[:, -1:].exp(), z[:, :-1].exp()
    share = w / (s2 + w * basis.e)
    return share * (basis.u * basis.e.sqrt()), s2 * share
