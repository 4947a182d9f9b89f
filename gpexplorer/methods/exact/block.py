"""A growing block: the greedy choice of its rows, its columns, the factor of its matrix, and its exact minimiser.

    min over t, t_C of f(a + e_B t + e_C t_C)                  eq 6 for the rows of B, with coarse rows C added

    W = A_:C L_C^-T    [n, m], computed once for all rows;     A_CC = L_C L_C'
    h = L_C^-1 g_C     [m]
    M = A_BB - W_B W_B' = L L'                                  [b, b], L grows by borders as rows join (eqs 11 to 13)
    M t = -(g_B - W_B h),   v = h + W_B't,   t_C = -L_C^-T v    the minimiser
    e = g + A_:B t - W v                                        the gradient after the step (Algorithm 1, line 4)

Coarse rows C are solved for together with every block. W takes the place of A_C: a block only multiplies with it, and
nothing is solved again. The arithmetic of a block has the precision of its columns, so that the step may be inexact by
their rounding; the gradient after it belongs to the very step that is taken. The paper updates the inverse of A_BB
(eq 12); borders of its Cholesky factor cost as much and are more stable. Few columns of a large matrix are selected by
index_select, which takes a third of the time that brackets take.

Rows are chosen by Algorithm 2 (`fill_block`):

    1. B empty, e = g, all rows are candidates O
    3. s = argmax over O of e_i^2 / (2 A_ii): the decrease of f if row i alone moved                            eq 10
    4. update the factor of A_BB and t                                                                         (`Block`)
    5. B = B + {s}
    6. draw new candidates O of size 60, e = g + A_:B t at O

Three sets of candidates are possible. The paper draws `pool` random rows for each row that joins. All rows are better,
but then each e takes a read of all columns, which is most of the time of a block. A shortlist of the rows whose gains
are largest at the beginning gives blocks that are nearly as good as those from all rows, at a fraction of these reads:
with 4 candidates per row, kin40k at n = 10000 takes 154 iterations instead of 148, and 8.2 seconds instead of 10.1.

Equation numbers are those of Bo and Sminchisescu (2008).

Steps can be combined with those before them: the best coefficients along each cost no kernel entry.

    min over c of f(a + P c),   P = [p_0, p_1, ..., p_h],   P'A P c = -P'g        Narkiss and Zibulevsky (2005), SESOP

p_0 is the step that a block has just made, and p_1 ... p_h are the steps before it. A p is the change of the gradient
that a step made, so it is available. With one block of all rows and h = 1 this is the method of conjugate gradients.
With greedy blocks, h = 2 halves the number of iterations, and larger h bring little more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.cholesky import cholesky
from ...linalg.deferred_reads import happens
from ...linalg.kernel_columns import kernel_rows
from ...linalg.matrix_products import add_product, minus_product, product
from ...linalg.preconditioners import drawn_root
from ...linalg.randomness import generator
from ...problem import take
from .reliability import Point
from .system import System, updated_gradient

BORDER = "A_BB [border of the block]"
BORDER_FLOAT32 = "A_BB [border of the block, of float32 columns: set mixed=False]"
NEGLIGIBLE = 0.1  # of the largest gradient entry: the choice of rows hardly depends on so little


class CoarseRows:
    """Rows that are solved for together with every block; they carry the smooth part of the gradient.

    Parameters
    ----------
    system : System
        The linear system.
    count : int
        Number m of coarse rows; 0 switches them off.
    seed : int
        Seed of the draw. Rows are drawn with the variance that the previous ones leave unexplained as probability,
        which explains more than rows drawn uniformly.

    Attributes
    ----------
    rows : Tensor [m]
        Their indices C.
    W : Tensor [n, m]
        A_:C L_C^-T.
    L : Tensor [m, m]
        Cholesky factor of A_CC, computed in float64, in the precision of the data.
    is_coarse : Tensor [n]
        True at these rows.

    Notes
    -----
    m^3 / 3 + n m^2 flops and n m kernel entries, once per theta; n m numbers of memory.
    """

    def __init__(self, system: System, count: int, seed: int) -> None:
        def rows_of_K(rows: Tensor) -> Tensor:
            return kernel_rows(columns.kernel, columns.theta, take(columns.X, rows), columns.X)

        columns, exact = system.columns, system.exact
        self.W = columns.theta.new_empty(system.n, count)
        self.rows = drawn_root(rows_of_K, system.diag - system.s2, self.W, seed, system.s2)
        X = take(exact.X, self.rows)
        A_CC = exact.kernel(exact.theta, X, X) if count else exact.theta.new_empty(0, 0)  # [m, m]
        A_CC.diagonal().add_(system.s2)
        self.L = cholesky(A_CC, "A_CC [coarse rows]").L.to(system.diag.dtype)
        self.W[self.rows] = self.L.to(self.W.dtype)  # A = K + s2 I at these rows: A_CC L_C^-T = L_C
        self.is_coarse = torch.zeros_like(system.diag, dtype=torch.bool).index_fill_(0, self.rows, True)


class Minimiser(NamedTuple):
    """The exact minimiser over the rows of a block and the coarse rows."""

    v: Tensor  # [m] coefficients of the columns of W, negated: t_C = -L_C^-T v
    t: Tensor  # [b] step at the rows of the block


class BlockBuffers:
    """The buffers of a block and of its shortlist, which one block after another overwrites.

    The operating system hands out large arrays as pages of zeros, at the first write to each page: to copy 4000 rows of
    2500 numbers takes 13 ms into a new array and 2.5 ms into an old one.

    Parameters
    ----------
    W : Tensor [n, m]
        The columns of the coarse rows, whose number, precision and device the buffers take.
    block : int
        Largest number of rows b of a block.

    Attributes
    ----------
    A : Tensor [b, n]
        Columns of the rows of a block.
    W : Tensor [b, m]
        The rows of W that belong to it.
    L : Tensor [b, b]
        Its Cholesky factor. What lies above the diagonal has no meaning.
    """

    def __init__(self, W: Tensor, block: int) -> None:
        n, m = W.shape
        self.A, self.W, self.L = W.new_empty(block, n), W.new_empty(block, m), W.new_empty(block, block)
        self._shortlist = (W.new_empty(0, m), W.new_empty(block, 0))

    def shortlist(self, candidates: int) -> tuple[Tensor, Tensor]:
        """Return buffers for the rows of W [c, m] and the columns of a block [b, c] that belong to c candidates."""
        W, A = self._shortlist
        if len(W) != candidates:
            W, A = self._shortlist = W.new_empty(candidates, W.shape[1]), A.new_empty(len(A), candidates)
        return W, A


class Block:
    """The active set B of one iteration, to which rows are added a few at a time.

    Parameters
    ----------
    system : System
        The linear system.
    gradient : Tensor [n]
        Gradient g at the current alpha.
    coarse : CoarseRows
        Rows that are solved for together with the block.
    buffers : BlockBuffers
        Buffers for the block, which the next block may overwrite; they determine the largest number of rows b.

    Notes
    -----
    Adding a row costs n kernel entries and q (q + 2 m) flops for the border, where q rows are in the block already.
    """

    def __init__(self, system: System, gradient: Tensor, coarse: CoarseRows, buffers: BlockBuffers) -> None:
        self.system, self.g, self.coarse, self.buffers = system, gradient, coarse, buffers
        self.A, self.W, self.L = buffers.A, buffers.W, buffers.L
        self.rows = torch.zeros(0, dtype=torch.int64, device=gradient.device)
        self.h = torch.linalg.solve_triangular(coarse.L, gradient[coarse.rows][:, None], upper=False)[:, 0]  # [m]
        self._h = self.h.to(self.A.dtype)
        self.u = self.A.new_empty(len(self.A))  # L^-1 of the right-hand side -(g_B - W_B h)

    def join(self, new: Tensor) -> None:
        """Add rows [c]: compute their columns, and extend the factor of M by a border (eqs 11 to 13)."""
        q, end, dtype = len(self.rows), len(self.rows) + len(new), self.A.dtype
        A, W, W_new = self.system.rows(new, self.A[q:end]), self.W[:q], self.W[q:end]  # [c, n], [q, m], [c, m]
        torch.index_select(self.coarse.W, 0, new, out=W_new)

        inner = add_product(A.index_select(1, new), W_new, W_new.T, -1.0)  # [c, c] of M
        right = torch.addmv(self.g[new].to(dtype), W_new, self._h, beta=-1.0)
        if q:
            side = add_product(A.index_select(1, self.rows), W_new, W.T, -1.0)  # [c, q] of M
            border = torch.linalg.solve_triangular(self.L[:q, :q], side.T, upper=False).T  # [c, q] of L
            inner.addmm_(border, border.T, alpha=-1.0)
            right.addmv_(border, self.u[:q], alpha=-1.0)
            self.L[q:end, :q] = border
        L = cholesky(inner, BORDER_FLOAT32 if self.system.mixed else BORDER, largest=1e-2).L  # [c, c]
        self.L[q:end, q:end] = L
        self.u[q:end] = torch.linalg.solve_triangular(L, right[:, None], upper=False)[:, 0]
        self.rows = torch.cat([self.rows, new]) if q else new

    @property
    def coarse_step_is_negligible(self) -> Tensor:
        """Whether no gradient entry of a coarse row exceeds a tenth of the largest, so that e hardly differs from g.

        The coarse rows alone change the gradient by W h, which is -g_C interpolated to all rows.
        """
        largest, at_coarse_rows = (torch.linalg.vector_norm(g, torch.inf) for g in (self.g, self.g[self.coarse.rows]))
        return at_coarse_rows <= NEGLIGIBLE * largest

    def minimiser(self) -> Minimiser:
        """The exact minimiser over the rows added so far and the coarse rows (eq 6)."""
        q = len(self.rows)
        if not q:
            return Minimiser(v=self.h, t=self.u[:0])
        t = torch.linalg.solve_triangular(self.L[:q, :q].T, self.u[:q, None], upper=True)[:, 0]
        return Minimiser(v=updated_gradient(self.h, self.W[:q], t), t=t)

    def moved(self, alpha: Tensor, minimiser: Minimiser) -> Tensor:
        """alpha [n] after the step at the coarse rows and at the rows of the block. m^2 flops."""
        t_C = torch.linalg.solve_triangular(self.coarse.L.T, minimiser.v[:, None], upper=True)[:, 0]  # [m], negated
        after = alpha.index_add(0, self.coarse.rows, t_C, alpha=-1.0)
        return after.index_add_(0, self.rows, minimiser.t.to(alpha.dtype))

    def gradient(self, minimiser: Minimiser, rows: Tensor | None = None) -> Tensor:
        """Gradient e = g + A_:B t - W v after the step, at all rows [n] or at some rows. 2 (b + m) flops per row."""
        g, A, W = self.g, self.A[: len(self.rows)], self.coarse.W
        if rows is not None:
            g, A, W = g[rows], A.index_select(1, rows), W[rows]
        if len(minimiser.v):
            g = minus_product(g, W, minimiser.v)
        return updated_gradient(g, A, minimiser.t) if len(minimiser.t) else g

    def gradient_for_choice(self, candidates: Tensor | None) -> Tensor:
        """Gradient at all rows, or at the candidates, after the step that is possible so far."""
        if len(self.rows):
            return self.gradient(self.minimiser(), candidates)
        g = self.g if candidates is None else self.g[candidates]
        if not len(self.h):
            return g
        if not self.g.is_cpu:  # a product takes less time than to wait for the answer
            return torch.where(self.coarse_step_is_negligible, g, self.gradient(self.minimiser(), candidates))
        return g if self.coarse_step_is_negligible else self.gradient(self.minimiser(), candidates)

    def joint_step(self, g_B: Tensor, h: Tensor | None) -> tuple[Tensor, Tensor]:
        """The minimiser over the block and the coarse rows for many gradients, with the factor of this block.

        Parameters
        ----------
        g_B : Tensor [b, k]
            Gradients at the rows of the block, in the precision of its columns.
        h : Tensor [m, k], optional
            L_C^-1 g_C; zero if omitted, as it is after a step that solves for the coarse rows.

        Returns
        -------
        t : Tensor [b, k]
            Steps at the rows of the block.
        v : Tensor [m, k]
            Coefficients of the columns of W, negated, in the precision of the data: t_C = -L_C^-T v.

        Notes
        -----
        2 b (b + m) k flops, and twice the part with m if h is given.
        """
        q, dtype = len(self.rows), self.A.dtype
        W_B, L = self.W[:q], self.L[:q, :q]
        right = -g_B if h is None else torch.addmm(g_B, W_B, h.to(dtype), beta=-1.0)
        t = torch.linalg.solve_triangular(L.T, torch.linalg.solve_triangular(L, right, upper=False), upper=True)
        v = product(W_B.T, t).to(self.coarse.L.dtype)
        return t, v if h is None else v.add_(h)


def after_coarse_step(system: System, point: Point, coarse: CoarseRows) -> Point:
    """The point after the best step at the coarse rows alone; the same point if that step is negligible.

    Every block solves for the coarse rows too, and combinations of its steps keep their gradient zero if it is zero at
    first. A block is then chosen by the gradient as it is, which saves a read of W per block. 2 n m flops.
    """
    nothing = Block(system, point.gradient, coarse, BlockBuffers(coarse.W, 0))
    if not len(coarse.rows) or nothing.coarse_step_is_negligible:
        return point
    step = nothing.minimiser()
    return Point(nothing.moved(point.alpha, step), nothing.gradient(step))


class BlockSizes(NamedTuple):
    """How blocks are chosen; the fields are those of the settings of GBCD."""

    block: int = 500
    chunk: int = 50
    coarse: int = 500
    pool: int = 0
    seed: int = 0
    shortlist: int = 0


def fill_block(system: System, block: Block, sizes: BlockSizes, number: int) -> Iterator[Tensor]:
    """Algorithm 2: fill a block, and yield the decrease of f that each new row promises alone.

    Parameters
    ----------
    system : System
        The linear system.
    block : Block
        An empty block, made for the gradient that the choice is for.
    sizes : BlockSizes
        How many rows join at a time, and their candidates.
    number : int
        Number of the block, for the draws of candidates.

    Notes
    -----
    n b (b + 2 m) / chunk flops; with a shortlist 2 n m + s b^2 (b + 2 m) / chunk.
    """
    b = len(block.A)
    if sizes.shortlist and not sizes.pool and sizes.chunk < b and sizes.shortlist * b < len(block.g):
        yield from _fill_from_shortlist(system, block, sizes)
        return
    taken = block.coarse.is_coarse.clone()  # [n]
    while len(block.rows) < b:  # line 2
        count = min(sizes.chunk, b - len(block.rows))
        size = sizes.pool * count if len(block.rows) else 0  # O of lines 1, 6: first all rows, then a random subset
        candidates = _candidates(taken, count, size, (sizes.seed, "pool", number, len(block.rows)))
        e = block.gradient_for_choice(candidates)  # lines 1 and 6
        factors, closed = (part if candidates is None else part[candidates] for part in (system.gain_factors, taken))
        best = (e * factors).mul_(e).masked_fill_(closed, -torch.inf).topk(count)  # eq 10
        new = best.indices if candidates is None else candidates[best.indices]  # line 3
        taken.index_fill_(0, new, True)
        block.join(new)  # lines 4 and 5
        yield best.values


def _candidates(taken: Tensor, count: int, size: int, place: tuple[int, str, int, int]) -> Tensor | None:
    """`size` random candidates for `count` new rows; None means all rows, also where too few of them are free."""
    if not size or size >= len(taken):
        return None
    drawn = torch.randperm(len(taken), generator=generator(*place))[:size].to(taken.device)
    return drawn if int((~taken[drawn]).sum()) >= count else None


class Shortlist:
    """Candidates that are the same for all rows of a block, with their part of the columns.

    Parameters
    ----------
    block : Block
        An empty block.
    rows : Tensor [c]
        The candidates.

    Notes
    -----
    c (m + b) numbers are copied per block, into buffers that the next block overwrites.
    """

    def __init__(self, block: Block, rows: Tensor) -> None:
        self.rows, self.g = rows, block.g[rows]
        self.W, self.A = block.buffers.shortlist(len(rows))  # [c, m], [b, c]
        torch.index_select(block.coarse.W, 0, rows, out=self.W)
        self._filled = 0

    def gradient(self, block: Block) -> Tensor:
        """Gradient e [c] at the candidates after the step that is possible so far. 2 c (b + m) flops."""
        new, minimiser = slice(self._filled, len(block.rows)), block.minimiser()
        at_candidates = self.rows.expand(new.stop - new.start, -1)
        torch.gather(block.A[new], 1, at_candidates, out=self.A[new])  # index_select would use one thread
        self._filled = new.stop
        return updated_gradient(minus_product(self.g, self.W, minimiser.v), self.A[: new.stop], minimiser.t)


def _fill_from_shortlist(system: System, block: Block, sizes: BlockSizes) -> Iterator[Tensor]:
    """Fill a block with the best of the rows whose gains are largest at the beginning."""
    b = len(block.A)
    e = block.gradient_for_choice(None)
    gain = (e * system.gain_factors).mul_(e).masked_fill_(block.coarse.is_coarse, -torch.inf)  # line 1
    best = gain.topk(sizes.shortlist * b)
    shortlist, gain, factors = Shortlist(block, best.indices), best.values, system.gain_factors[best.indices]
    taken = gain == -torch.inf  # coarse rows, where too few others are left
    while True:
        chosen = gain.topk(min(sizes.chunk, b - len(block.rows)))  # line 3
        taken.index_fill_(0, chosen.indices, True)
        block.join(shortlist.rows[chosen.indices])  # lines 4 and 5
        yield chosen.values
        if len(block.rows) == b:  # line 2
            return
        e = shortlist.gradient(block)
        gain = (e * factors).mul_(e).masked_fill_(taken, -torch.inf)  # line 6


def combine_steps(
    before: Point, after: Point, memory: tuple[Tensor, ...], keep: int, iteration: int
) -> tuple[Point, tuple[Tensor, ...]]:
    """Move to the minimiser of f on the plane that the last step and `keep` earlier steps span.

    Parameters
    ----------
    before, after : Point
        The iterates before and after the step.
    memory : tuple of Tensor [n]
        Earlier steps p and their products A p, alternating; empty at the start.
    keep : int
        Number of earlier steps; 0 returns `after` unchanged.
    iteration : int
        Number of the iteration: the new step replaces the oldest one, in place iteration % keep.

    Returns
    -------
    point : Point
        The minimiser with its gradient.
    memory : tuple of Tensor [n]
        Steps and products for the next call.

    Notes
    -----
    4 n (keep + 1) + 2 n flops besides the small system.
    """
    if not keep:
        return after, ()
    steps = torch.stack([after.alpha - before.alpha, after.gradient - before.gradient, *memory])
    P, AP = steps.unflatten(0, (-1, 2)).unbind(1)  # [h, n] each
    H = P @ AP.T  # [h, h]
    if happens(0.0 * torch.linalg.vector_norm(H, torch.inf)):  # nan, as the step has overflowed: it will be rejected
        return after, memory
    c = best_coefficients(H, P @ after.gradient)  # [h]
    point = Point(torch.addmv(after.alpha, P.T, c, alpha=-1.0), torch.addmv(after.gradient, AP.T, c, alpha=-1.0))
    slot, step = 2 * (iteration % keep), (point.alpha - before.alpha, point.gradient - before.gradient)
    return point, (*memory[:slot], *step, *memory[slot + 2 :])


def best_coefficients(H: Float[Tensor, "*a h h"], right: Float[Tensor, "*a h"]) -> Float[Tensor, "*a h"]:
    """The minimiser c [h] of c'H c / 2 - right'c; zero along directions that only rounding tells apart."""
    scale = H.diagonal(dim1=-2, dim2=-1).clamp_min(torch.finfo(H.dtype).tiny).rsqrt()
    unit = torch.lerp(H, H.mT, 0.5).mul_(scale[..., None, :]).mul_(scale[..., None])  # with a unit diagonal
    rounding = H.shape[-1] * torch.finfo(H.dtype).eps ** 0.5
    inverse = torch.linalg.pinv(unit, rtol=rounding, hermitian=True)
    return scale * torch.linalg.vecdot(inverse, (scale * right)[..., None, :])
