"""Basis functions that are orthogonal on the training rows: likelihood and all derivatives in O(p).

    Phi'Phi = V diag(e) V',  Psi = Phi V,  Psi'Psi = diag(e),  u_i = psi_i'y / sqrt(e_i)              section 5
    K ~ Psi diag(w) Psi',  t_i = s2 + w_i e_i                                       eqs 16 and 17 in the new basis
    LML = -(sum_i (u_i^2 / t_i + log t_i) + (y'y - u'u) / s2 + (n - r) log s2) / 2          eq 18, with P diagonal
    dLML/dlog w_i = w_i e_i (u_i^2 / t_i - 1) / (2 t_i)
    dLML/dlog s2  = s2 sum_i (u_i^2 / t_i - 1) / (2 t_i) + (y'y - u'u) / (2 s2) - (n - r) / 2
    f(x) = psi(x)'b,  b_i | y ~ N(w_i psi_i'y / t_i, s2 w_i / t_i)

Section and equation numbers refer to Evans and Nair (2018). With w = 1 this is the kernel of the grid itself. The
functions are not normalised here (the paper divides by the singular values sqrt(e_i)), so that w = 1 keeps this
meaning. The rows enter through e, u and two numbers only, so an evaluation does not depend on n. Given the noise, the
coefficients b_i are independent of each other.

Symbols: r functions, r <= min(n, p); C chains; z = (log w, log s2) [r + 1].
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from ...kernels.theta.restrictions import NoiseLimits

Floats = NDArray[np.float64]
GROUP = 8  # this many factors are multiplied before one logarithm is taken
SMALLEST = torch.finfo(torch.float64).tiny
# the search for the most likely noise variance: its lower bound, its range, and how often the grid is refined
SMALLEST_LOG_NOISE, NOISE_DECADES, REFINEMENTS = -60.0, 12.0, 4


class OrthogonalBasis(NamedTuple):
    """All that the likelihood needs of n rows. The numbers are float64 for any dtype of the rows."""

    V: Tensor  # [p, r] eigenvectors of the Gram matrix Phi'Phi
    e: Tensor  # [r] its eigenvalues in descending order
    u: Tensor  # [r] coordinates of y along the functions, normalised to unit vectors
    rest: float  # y'y - u'u, the part of y that no function can fit
    n: int  # rows


class Likelihood(NamedTuple):
    """Log marginal likelihood without its constant, and its gradient, for each of C chains."""

    value: Tensor  # [C]
    gradient: Tensor  # [C, r + 1] in log w and, as the last entry, log s2


def orthogonalise(A: Float[Tensor, "p p"], c: Float[Tensor, " p"], yy: float, n: int, eps: float) -> OrthogonalBasis:
    """Make the orthogonal basis.

    Parameters
    ----------
    A, c : tensors [p, p] and [p]
        Phi'Phi and Phi'y.
    yy : float
        y'y.
    n : int
        Number of rows.
    eps : float
        Machine epsilon of the precision in which A was computed. Directions whose eigenvalue is below eps p times the
        largest are rounding error and are left out, because A contains squares.

    Returns
    -------
    OrthogonalBasis

    Notes
    -----
    The cost is 9 p^3 flops, once.
    """
    e, V = torch.linalg.eigh(A.double())
    e, V = e.flip(0), V.flip(1)
    rank = min(int((e > eps * len(e) * e[0]).sum()), n)
    e, V = e[:rank], V[:, :rank].contiguous()  # [r], [p, r]
    u = (V.T @ c.double()) / e.sqrt()  # [r]
    return OrthogonalBasis(V, e, u, max(yy - float(u @ u), 0.0), n)


def orthogonalise_rows(Phi: Float[Tensor, "n p"], y: Float[Tensor, " n"], eps: float) -> OrthogonalBasis:
    """Make the same basis from Phi itself, which is cheaper than `orthogonalise` if n < p.

    The eigenvalues e are those of Phi Phi' = U diag(e) U' [n, n], with V = Phi'U / sqrt(e) and u = U'y. The cost is
    n^2 p + 9 n^3 flops, once.
    """
    Phi, y = Phi.double(), y.double()
    e, U = torch.linalg.eigh(Phi @ Phi.T)
    e, U = e.flip(0), U.flip(1)
    rank = int((e > eps * Phi.shape[1] * e[0]).sum())
    e, U = e[:rank], U[:, :rank]  # [r], [n, r]
    u = U.T @ y  # [r]
    return OrthogonalBasis(Phi.T @ U / e.sqrt(), e, u, max(float(y @ y - u @ u), 0.0), len(y))


class LikelihoodTerms(NamedTuple):
    """The likelihood with its constants, the term of the noise as their last entry: one formula does all entries."""

    single: SingleChain | None  # for one chain, if numpy can read the memory
    several: SeveralChains  # for several chains


def likelihood_terms(basis: OrthogonalBasis) -> LikelihoodTerms:
    """Arrange the constants of the likelihood once for many evaluations."""
    ones = basis.e.new_ones(1)
    e = torch.cat([basis.e, ones])  # [r + 1] eigenvalues, and 1
    half_u2 = torch.cat([basis.u.square(), basis.rest * ones]).mul_(0.5)  # [r + 1] u^2 / 2, and (y'y - u'u) / 2
    # [r + 1] factor of each log t: 1/2, and (n - r) / 2
    multiplicity = torch.cat([torch.ones_like(basis.e), (basis.n - len(basis.e)) * ones]).mul_(0.5)
    single = None if e.is_cuda else SingleChain(e.numpy(), half_u2.numpy(), multiplicity.numpy())
    return LikelihoodTerms(single, SeveralChains(e, half_u2, multiplicity))


def likelihood(
    terms: LikelihoodTerms, z: Float[Tensor, "C q"], gradient: Float[Tensor, "C q"] | None = None
) -> Likelihood:
    """Evaluate the likelihood and its gradient at z = (log w, log s2) for C chains.

    Parameters
    ----------
    z : tensor [C, r + 1]
    gradient : tensor [C, r + 1], optional
        An array into which the gradient is written if C > 1.

    Notes
    -----
    The cost is about 15 r flops per chain, independent of n.
    """
    if terms.single and len(z) == 1:
        value, derivatives = terms.single(z[0].numpy())
        return Likelihood(torch.from_numpy(value), torch.from_numpy(derivatives)[None])
    gradient = torch.empty_like(z) if gradient is None else gradient
    return Likelihood(terms.several(z, gradient), gradient)


class SingleChain:
    """The likelihood of one chain, in numpy and into arrays that are reused: one thread at a time.

    At r = 1000 the overhead of a call costs as much as its arithmetic. A numpy call has half the overhead of a torch
    call, and the formula is arranged so that there are few calls.
    """

    def __init__(self, e: Floats, half_u2: Floats, multiplicity: Floats) -> None:
        self._e, self._half_u2, self._multiplicity, self._ones = e, half_u2, multiplicity, np.ones_like(e)
        self._t, self._common = np.empty_like(e), np.empty_like(e)

    def __call__(self, z: Floats) -> tuple[Floats, Floats]:
        """Return the value [1], and the gradient [r + 1] in a new array."""
        t, common = self._t, self._common
        with np.errstate(all="ignore"):  # a proposal that is too far gives inf or nan, and is rejected
            parts = np.exp(z)
            np.multiply(parts, self._e, parts)  # [r + 1] w e, and s2
            s2 = parts[-1]
            np.add(parts, s2, t)  # [r + 1] t = w e + s2, and s2
            t[-1] = s2
            np.divide(self._half_u2, t, common)
            value = common.dot(self._ones)  # sum of u^2 / 2t
            np.subtract(common, self._multiplicity, common)
            np.divide(common, t, common)  # [r + 1] (u^2 / t - 1) / 2t
            np.log(t, t)
            np.multiply(parts, common, parts)  # dLML/dlog w
            parts[-1] = s2 * common.dot(self._ones)  # dLML/dlog s2
            return np.array([-value - t.dot(self._multiplicity)]), parts


class SeveralChains:
    """The likelihood of C chains at once, in a dozen passes over arrays that are reused: one call at a time.

        w e = 2^(z / log 2 + log2 e),  t = w e + s2,  sum log t = sum over groups of eight of log (t_1 ... t_8)

    A power of 2 costs half of a power of e, and one logarithm of a product of eight numbers costs an eighth of eight
    logarithms. A product that underflows is replaced by the smallest float; no chain goes there.
    """

    def __init__(self, e: Tensor, half_u2: Tensor, multiplicity: Tensor) -> None:
        self._half_u2, self._minus_multiplicity, self._log2_e = half_u2, -multiplicity, e.log2()
        self._noise_multiplicity = float(multiplicity[-1])
        self._buffers = (e[:0], e[:0])  # [C, r + 1] each, allocated at the first call

    def __call__(self, z: Tensor, gradient: Tensor) -> Tensor:
        """Return the value [C], and write the gradient into `gradient` [C, r + 1]."""
        if self._buffers[0].shape != z.shape:
            self._buffers = (torch.empty_like(z), torch.empty_like(z))
        t, common = self._buffers
        parts = torch.add(self._log2_e, z, alpha=1.0 / math.log(2.0), out=gradient).exp2_()  # [C, r + 1] w e, and s2
        s2 = parts[:, -1].clone()  # [C]
        torch.add(parts, s2[:, None], out=t)[:, -1] = s2  # [C, r + 1] t = w e + s2, and s2
        logs = self._sum_of_logs(t, z[:, -1])
        over_t = t.reciprocal_()
        torch.addcmul(self._minus_multiplicity, self._half_u2, over_t, out=common).mul_(over_t)
        parts.mul_(common)[:, -1] = common.sum(1).mul_(s2)
        return torch.addmv(logs, over_t, self._half_u2, beta=-1.0, alpha=-1.0)

    def _sum_of_logs(self, t: Tensor, log_s2: Tensor) -> Tensor:
        """Sum of multiplicity_i log t_i [C]; every multiplicity but that of the noise is 1/2."""
        r = t.shape[1] - 1
        whole = r - r % GROUP
        products = t[:, :whole].unflatten(1, (GROUP, whole // GROUP)).prod(1)
        logs = products.clamp_min_(SMALLEST).log_().sum(1)
        if whole < r:
            logs += t[:, whole:r].log().sum(1)
        return logs.mul_(0.5).add_(log_s2, alpha=self._noise_multiplicity)


def fisher_information(basis: OrthogonalBasis, z: Float[Tensor, " q"]) -> Float[Tensor, " q"]:
    """Return the diagonal [r + 1] of the Fisher information in (log w, log s2) at one z."""
    s2, we = z[-1].exp(), z[:-1].exp() * basis.e
    t = we + s2
    noise = s2.square() * t.square().reciprocal().sum() + (basis.n - len(basis.e))
    return 0.5 * torch.cat([(we / t).square(), noise[None]])


def most_likely_noise(basis: OrthogonalBasis, limits: NoiseLimits | None = None) -> float:
    """Return the log noise variance that maximises the likelihood with weights w = 1. O(r) per try.

    A prior of the noise is a factor of the likelihood. There may be several modes, so that a grid of 97 values is
    searched before the best one is refined.
    """
    total = basis.rest + float(basis.u.square().sum())  # y'y
    if not total > 0.0:
        return SMALLEST_LOG_NOISE
    high = math.log(total / basis.n)
    e, u2, spare = basis.e, basis.u.square(), basis.n - len(basis.e)

    def objective(log_s2: Tensor) -> Tensor:  # [k] -> [k], twice the NLML: eq 18
        s2 = log_s2.exp()[:, None]
        t = s2 + e
        value = (u2 / t + t.log()).sum(1) + basis.rest / s2[:, 0] + spare * log_s2
        if limits is None:
            return value
        return value + 2.0 * value.new_tensor(
            [limits.penalty(0.5 * log_variance)[0] for log_variance in log_s2.tolist()]
        )

    low, high = max(high - NOISE_DECADES * math.log(10.0), SMALLEST_LOG_NOISE), high + 1.0
    for _ in range(REFINEMENTS):
        tries = torch.linspace(low, high, 97, dtype=e.dtype, device=e.device)
        best = int(objective(tries).argmin())
        low, high = float(tries[max(best - 1, 0)]), float(tries[min(best + 1, 96)])
    return 0.5 * (low + high)


def coefficient_posterior(basis: OrthogonalBasis, z: Float[Tensor, "k q"]) -> tuple[Tensor, Tensor]:
    """Return the posterior mean and variance [k, r] of the coefficients b, given each of k draws of z."""
    s2, w = z[:, -1:].exp(), z[:, :-1].exp()
    ratio = w / (s2 + w * basis.e)  # [k, r] w / t
    return ratio * (basis.u * basis.e.sqrt()), s2 * ratio
