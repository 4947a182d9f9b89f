"""Cholesky factors that report how much jitter they needed.

With them come inverses, and projections onto matrices with a lower bound on the eigenvalues.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import NotPositiveDefinite
from .deferred_reads import Number, add_multiple, at_least, happens, number

FLOAT32_HINT = (
    "float32 resolves its entries to 7 digits only: use dtype float64, raise the noise, drop duplicate rows, or use "
    "fewer points."
)
INDEPENDENCE_BLOCK = 256  # rows whose independence of the accepted rows before them is decided together
SMALLEST_PIVOT = 500.0  # times eps and the mean of the diagonal: smaller pivots consist of rounding
_record: ContextVar[dict[str, float] | None] = ContextVar("jitter", default=None)  # of the current thread


LARGEST = 1e-4  # jitter that is added at most, relative to the mean of the diagonal
SLOW_SIZE, BORDER = 128, 8  # MKL factors so many rows two to three times slower than with so many rows more


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


def factor(A: Float[Tensor, "m m"]) -> tuple[Float[Tensor, "m m"], Tensor]:
    """Return the lower Cholesky factor and LAPACK's error code [], which is not zero where there is no factor.

    Notes
    -----
    m^3 / 3 flops. On a CPU, MKL takes two to three times longer for 128 rows, a usual number of features and of
    inducing points, than for 129 or 136. Such a matrix gets a border of ones on the diagonal, which changes the factor
    by rounding only. Other multiples of 64 are slow as well, but there the copies take what the border saves.
    """
    if not _is_copied(A):
        L, info = torch.linalg.cholesky_ex(A)
        return L, info
    m = len(A)
    size = m + BORDER if m == SLOW_SIZE else m
    rows = A.new_empty(size, size)
    rows[:, m:].zero_()
    rows.diagonal()[m:].fill_(1.0)
    rows[:m, :m].copy_(A if A.is_contiguous() else A.mT)  # A is symmetric
    L, info = _factor_in_place(rows)
    return L[:m, :m], info


def _is_copied(A: Tensor) -> bool:
    """Whether symmetric matrices [..., m, m] are copied before they are factored in place.

    On a CPU, torch.linalg.cholesky_ex copies the lower triangle entry by entry, which takes as long as LAPACK. With
    a copy of whole rows, it takes half to three quarters of the time for 200 rows or more. The factor has the same bits
    on some processors and differs by rounding on others, where MKL rounds by the address of a matrix.
    """
    return A.shape[-1] >= SLOW_SIZE and A.is_cpu and not A.requires_grad


def _factor_in_place(rows: Tensor) -> tuple[Tensor, Tensor]:
    """The lower factors of symmetric matrices [..., m, m] in the memory of their rows, and LAPACK's error codes."""
    L, info = rows.mT, rows.new_empty(rows.shape[:-2], dtype=torch.int32)  # LAPACK stores by columns
    torch.linalg.cholesky_ex(L, out=(L, info))
    return L, info


def cholesky(
    A: Float[Tensor, "m m"],
    name: str,
    largest: float = LARGEST,
    noted: bool = True,
    accurate: bool = False,
    diagonal: Float[Tensor, " m"] | None = None,
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
    diagonal : Tensor [m], optional
        What jitter is relative to, instead of the diagonal of A. For a Schur complement: the diagonal before the
        subtraction, whose rounding may leave no positive number in A.

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
    if not A.is_cpu:  # one read instead of two or three
        L, info = factor(A)
        if not happens(_has_small_pivot(L, A.diagonal().mean()).logical_or_(info) if accurate else info):
            return Cholesky(L, 0.0)
    scale, jitter = _finite_scale(A, name), 0.0
    scale = scale if diagonal is None else float(diagonal.mean())
    while True:
        L, info = factor(A if jitter == 0.0 else A + jitter * torch.eye(len(A)).to(A))
        if int(info) == 0:
            next_jitter = _next_jitter(jitter, scale, A)
            if not (accurate and next_jitter <= largest * scale and bool(_has_small_pivot(L, scale))):
                return _with_jitter_noted(L, jitter, name if noted else "")
        jitter = _permitted(_next_jitter(jitter, scale, A), largest * scale, A, name)


def cholesky_in_place(fill: Callable[[Tensor], None], A: Float[Tensor, "m m"], name: str) -> Cholesky:
    """Factor a large symmetric matrix in the memory that it is computed in: `cholesky` needs twice as much.

    Parameters
    ----------
    fill : callable
        Writes the diagonal of the matrix and all entries to the right of it into `A`. It is called again if jitter is
        needed.
    A : Tensor [m, m]
        Contiguous memory, which is overwritten.
    name : str
        As for `cholesky`, with its default of the largest jitter.

    Returns
    -------
    Cholesky
        The factor is a view of `A`.

    Raises
    ------
    NotPositiveDefinite
        As `cholesky` does.

    Notes
    -----
    m^3 / 3 flops per attempt. Gradients do not pass through it.
    """
    jitter = 0.0
    while True:
        fill(A)
        scale = _finite_scale(A, name)
        A.diagonal().add_(jitter)
        L, info = _factor_in_place(A)
        if int(info) == 0:
            return _with_jitter_noted(L, jitter, name)
        jitter = _permitted(_next_jitter(jitter, scale, A), LARGEST * scale, A, name)


def cholesky_of_each(A: Float[Tensor, "k m m"], name: str) -> Float[Tensor, "k m m"]:
    """Return the factors of several matrices with as little jitter as each needs, which is not recorded.

    They are one operation and one read if none needs jitter. k m^3 / 3 flops.
    """
    if _is_copied(A):
        L, info = _factor_in_place(A.clone(memory_format=torch.contiguous_format))
    else:
        L, info = torch.linalg.cholesky_ex(A)
    if not happens(info.any()):
        return L
    return torch.stack([cholesky(part, name, noted=False).L for part in A])


def independent_rows(A: Float[Tensor, "k k"], least: Float[Tensor, " k"], most: int | None = None) -> Tensor:
    """Return the rows of a covariance matrix that those before them do not explain.

    Parameters
    ----------
    A : Tensor [k, k]
        Symmetric, positive semidefinite to rounding.
    least : Tensor [k]
        A residual variance that is not larger counts as explained.
    most : int, optional
        Return only the first rows, this number at most, and look at no block behind them.

    Returns
    -------
    Tensor [<= k]
        Indices in increasing order. Among these rows alone, A has a Cholesky factor.

    Notes
    -----
    k^3 / 3 flops in products of matrices: the rows are taken in blocks of INDEPENDENCE_BLOCK, whose covariance without
    what the accepted rows before the block explain decides within the block. A block without an explained row takes
    one Cholesky factor, another one O(k) operations per row.
    """
    k, accepted = len(A), list[int]()
    most = k if most is None else most
    L = torch.zeros_like(A)  # the Cholesky factor of A among the accepted rows
    for begin in range(0, k, INDEPENDENCE_BLOCK):
        block, q = slice(begin, min(begin + INDEPENDENCE_BLOCK, k)), len(accepted)
        S = A[block, block]
        if q:
            A_q = A[:, block].index_select(0, torch.tensor(accepted, device=A.device))  # [q, b]
            R = torch.linalg.solve_triangular(L[:q, :q], A_q, upper=False)
            S = S - R.T @ R  # [b, b]
        own, L_own = _independent_in_block(S, least[block])
        end = q + len(own)
        if q:
            L[q:end, :q] = R[:, own].T
        L[q:end, q:end] = L_own
        accepted += [begin + row for row in own]
        if len(accepted) >= most:
            break
    return torch.tensor(accepted[:most], dtype=torch.int64, device=A.device)


def _independent_in_block(S: Tensor, least: Tensor) -> tuple[list[int], Tensor]:
    """The rows of S [b, b] that those before them do not explain, and the Cholesky factor of S among them."""
    L, info = factor(S)
    if not happens((L.diagonal().square() <= least).any().logical_or_(info)):
        return list(range(len(S))), L
    D, columns = S.diagonal().clone(), torch.zeros_like(S)  # residual variances, and columns of the Cholesky factor
    accepted: list[int] = []
    for j in range(len(S)):
        if float(D[j]) <= float(least[j]):
            continue
        q = len(accepted)
        column = (S[:, j] - columns[:, :q] @ columns[j, :q]) / D[j].sqrt()
        columns[:, q] = column
        D = D - column.square()
        accepted.append(j)
    return accepted, columns[accepted, : len(accepted)].tril()


def _finite_scale(A: Tensor, name: str) -> float:
    """The mean of the diagonal, which must be finite."""
    scale = float(A.diagonal().mean()) if len(A) else 1.0
    if not math.isfinite(scale):
        raise NotPositiveDefinite(
            name, len(A), 0.0, "It contains values that are not finite: check the hyperparameters."
        )
    return scale


def _next_jitter(jitter: float, scale: float, A: Tensor) -> float:
    """The jitter of the next attempt: 8 eps times the mean of the diagonal, and then ten times more."""
    return 10.0 * jitter if jitter else 8.0 * torch.finfo(A.dtype).eps * scale


def _permitted(jitter: float, largest: float, A: Tensor, name: str) -> float:
    """The jitter, or an error if it is larger than the largest one, which is not positive for a negative diagonal."""
    if jitter > largest or largest <= 0.0:
        raise NotPositiveDefinite(name, len(A), jitter, FLOAT32_HINT if A.dtype == torch.float32 else "")
    return jitter


def _with_jitter_noted(L: Tensor, jitter: float, name: str) -> Cholesky:
    """The result, after its jitter is written into the record of this context under a name, if there is one."""
    if jitter and name and (record := _record.get()) is not None:
        record[name] = max(jitter, record.get(name, 0.0))
    return Cholesky(L, jitter)


def _has_small_pivot(L: Tensor, scale: float | Tensor) -> Tensor:
    """Whether the smallest squared pivot consists of rounding, where the mean of the diagonal of A is `scale`."""
    return (L.diagonal().square() <= SMALLEST_PIVOT * torch.finfo(L.dtype).eps * scale).any()


def logdet(L: Float[Tensor, "m m"]) -> float:
    """Return log det A for the lower factor L of A."""
    return 2.0 * float(L.diagonal().log().sum())


def solve_transposed(L: Float[Tensor, "m m"], B: Float[Tensor, "m k"]) -> Float[Tensor, "m k"]:
    """Return L^-T B for a lower triangular L. m^2 k flops."""
    return torch.linalg.solve_triangular(L.T, B, upper=True)


SLACK = 1e-6  # lifted eigenvalues exceed the floor by this fraction, so that rounding does not cause the next lift
MARGIN = 0.5  # a lift ends above the floor by this times the rate, so that the next steps need none
MAX_RATIO = 4.0  # root mean square of (floor / eigenvalue)^k up to which the smooth lift is used
MAX_SQUARINGS = 6  # so that k is at most 64


def project_above(A: Float[Tensor, "D D"], floor: Number) -> Float[Tensor, "D D"]:
    """Replace A in place by the nearest symmetric matrix with A >= floor I.

    Cost: D^3 / 3 flops if A satisfies the bound already, 9 D^3 more if eigenvalues have to be raised.
    """
    floor = at_least(floor, 4.0 * _rounding(A))
    return _project(A, floor) if happens(_is_below(A, floor)) else A


def lift_above(A: Float[Tensor, "D D"], floor: Number, rate: float) -> tuple[Float[Tensor, "D D"], Number]:
    """Raise the eigenvalues of A that a step has taken below `floor`, in place, by a smooth function.

    Where all eigenvalues are at least `floor`, A stays as it is. Otherwise, with x = eigenvalue / least and least =
    (1 + MARGIN rate) floor, f(x) = x + c x^-k with c = k^k / (k + 1)^(k + 1) is at least 1 for every x > 0. For k about
    1 / rate, eigenvalues at `least` are raised by 1 / (e k) of it, and larger ones hardly: by 3e-7 at twice `least` for
    k = 16. The function needs only products with the inverse, which is known; the nearest matrix would need all
    eigenvalues, and is used only if eigenvalues are far below the floor. Most steps need no lift because of the margin.

    Parameters
    ----------
    A : Tensor [D, D]
        Symmetric matrix [D, D], changed in place.
    floor : Number
        Lower bound of the eigenvalues.
    rate : float
        The fraction by which the last step may have decreased an eigenvalue.

    Returns
    -------
    The inverse of A [D, D] and log |A|, after the lift.

    Notes
    -----
    Cost: 4/3 D^3 flops without a lift; with one, D^3 and log2 k matrix products more, and another 10 D^3 if eigenvalues
    are computed.
    """
    floor = at_least(floor, 4.0 * _rounding(A))
    is_below = number(_is_below(A, floor))
    L, info = factor(A.mT)
    if happens(info):
        return inverse_and_logdet(_project(A, floor), "A")
    inverse, logdet = _from_factor(L)
    if not isinstance(is_below, Tensor) and not is_below:
        return inverse, logdet
    least, squarings = (1.0 + SLACK + MARGIN * min(rate, 1.0)) * floor, num_squarings(rate)
    Y, k = inverse * least, 2**squarings
    for _ in range(squarings):
        Y = torch.mm(Y, Y)
    is_far_below = Y.norm() > MAX_RATIO * math.sqrt(len(A))
    height = least * (k / (k + 1)) ** k / (k + 1)
    if isinstance(is_below, Tensor):  # on a GPU, where the host does not know whether any eigenvalue is below the floor
        is_below = is_below > 0
        is_far_below, Y, height = is_far_below & is_below, Y.where(is_below, 0.0), height * is_below
    if happens(is_far_below):
        return inverse_and_logdet(_project(A, floor), "A")
    return inverse_and_logdet(add_multiple(A, Y, height), "A")


def num_squarings(rate: float) -> int:
    """Return log2 k for the largest power of two k that is at most 1 / rate, limited to `MAX_SQUARINGS`."""
    return min(max(math.floor(-math.log2(rate)), 0), MAX_SQUARINGS)


def inverse_and_logdet(A: Float[Tensor, "D D"], name: str) -> tuple[Float[Tensor, "D D"], Number]:
    """Return A^-1 and log |A|, with jitter only if rounding has made A indefinite. D^3 flops.

    Raises
    ------
    NotPositiveDefinite : if the jitter does not help; `name` is the name of the matrix in the message.
    """
    L, info = factor(A.mT)  # A is symmetric; its transpose has the memory layout of LAPACK
    if happens(info):
        L = cholesky(A, name).L
    return _from_factor(L)


def project_to_unit_ball(B: Float[Tensor, "D D"]) -> Float[Tensor, "D D"]:
    """Replace B in place by the nearest matrix whose Frobenius norm is at most 1."""
    size = number(B.norm())
    if isinstance(size, Tensor):
        return B.div_(size.clamp_min(1.0))
    return B.div_(size) if size > 1.0 else B


def _rounding(A: Tensor) -> Number:
    """The rounding error of an eigenvalue; A's precision can distinguish four times this value from zero."""
    return torch.finfo(A.dtype).eps * number(A.trace())


def _project(A: Tensor, floor: Number) -> Tensor:
    values, Q = torch.linalg.eigh(A)
    return A.copy_((Q * values.clamp_min((1.0 + SLACK) * floor)) @ Q.T)


def _is_below(A: Tensor, floor: Number) -> Tensor:
    """Not zero where an eigenvalue of A is below the floor, so that A - floor I has no factor."""
    shifted = A.mT.clone()  # A is symmetric; its transpose has the memory layout of LAPACK
    shifted.diagonal().sub_(floor)
    return factor(shifted)[1]


def _from_factor(L: Tensor) -> tuple[Tensor, Number]:
    """The inverse, stored row by row like the matrices it is added to, and the log determinant."""
    return torch.cholesky_inverse(L).mT, 2.0 * number(L.diagonal().log().sum())
