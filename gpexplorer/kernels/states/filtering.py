"""The Kalman filter of a state space, side by side in many chunks of time, and its likelihood.

    predict   m <- F m,   C <- F C F' + Q
    observe   g = C h u / (1 + u h'C h),   m <- m + g (y - h'm),   C <- C - g h'C          u the information of the row

A Python loop over rows would cost more than all arithmetic. So the filter takes one step in every chunk at once, from
an unknown state x at the beginning of the chunk, on which its mean depends linearly, m = A x + b. What a chunk says
about x is a quadratic function, x'J x / 2 - eta'x + w / 2 + c. Two neighbouring chunks join to one of the same form,

    M = (I + C_1 J_2)^-1,   G^ = M (A_1, b_1 + C_1 eta_2),   (A, b) = A_2 G^ + (0, b_2),   C = A_2 M C_1 A_2' + C_2

    (J, -eta) = (J_1, -eta_1) + A_1'((J_2, 0) G^ - (0, eta_2))

and so on in pairs, which takes O(n) operations in O(sqrt(n)) calls. Several targets, each with a b and eta of its own
and a matrix w for all, share everything else. Nothing is inverted that small spans of time make singular.

Periodic terms, w'phi(t), are filtered as targets beside y: with V the covariance of what has a state and of the noise,

    S = I + phi'V^-1 phi,   -2 log p(y) = log det V + log det S + y'V^-1 y - y'V^-1 phi S^-1 phi'V^-1 y

References: Sarkka and Garcia-Fernandez (2021), Temporal parallelization of Bayesian smoothers; de Jong (1991), The
diffuse Kalman filter.

A `Smoother` says what all rows of a series say about the state at any time: filtered forwards, then backwards.

    r_i = h e_i / v_i + (I - h g_i')F'r_i+1,   N_i = h h' / v_i + (I - h g_i')F'N_i+1 F (I - g_i h')

From the rows before t the state has mean m and covariance P; r and N at t are what the rows behind it add:

    mean f(t) = h'(m + P r),   var f(t) = h'(P - P N P)h,   cov(f(s), f(t)) = h'P_s Phi'(I - N_t P_t)h,   s < t

where Phi moves the error of the filter from s to t. Between two rows, m, P, r and N move by F and Q, so that a new
point costs O(log n). Nothing is inverted.

Periodic terms, w'phi(t), are smoothed as targets beside y, and w ~ N(S^-1 phi'V^-1 y, S^-1) with S as above:

    mean f(t) = mean of y at t + u'w,   u = phi(t) - mean of phi at t,   var f(t) = the variance above + u'S^-1 u

References: de Jong (1989), Smoothing and interpolation with the state-space model; Durbin and Koopman (2012), Time
series analysis by state space methods, sections 4.4 to 4.7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .transitions import StateSpace

Parts = TypeVar("Parts", bound=tuple[Tensor, ...])

LEAST, SHARE = 16, 0.125  # rows per chunk: at least, and in units of the root of all
BLOCK_ROWS, BLOCK_NUMBERS = 2**17, 2**20  # rows whose steps are kept at once, and numbers of their covariances
ENTRYWISE = 8  # numbers of a state up to which products of matrices are faster entry by entry


class Series(NamedTuple):
    """Observations in the order of time: y_i = h'x(t_i) + e_i, where the variance of e_i is s2 / weight_i."""

    t: Tensor  # [u] increasing, no two the same
    y: Tensor  # [k, u] one or several targets
    weight: Tensor  # [u]


class Element(NamedTuple):
    """What B stretches of time do with an unknown state at their beginning; see the module docstring."""

    G: Tensor  # [d, d + k, B] (A, b), for k targets
    C: Tensor  # [d, d, B]
    S: Tensor  # [d, d + k, B] (J, -eta)
    w: Tensor  # [p, p, B] of the first p targets
    c: Tensor  # [B]


class Chunks(NamedTuple):
    """Rows in the form in which the filter walks: at each of L positions, one row of each of B chunks."""

    F: Tensor  # [d, d, L, B] transition to a row from the one before it
    Q: Tensor  # [d, d, L, B]
    u: Tensor  # [L, B] information: the inverse of the noise variance, 0 where there is no row
    y: Tensor  # [k, L, B]


class Walked(NamedTuple):
    """One step of the filter in all chunks."""

    m: Tensor  # [d, r, B] the mean before the row was seen; columns as in G
    C: Tensor  # [d, d, B] its covariance
    g: Tensor  # [d, B] the gain
    e: Tensor  # [r, B] the error of the prediction
    share: Tensor  # [B] u / (1 + u h'C h), the inverse of its variance
    ratio: Tensor  # [B] 1 + u h'C h


def merged(t: Tensor, y: Float[Tensor, "k n"], weight: Tensor) -> tuple[Series, Tensor]:
    """Rows in the order of time, those of one time as one, and the sum of squares [k] within the times, by weight.

    Parameters
    ----------
    t : Tensor [n]
        Times in any order.
    y : Tensor [k, n]
        Targets of f with noise.
    weight : Tensor [n]
        Inverse noise variances, up to a common factor.
    """
    times, place = torch.unique(t, return_inverse=True)
    if len(times) == len(t):
        order = t.argsort()
        return Series(times, y[:, order], weight[order]), y.new_zeros(len(y))
    totals = torch.zeros_like(times).index_add(0, place, weight)
    means = y.new_zeros(len(y), len(times)).index_add(1, place, y * weight) / totals
    return Series(times, means, totals), ((y - means[:, place]).square() * weight).sum(1)


def mm(A: Float[Tensor, "a b *B"], B: Float[Tensor, "b c *B"]) -> Float[Tensor, "a c *B"]:
    """Products of small matrices, whose rows and columns are the first two dimensions."""
    if A.shape[1] <= ENTRYWISE:
        return (A[:, :, None] * B[None]).sum(1)
    first, second = (M.movedim((0, 1), (-2, -1)).contiguous() for M in (A, B))  # as products of many matrices need it
    return (first @ second).movedim((-2, -1), (0, 1)).contiguous()


def chunk_length(n: int) -> int:
    """Steps of the filter for n rows: those of the chunks, which all walk at once."""
    return max(LEAST, math.ceil(SHARE * math.sqrt(n)))


def block_rows(d: int, k: int) -> int:
    """Rows that are filtered at once, for a state of d numbers and k targets."""
    return min(BLOCK_ROWS, BLOCK_NUMBERS // (d * (d + k) + k))


def chunks_of(space: StateSpace, rows: Series, s2: Tensor, before: Tensor | None = None) -> Chunks:
    """Cut rows into chunks; the first follows the time `before`, or the stationary state if there is none."""
    n = len(rows.t)
    length = chunk_length(n)
    rest = -n % length
    first = rows.t[:1] if before is None else before
    dt = _padded(torch.diff(rows.t, prepend=first), rest).reshape(-1, length).T  # [L, B]
    F, Q = space.transitions(dt.contiguous())
    if before is None:
        is_first = torch.zeros_like(dt, dtype=torch.bool)
        is_first[0, 0] = True
        F = torch.where(is_first, 0.0, F)
        Q = torch.where(is_first, space.P[:, :, None, None], Q)
    u = (_padded(rows.weight, rest) / s2).reshape(-1, length).T.contiguous()
    y = _padded(rows.y, rest).reshape(len(rows.y), -1, length).transpose(1, 2).contiguous()
    return Chunks(F, Q, u, y)


def walk(space: StateSpace, chunks: Chunks, m: Tensor, C: Tensor) -> Iterator[tuple[Walked, Tensor, Tensor]]:
    """Filter all chunks from these means [d, r, B] and covariances [d, d, B]: each step, and what it leads to.

    The last columns of the means are those of the targets; the others see targets 0, as derivatives do.
    """
    h, others = space.h, m.shape[1] - len(chunks.y)
    for F, Q, u, y in zip(*(part.unbind(-2) for part in chunks), strict=True):
        m, C = mm(F, m), mm(mm(F, C), F.transpose(0, 1)) + Q
        Ch = (C * h[:, None]).sum(1)  # [d, B]
        ratio = 1.0 + u * (h[:, None] * Ch).sum(0)
        share = u / ratio
        e = torch.nn.functional.pad(y, (0, 0, others, 0)) - (h[:, None, None] * m).sum(0)
        g = Ch * share
        step = Walked(m, C, g, e, share, ratio)
        m, C = torch.addcmul(m, g[:, None], e), torch.addcmul(C, g[:, None], Ch, value=-1.0)
        yield step, m, C


def elements(space: StateSpace, chunks: Chunks, p: int) -> Element:
    """Each chunk as an element, with w of the first p targets."""
    d, k, B = space.d, len(chunks.y), chunks.u.shape[1]
    G = torch.cat([torch.eye(d), torch.zeros(d, k)], 1).to(chunks.y)[:, :, None].expand(d, d + k, B)
    C = torch.zeros_like(chunks.Q[:, :, 0])
    S, errors, weighted_errors, ratios = torch.zeros_like(G), [], [], []
    for step, after, covariance in walk(space, chunks, G, C):
        G, C = after, covariance
        weighted = step.e * step.share
        S = S + step.e[:d, None] * weighted  # the errors of the first d columns are -h'A
        errors.append(step.e[d : d + p])
        weighted_errors.append(weighted[d : d + p])
        ratios.append(step.ratio)
    w = mm(torch.stack(errors, 1), torch.stack(weighted_errors))
    return Element(G, C, S, w, 0.5 * torch.stack(ratios).log().sum(0))


def joined(first: Element, second: Element) -> Element:
    """Stretches of time followed by others, as one element each."""
    d = len(first.C)
    eta = torch.cat([torch.zeros_like(second.S[:, :d]), second.S[:, d:]], 1)  # (0, -eta)
    A, J, b = second.G[:, :d], second.S[:, :d], torch.cat([torch.zeros_like(second.G[:, :d]), second.G[:, d:]], 1)
    I_CJ = torch.eye(d).to(A)[:, :, None] + mm(first.C, J)
    M = torch.linalg.inv(I_CJ.movedim(2, 0)).movedim(0, 2)
    G = mm(M, first.G - mm(first.C, eta))
    R = mm(J, G) + eta
    S = first.S + mm(first.G[:, :d].transpose(0, 1), R)
    own = slice(d, d + len(first.w))
    w = first.w + second.w + mm(first.G[:, own].transpose(0, 1), R[:, own]) + mm(eta[:, own].transpose(0, 1), G[:, own])
    C = mm(mm(A, mm(M, first.C)), A.transpose(0, 1)) + second.C
    c = first.c + second.c + 0.5 * torch.linalg.slogdet(I_CJ.movedim(2, 0)).logabsdet
    return Element(mm(A, G) + b, 0.5 * (C + C.transpose(0, 1)), S, w, c)


def total(parts: Element) -> Element:
    """All elements, in their order, as one."""
    while (B := parts.c.shape[0]) > 1:
        even = B - B % 2
        pairs = joined(
            Element(*(part[..., 0:even:2] for part in parts)), Element(*(part[..., 1:even:2] for part in parts))
        )
        rest = Element(*(part[..., even:] for part in parts))
        parts = Element(*(torch.cat(both, -1) for both in zip(pairs, rest, strict=True)))
    return parts


def scanned(join: Callable[[Parts, Parts], Parts], parts: Parts) -> Parts:
    """Each part joined with all before it: along the last dimension, in O(log B) calls."""
    make: Any = type(parts)
    width, B = 1, parts[0].shape[-1]
    while width < B:
        later = join(make(*(part[..., :-width] for part in parts)), make(*(part[..., width:] for part in parts)))
        parts = make(*(torch.cat([part[..., :width], more], -1) for part, more in zip(parts, later, strict=True)))
        width *= 2
    return parts


def nlml(kernel: object, theta: Float[Tensor, " p"], rows: Series, block: int = 0) -> Tensor:
    """The negative log likelihood of one target, which autograd can differentiate; constants of the data are left out.

    Parameters
    ----------
    kernel : Kernel
        See `StateSpace`.
    theta : Tensor [p]
        Log-hyperparameters, the last one the log noise standard deviation.
    rows : Series
        The observations.
    block : int
        Rows whose steps are remembered for the gradient at once, as `block_rows` has them with 0; those of several
        blocks are computed twice.

    Returns
    -------
    Tensor
        (y'(K + V)^-1 y + log det(V^-1 (K + V))) / 2 with V the noise variances.
    """
    theta = theta.double()
    shape = StateSpace(kernel, theta.detach())
    block = block or block_rows(shape.d, shape.q + 1)

    def element(theta: Tensor, start: int) -> Element:
        space, stop = StateSpace(kernel, theta), start + block
        part = with_waves(space, Series(rows.t[start:stop], rows.y[:, start:stop], rows.weight[start:stop]), rows.t[0])
        before = rows.t[start - 1 : start] if start else None
        return total(elements(space, chunks_of(space, part, torch.exp(2.0 * theta[-1]), before), len(part.y)))

    starts = range(0, len(rows.t), block)
    if len(starts) == 1:
        whole = element(theta, 0)
    else:
        parts = [checkpoint(element, theta, start, use_reentrant=False, preserve_rng_state=False) for start in starts]
        whole = total(Element(*(torch.cat(each, -1) for each in zip(*parts, strict=True))))
    w = whole.w[..., 0]
    L = root_of(w[1:, 1:])
    explained = torch.linalg.solve_triangular(L, w[1:, :1], upper=False)
    return whole.c[0] + 0.5 * (w[0, 0] - explained.square().sum()) + L.diagonal().log().sum()


def with_waves(space: StateSpace, rows: Series, origin: Tensor) -> Series:
    """The rows with the waves as further targets."""
    return rows._replace(y=torch.cat([rows.y, space.waves(rows.t - origin)]))


def root_of(information: Float[Tensor, "*b q q"]) -> Float[Tensor, "*b q q"]:
    """The Cholesky factor of S, from phi'V^-1 phi; nan where rounding has made it indefinite."""
    S = information + torch.eye(information.shape[-1]).to(information)
    L, failed = torch.linalg.cholesky_ex(0.5 * (S + S.mT))
    return torch.where(failed[..., None, None] == 0, L, math.nan)


def _padded(values: Tensor, rest: int) -> Tensor:
    """Values with `rest` zeros behind them."""
    return torch.nn.functional.pad(values, (0, rest))


class Backwards(NamedTuple):
    """What later rows say, as a function of what is said at the end of a stretch, z: r + T'z and N + T'Z T."""

    T: Tensor  # [d, d, B]
    r: Tensor  # [d, k, B]
    N: Tensor  # [d, d, B]


class AtTimes(NamedTuple):
    """The state at some times, from the rows until then, and what the rows behind them say."""

    m: Tensor  # [d, k, b]
    P: Tensor  # [d, d, b]
    r: Tensor  # [d, k, b]
    N: Tensor  # [d, d, b]
    last: Tensor  # [b] the last row until then, -1 before the first


class Reach(NamedTuple):
    """What covariances need of some times, in any order."""

    t: Tensor  # [b]
    last: Tensor  # [b] as in `AtTimes`
    Ph: Tensor  # [d, b] how the state there, and
    seen: Tensor  # [d, b] how the error of the filter there goes into f
    half: Tensor  # [q, b] the part of the waves is half'half


class Smoother:
    """The posterior of f, given a series.

    Parameters
    ----------
    kernel : Kernel
        See `StateSpace`.
    theta : Tensor [p]
        Log-hyperparameters; the noise is in the rows.
    rows : Series
        The observations, with inverse noise variances as weights.
    """

    def __init__(self, kernel: Any, theta: Float[Tensor, " p"], rows: Series) -> None:
        self.space, self.t, self.targets = StateSpace(kernel, theta.detach()), rows.t, len(rows.y)
        chunks = chunks_of(self.space, with_waves(self.space, rows, rows.t[0]), torch.ones_like(rows.t[0]))
        self.F = chunks.F.transpose(-1, -2).flatten(-2)[..., : len(rows.t)]
        keep, errors = self._forwards(chunks)
        self.keep = self._in_order(keep)
        self._backwards(chunks, keep, errors)

    def moments(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [k, b] and variance [b] of f, which autograd can differentiate in the times."""
        at, h = self.at(t), self.space.h
        Ph = (at.P * h[:, None]).sum(1)  # [d, b]
        var = (h[:, None] * Ph).sum(0) - (Ph * (at.N * Ph).sum(1)).sum(0)
        return self._with_waves(t, self._means(at, Ph), var, self.w)

    def filtered(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [k, b] and variance [b] of f at each time, from the rows until then."""
        at, h = self.at(t), self.space.h
        mean, var = (h[:, None, None] * at.m).sum(0), (h[:, None] * (at.P * h[:, None]).sum(1)).sum(0)
        if not self.space.q:
            return mean, var
        moments, w, seen = [(mean[:0, :0], var[:0])] * len(t), torch.zeros_like(self.w), 0
        for i in at.last.argsort().tolist():
            until, one = int(at.last[i]) + 1, slice(i, i + 1)
            w, seen = w + self.e[self.targets :, seen:until] @ self.weighted[:, seen:until].T, until
            moments[i] = self._with_waves(t[one], mean[:, one], var[one], w)
        return torch.cat([m for m, _ in moments], 1), torch.cat([v for _, v in moments])

    def cov(self, t: Tensor, s: Tensor | None = None) -> Tensor:
        """Covariance [b, c] of f between times and others, in any order; without others, among these times.

        O(b c), after O(n log n) for the way between them.
        """
        at_t = self._reach(t)
        at_s = at_t if s is None else self._reach(s)
        C = t.new_empty(len(t), len(at_s.t))
        self._write(at_t, at_s, (C, C.T) if s is None else (C,))
        if s is not None:
            self._write(at_s, at_t, (C.T,))
        return C.addmm_(at_t.half.T, at_s.half) if self.space.q else C

    def _reach(self, t: Tensor) -> Reach:
        at, h = self.at(t), self.space.h
        Ph = (at.P * h[:, None]).sum(1)  # [d, b]
        half = self._unexplained(t, self._means(at, Ph), self.w)
        return Reach(t, at.last, Ph, h[:, None] - (at.N * Ph).sum(1), half)

    def _write(self, source: Reach, target: Reach, covariances: tuple[Tensor, ...]) -> None:
        """Write the covariances [b, c] of each source and all targets at its time or later, without the waves."""
        order, stops = source.t.argsort(stable=True), target.t.argsort(stable=True)
        times, stop_times = source.t.detach()[order], target.t.detach()[stops].contiguous()
        first = torch.searchsorted(stop_times, times)  # the target that each source comes to first
        order, first = order[first < len(stops)], first[first < len(stops)]
        before = torch.searchsorted(times, stop_times, right=True).tolist()  # sources that have come to each target
        ends = torch.cat([stops[first], stops[1:]])
        from_t, from_last = (torch.cat([a[order], b[stops[:-1]]]) for a, b in zip(source[:2], target[:2], strict=True))
        steps = self._moves(from_t, from_last, target.t[ends], target.last[ends])
        carried = mm(steps[..., : len(order)], source.Ph[:, None, order])[:, 0]  # [d, b] at the first target
        steps = steps[..., len(order) :]
        for k, (stop, come) in enumerate(zip(stops.tolist(), before, strict=True)):
            if k:
                carried[:, : before[k - 1]] = steps[..., k - 1] @ carried[:, : before[k - 1]]
            values = target.seen[:, stop] @ carried[:, :come]
            for C in covariances:
                C[order[:come], stop] = values

    def at(self, t: Tensor) -> AtTimes:
        """The state at these times [b]."""
        n = len(self.t)
        last = torch.searchsorted(self.t, t.detach().contiguous(), right=True) - 1
        before, after = last.clamp_min(0), (last + 1).clamp_max(n - 1)
        has_before, has_after = last >= 0, last + 1 < n
        F, Q = self.space.transitions((t - self.t[before]).clamp_min(0.0))
        m = torch.where(has_before, mm(F, self.m[..., before]), 0.0)
        P = mm(mm(F, self.P[..., before]), F.transpose(0, 1)) + Q
        P = torch.where(has_before, P, self.space.P[:, :, None])
        F, _ = self.space.transitions((self.t[after] - t).clamp_min(0.0))
        F = torch.where(has_after, F, 0.0)
        r = mm(F.transpose(0, 1), self.r[..., after])
        return AtTimes(m, P, r, mm(mm(F.transpose(0, 1), self.N[..., after]), F), last)

    def _forwards(self, chunks: Chunks) -> tuple[list[Tensor], list[Tensor]]:
        """Filter; I - g h' and (h e / v, h h' / v) at each position, for the way back."""
        d, h = self.space.d, self.space.h
        until: Element = scanned(joined, elements(self.space, chunks, 0))
        m, C = (torch.nn.functional.pad(part[..., :-1], (1, 0)) for part in (until.G[:, d:], until.C))
        keep, means, covariances, errors, innovations, weighted = [], [], [], [], [], []
        for step, m_after, C_after in walk(self.space, chunks, m, C):
            keep.append(torch.eye(d).to(h)[:, :, None] - step.g[:, None] * h[:, None])
            means.append(m_after)
            covariances.append(0.5 * (C_after + C_after.transpose(0, 1)))
            both = torch.cat([step.e, h[:, None].expand(d, len(step.share))])  # [k + d, B]
            errors.append(h[:, None, None] * both * step.share)
            innovations.append(step.e)
            weighted.append(step.e * step.share)
        self.e, self.weighted = self._in_order(innovations), self._in_order(weighted)  # [k, n]
        self.w = self.e[self.targets :] @ self.weighted.T  # [q, k]
        self.m, self.P = self._in_order(means), self._in_order(covariances)
        return keep, errors

    def _backwards(self, chunks: Chunks, keep: list[Tensor], errors: list[Tensor]) -> None:
        """Find r and N of each row, with the row itself."""
        d, k, (L, B) = self.space.d, len(chunks.y), chunks.u.shape
        T = torch.eye(d).to(errors[0])[:, :, None].expand(d, d, B)
        end = Backwards(T, torch.zeros_like(errors[0][:, :k]), torch.zeros_like(T))
        within: list[Backwards] = []
        for i in reversed(range(L)):
            K, e = keep[i], errors[i]
            back = K.transpose(0, 1)
            row = Backwards(mm(end.T, K), mm(back, end.r) + e[:, :k], mm(mm(back, end.N), K) + e[:, k:])
            within.append(row)
            end = _moved(row, chunks.F[:, :, i])
        flipped = Backwards(*(part.flip(-1) for part in end))
        whole = Backwards(*(part.flip(-1) for part in scanned(_followed, flipped)))
        z, Z = (torch.nn.functional.pad(part[..., 1:], (0, 1)) for part in (whole.r, whole.N))
        rows = within[::-1]
        self.r = self._in_order([row.r + mm(row.T.transpose(0, 1), z) for row in rows])
        self.N = self._in_order([row.N + mm(mm(row.T.transpose(0, 1), Z), row.T) for row in rows])

    def _means(self, at: AtTimes, Ph: Tensor) -> Tensor:
        """Of all targets [k, b]."""
        return (self.space.h[:, None, None] * at.m).sum(0) + (Ph[:, None] * at.r).sum(0)

    def _unexplained(self, t: Tensor, mean: Tensor, w: Tensor) -> Tensor:
        """L^-1 u [q, b], with S = L L'."""
        u = self.space.waves(t - self.t[0]) - mean[self.targets :]
        return torch.linalg.solve_triangular(root_of(w[:, self.targets :]), u, upper=False)

    def _with_waves(self, t: Tensor, mean: Tensor, var: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [k, b] and variance [b] of f from those of the targets and w [q, k]."""
        half, k = self._unexplained(t, mean, w), self.targets
        weights = torch.linalg.solve_triangular(root_of(w[:, k:]), w[:, :k], upper=False)  # [q, k]
        return mean[:k] + weights.T @ half, var + half.square().sum(0)

    def _in_order(self, parts: list[Tensor]) -> Tensor:
        """What was found at each position in all chunks, by rows."""
        return torch.stack(parts, -1).flatten(-2)[..., : len(self.t)]

    def _moves(self, t: Tensor, i: Tensor, s: Tensor, j: Tensor) -> Tensor:
        """How the error of the filter moves [d, d, b] from times t to later ones s; i and j are the last rows there."""
        n = len(self.t)
        F, _ = self.space.transitions((s - t).clamp_min(0.0))
        to_row, _ = self.space.transitions((self.t[(i + 1).clamp_max(n - 1)] - t).clamp_min(0.0))
        from_row, _ = self.space.transitions((s - self.t[j.clamp_min(0)]).clamp_min(0.0))
        over, at, left = to_row, i + 1, (j - i - 1).clamp_min(0)
        power, width = mm(self.F[..., 1:n], self.keep[..., :-1]), 1  # over one row
        while bool((left > 0).any()):
            odd = left % (2 * width) >= width
            over = torch.where(odd, mm(power[..., torch.where(odd, at, 0)], over), over)
            at, left = torch.where(odd, at + width, at), torch.where(odd, left - width, left)
            power = mm(power[..., width:], power[..., :-width]) if power.shape[-1] > width else power
            width *= 2
        return torch.where(j > i, mm(from_row, mm(self.keep[..., j.clamp_min(0)], over)), F)


def _moved(row: Backwards, F: Tensor) -> Backwards:
    """What is said at a row, said right behind the one before it."""
    return Backwards(mm(row.T, F), mm(F.transpose(0, 1), row.r), mm(mm(F.transpose(0, 1), row.N), F))


def _followed(later: Backwards, earlier: Backwards) -> Backwards:
    """An earlier stretch, followed by a later one."""
    back = earlier.T.transpose(0, 1)
    r, N = earlier.r + mm(back, later.r), earlier.N + mm(mm(back, later.N), earlier.T)
    return Backwards(mm(later.T, earlier.T), r, N)
