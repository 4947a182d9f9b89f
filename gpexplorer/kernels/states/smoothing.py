"""What all rows of a series say about the state at any time: filtered forwards, then smoothed backwards.

    r_i = h e_i / v_i + (I - h g_i')F'r_i+1,   N_i = h h' / v_i + (I - h g_i')F'N_i+1 F (I - g_i h')

From the rows before t the state has mean m and covariance P; r and N at t are what the rows behind it add:

    mean f(t) = h'(m + P r),   var f(t) = h'(P - P N P)h,   cov(f(s), f(t)) = h'P_s Phi'(I - N_t P_t)h,   s < t

where Phi moves the error of the filter from s to t. Between two rows, m, P, r and N move by F and Q, so that a new
point costs O(log n). Nothing is inverted.

Periodic terms, w'phi(t), are smoothed as targets beside y, and w ~ N(S^-1 phi'V^-1 y, S^-1) with S as in `filtering`:

    mean f(t) = mean of y at t + u'w,   u = phi(t) - mean of phi at t,   var f(t) = the variance above + u'S^-1 u

References: de Jong (1989), Smoothing and interpolation with the state-space model; Durbin and Koopman (2012), Time
series analysis by state space methods, sections 4.4 to 4.7.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .filtering import Chunks, Element, Series, chunks_of, elements, joined, mm, root_of, scanned, walk, with_waves
from .transitions import StateSpace


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

    def cov(self, t: Tensor) -> Tensor:
        """Covariance [b, b] of f at times in any order: O(b^2), after O(n log n) for the way between them."""
        order = t.argsort(stable=True)
        at, h = self.at(t[order]), self.space.h
        Ph = (at.P * h[:, None]).sum(1)  # [d, b]
        seen = h[:, None] - (at.N * Ph).sum(1)  # [d, b]
        steps = self._moves(t[order], at.last)
        upper, carried = t.new_zeros(len(t), len(t)), torch.zeros_like(Ph)
        for j in range(len(t)):
            if j:
                carried[:, :j] = steps[:, :, j - 1] @ carried[:, :j]
            carried[:, j] = Ph[:, j]
            upper[: j + 1, j] = seen[:, j] @ carried[:, : j + 1]
        back = order.argsort()
        C = (upper + upper.triu(1).T)[back][:, back]
        half = self._unexplained(t[order], self._means(at, Ph), self.w)[:, back]
        return C + half.T @ half

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
            row = Backwards(
                mm(end.T, K),
                mm(K.transpose(0, 1), end.r) + e[:, :k],
                mm(mm(K.transpose(0, 1), end.N), K) + e[:, k:],
            )
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

    def _moves(self, t: Tensor, last: Tensor) -> Tensor:
        """How the error of the filter moves [d, d, b - 1] from each of these times, in their order, to the next."""
        i, j, n = last[:-1], last[1:], len(self.t)
        F, _ = self.space.transitions(torch.diff(t))
        to_row, _ = self.space.transitions((self.t[(i + 1).clamp_max(n - 1)] - t[:-1]).clamp_min(0.0))
        from_row, _ = self.space.transitions((t[1:] - self.t[j.clamp_min(0)]).clamp_min(0.0))
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
    return Backwards(
        mm(later.T, earlier.T), earlier.r + mm(back, later.r), earlier.N + mm(mm(back, later.N), earlier.T)
    )
