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

Floats = NDArray[np.float64]
FEW = 2**13  # numbers, of all chains together


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
    mixed: Tensor  # [r + 1] where s2 is added: 1, and 0


def halves(basis: Rotated) -> Halves:
    """What every evaluation needs, arranged once."""
    one = basis.e.new_ones(1)
    u2 = torch.cat([basis.u.square(), basis.rest * one]).mul_(0.5)
    times = torch.cat([torch.ones_like(basis.e), (basis.n - len(basis.e)) * one]).mul_(0.5)
    return Halves(torch.cat([basis.e, one]), u2, times, torch.cat([torch.ones_like(basis.e), 0.0 * one]))


def likelihood(given: Halves, z: Float[Tensor, "C q"]) -> Likelihood:
    """LML and all r + 1 slopes at z = (log w, log s2). About 15 r flops a chain, whatever n was.

    With r = 1000 and one chain the calls cost as much as the arithmetic, so there are few of them, and numpy's, which
    cost half of torch's.
    """
    if z.device.type == "cpu" and z.numel() <= FEW:
        e, u2, times, mixed = (part.numpy() for part in given)
        few = _of_few(e, u2, times, mixed, z.numpy())
        return Likelihood(*map(torch.from_numpy, few))
    parts = z.exp().mul_(given.e)  # [C, r + 1] w e, and s2
    s2 = parts[:, -1:]
    t = torch.addcmul(parts, s2, given.mixed)
    over = t.reciprocal()
    misfit = given.u2 * over
    value = misfit.sum(1).addmv_(t.log_(), given.times).neg_()
    common = misfit.sub_(given.times).mul_(over)
    noise = s2[:, 0] * common.sum(1)
    slope = parts.mul_(common)
    slope[:, -1] = noise
    return Likelihood(value, slope)


def _of_few(e: Floats, u2: Floats, times: Floats, mixed: Floats, z: Floats) -> tuple[Floats, Floats]:
    """The same, call by call."""
    parts = np.exp(z)
    parts *= e
    s2 = parts[:, -1:]
    t = s2 * mixed
    t += parts
    over = np.reciprocal(t)
    misfit = u2 * over
    value = -misfit.sum(1) - np.log(t, out=t) @ times
    misfit -= times
    misfit *= over
    noise = s2[:, 0] * misfit.sum(1)
    parts *= misfit
    parts[:, -1] = noise
    return value, parts


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
