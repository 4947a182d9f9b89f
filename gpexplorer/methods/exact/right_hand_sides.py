"""Right-hand sides that are solved for together: A V = R, one column each, by greedy block coordinate descent.

    f(v) = v'A v / 2 - r'v,   g = A v - r         for every column r of R and its solution v

    1. Choose a block B for one gradient: in turn that of the first column, and a random combination of all columns.
    2. Solve for B and the coarse rows for every column, with one factor:   T = -A_JJ^-1 G_J,   J = B and C
    3. V_J += T,   G += A_:J T                    a kernel row that is computed serves all columns

The combination sum_j w_j g_j / limit_j with w_j ~ N(0, 1) has the mean square sum_j (g_j / limit_j)^2 at every row, so
that rows are preferred where the columns together are farthest from their limits. Choosing for the first column every
other time costs the others little and lets the first one converge nearly as fast as alone: on kin40k at n = 3000 with
eight samples and 200 variances, the mean has an error of 4e-4 after 4.2 n^2 kernel entries (1.7e-3 when every block
was chosen for five combinations, 4e-2 with one combination only), and the samples have 5e-2 in all three cases.

A column is finished as soon as |g| is within its own limit, and takes no further work. Two limits are of use. The
variance at x* is k(x*, x*) + 2 min f for r = k(X, x*), and since no eigenvalue of A is below s2,

    k(x*, x*) + 2 f(v) - |g|^2 / s2  <=  variance  <=  k(x*, x*) + 2 f(v)

so that |g|^2 = tolerance s2 (variance + s2) bounds the relative error of a predictive variance of y. For targets or a
sample in place of r, v is the exact solution for targets that differ from r by g: |g| = tolerance s sqrt(n) changes
each target by `tolerance` noise standard deviations, in the root mean square.

A step along the coarse rows changes the whole gradient by W v, which takes as many operations as a block of as many
rows. Only the few rows of the next block are read before the norms are needed, so that the sum u of all v is kept, and

    g = g0 - W u,   L_C^-1 g_C = 0 after each block         (W and L_C of `block`; the coarse rows are solved exactly)

is written out when norms are computed. That halves the operations of a block. Columns that are combined with previous
steps need the whole change of the gradient, and do without this.

One set of kernel rows for many right-hand sides is the idea of Wu et al. (2024), section 3, and Lin et al. (2024),
section 3; the choice of blocks by combinations is our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.matrix_products import add_product, product
from ...linalg.randomness import generator
from .block import Block, BlockBuffers, BlockSizes, CoarseRows, best_coefficients, fill_block
from .system import System

Limit = Callable[[Tensor, Tensor], Tensor]  # (columns [k], values 2 f [k]) -> largest |g| [k]

COMPACT = 0.8  # finished columns are dropped from the arrays when at most this share of the columns is unfinished
SMALLEST_BLOCK, LARGEST_BLOCK = 500, 1000  # rows, beside three times as many coarse rows
SHORTLIST = 4  # candidates per row of a block
ESTIMATES = 10  # number of times per pass that the norms of gradients are estimated
SAMPLED_ROWS = 1000  # number of rows from which the norms of gradients are estimated
BLOCK_MEMORY = 0.48e9  # bytes: 1000 and 3000 rows of 30 000 numbers in float32


def variance_limit(prior: Float[Tensor, " k"], s2: float, tolerance: float) -> Limit:
    """The limit for columns k(X, x*) with prior variances k(x*, x*), by the formula at the top of this file."""

    def limit(columns: Tensor, values: Tensor) -> Tensor:
        return (tolerance * s2 * ((prior[columns] + values).clamp_min(0.0) + s2)).sqrt()

    return limit


def target_limit(n: int, s2: float, tolerance: float) -> Limit:
    """The limit for targets and samples: `tolerance` noise standard deviations per row."""
    return lambda columns, values: torch.full_like(values, tolerance * (s2 * n) ** 0.5)


class Columns:
    """The solutions of some right-hand sides, their gradients, and which of them are not finished.

    Parameters
    ----------
    R : Tensor [n, k]
        Right-hand sides. The tensor is overwritten.
    limit : callable
        Largest gradient norm per column; see `variance_limit` and `target_limit`.
    conjugate : int, default 0
        Number of previous steps that each step is combined with, 2 n k numbers each.
    start : tuple of Tensor [n, k], optional
        Solutions from which to continue, and A times them.
    dtype : torch.dtype, optional
        Precision in which solutions and gradients are kept; that of R if omitted.

    Attributes
    ----------
    V, G : Tensor [n, a]
        Solutions and gradients of the columns that are not finished, without the steps of `write_out`.
    active : Tensor [a]
        Their numbers.
    values : Tensor [a]
        2 f of each of them.
    """

    def __init__(
        self,
        R: Tensor,
        limit: Limit,
        conjugate: int = 0,
        start: tuple[Tensor, Tensor] | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.limit, self.conjugate, self.dtype = limit, conjugate, R.dtype
        self.active = torch.arange(R.shape[1], device=R.device)
        if start is None:
            self.G, self.values = R.neg_().to(dtype or R.dtype), R.new_zeros(R.shape[1])
            self.V = torch.zeros_like(self.G)
        else:
            V, AV = start
            self.V, self.values = V.to(dtype or V.dtype, copy=True), (V * (AV - 2.0 * R)).sum(0)
            self.G = R.neg_().add_(AV).to(dtype or R.dtype)
        self._V, self._G, self._values = self.V, self.G, self.values  # of all columns
        self._steps: list[tuple[Tensor, Tensor]] = []  # previous steps p and A p
        self._coarse: CoarseRows | None = None  # of the steps that are not written out
        self._u = R.new_zeros(0)  # [m, a] their sum

    @property
    def limits(self) -> Tensor:
        """Largest gradient norm [a] of each unfinished column."""
        return self.limit(self.active, self.values)

    @property
    def norms(self) -> Tensor:
        """Gradient norm [a] of each unfinished column, in the precision of the right-hand sides."""
        self.write_out()
        squares = torch.zeros(self.G.shape[1], dtype=self.dtype, device=self.G.device)
        for rows in row_blocks(len(self.G), 8 * self.G.shape[1], self.G):
            squares += torch.linalg.vector_norm(self.G[rows], dim=0, dtype=self.dtype).square_()
        return squares.sqrt_()

    def combined_gradient(self, weights: Tensor) -> Tensor:
        """The gradients [n] of the unfinished columns, added up with weights [a]. 2 n (a + m) flops."""
        total = self.G @ weights.to(self.G.dtype)
        if self._coarse is None:
            return total.to(self.dtype)
        W = self._coarse.W
        return (total - (W @ (self._u @ weights).to(W.dtype)).to(total.dtype)).to(self.dtype)

    def share_within_limits(self, rows: Tensor) -> float:
        """Estimated share of the unfinished columns whose gradients are within their limits, from some rows [r]."""
        part = self.G[rows]
        if self._coarse is not None:
            part = part - product(self._coarse.W[rows], self._u.to(self._coarse.W.dtype)).to(part.dtype)
        norms = torch.linalg.vector_norm(part, dim=0, dtype=self.dtype) * (len(self.G) / len(rows)) ** 0.5
        return float((norms <= self.limits).double().mean())

    def write_out(self) -> None:
        """Add the steps along the coarse rows to solutions and gradients. 2 n m a + m^2 a flops."""
        if self._coarse is None:
            return
        C, self._coarse = self._coarse, None
        add_product(self.G, C.W, self._u.to(C.W.dtype), -1.0)
        t_C = torch.linalg.solve_triangular(C.L.T, self._u, upper=True).neg_()
        self.V.index_add_(0, C.rows, t_C.to(self.V.dtype))

    def drop_finished(self) -> bool:
        """Leave out the columns whose gradients are within their limits; return whether none is left."""
        is_unfinished = self.norms > self.limits  # [a]
        count = int(is_unfinished.sum())
        if count and count > COMPACT * len(self.active):
            return False
        self._store()
        self.active = self.active[is_unfinished]
        self.V = self.V[:, is_unfinished]  # one after another: each takes the memory that the one before has left
        self.G = self.G[:, is_unfinished]
        self.values = self.values[is_unfinished]
        self._steps = [(p[:, is_unfinished], Ap[:, is_unfinished]) for p, Ap in self._steps]
        return not count

    def move(self, block: Block) -> None:
        """Solve for the rows of a block, and combine this step with the previous ones."""
        if not self.conjugate:
            self._move_without_coarse_part(block)
            return
        C, A = block.coarse, block.A[: len(block.rows)]
        h = torch.linalg.solve_triangular(C.L, self.G[C.rows], upper=False)  # [m, a]
        t, v = block.joint_step(self.G[block.rows].to(A.dtype), h)
        whole = torch.zeros_like(self.V).index_add_(0, block.rows, t.to(self.V.dtype))
        whole.index_add_(0, C.rows, torch.linalg.solve_triangular(C.L.T, v, upper=True).to(self.V.dtype), alpha=-1.0)
        change = (A.T @ t).addmm_(C.W, v.to(A.dtype), alpha=-1.0).to(self.G.dtype)
        P, AP = [whole, *(p for p, _ in self._steps)], [change, *(Ap for _, Ap in self._steps)]
        H = torch.stack([torch.stack([(p * Aq).sum(0) for Aq in AP], -1) for p in P], -2)  # [a, h, h]
        c = -best_coefficients(H, torch.stack([(p * self.G).sum(0) for p in P], -1)).T  # [h, a]
        p, Ap = whole.mul_(c[0]), change * c[0]
        for weight, old_p, old_Ap in zip(c[1:], P[1:], AP[1:], strict=True):
            p.addcmul_(old_p, weight)
            Ap.addcmul_(old_Ap, weight)
        self.values += (p * (2.0 * self.G + Ap)).sum(0)
        self.V += p
        self.G += Ap
        self._steps = [(p, Ap), *self._steps][: self.conjugate]

    def _move_without_coarse_part(self, block: Block) -> None:
        """Solve for the rows of a block and the coarse rows, and keep the step along the latter for later."""
        C, A, W_B = block.coarse, block.A[: len(block.rows)], block.W[: len(block.rows)]
        g_B, h = self.G[block.rows].to(A.dtype), None  # [b, a]
        if self._coarse is None:
            self._coarse, self._u = C, C.L.new_zeros(len(C.rows), self.G.shape[1], dtype=self.dtype)
            h = torch.linalg.solve_triangular(C.L, self.G[C.rows].to(C.L.dtype), upper=False)  # [m, a]
        else:
            add_product(g_B, W_B, self._u.to(W_B.dtype), -1.0)
        t, v = block.joint_step(g_B, h)
        self.values += (g_B.to(self.dtype) * t.to(self.dtype)).sum(0)  # at the minimiser, 2 f decreases by -g'step
        if h is not None:
            self.values -= (h * v).sum(0)  # where the coarse rows are solved already, g_C is 0
        self._u += v
        self.V.index_add_(0, block.rows, t.to(self.V.dtype))
        add_product(self.G, A.T, t)

    def result(self) -> tuple[Tensor, Tensor, Tensor]:
        """Solutions [n, k], gradients [n, k] and values 2 f [k] of all columns, finished or not."""
        self._store()
        return self._V.to(self.dtype), self._G.to(self.dtype), self._values

    def stored(self) -> tuple[Tensor, Tensor, Tensor]:
        """The same in the precision in which it is kept, without a copy."""
        self._store()
        return self._V, self._G, self._values

    def _store(self) -> None:
        """Copy the unfinished columns into the arrays of all columns."""
        self.write_out()
        if self.V is self._V:
            return
        self._V[:, self.active], self._G[:, self.active] = self.V, self.G
        self._values[self.active] = self.values


def sizes_for(n: int, seed: int = 0, number_bytes: int = 8) -> BlockSizes:
    """Return sizes of blocks for many right-hand sides: as many coarse rows and rows per block as fit into memory.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
        Of the draws.
    number_bytes : int
        Bytes of an entry of a kernel row; the columns of the coarse rows and of a block take at most BLOCK_MEMORY.

    Notes
    -----
    Kernel entries cost the same whatever the number of right-hand sides, and every row of a block costs 2 n flops for
    each of them. A coarse row costs little (see the top of this file) and reduces the number of passes, so that three
    quarters of the memory are for coarse rows. On kin40k at n = 30000, 300 variances take 4.04 n^2 entries and 62
    seconds of a processor with 1000 rows per block and 3000 coarse rows, and 4.97 n^2 and 71 with 2000 and 2000.
    """
    rows = int(BLOCK_MEMORY / (number_bytes * n))  # of blocks and coarse rows together
    block = max(min(LARGEST_BLOCK, rows // 4, n // 12), min(SMALLEST_BLOCK, n // 2))
    coarse = min(3 * LARGEST_BLOCK, n // 3, max(rows - block, 0))
    return BlockSizes(block, max(block // 10, 1), coarse, 0, seed, SHORTLIST)


def solve_together(system: System, groups: Sequence[Columns], sizes: BlockSizes, passes: float) -> Iterator[int]:
    """Solve for all columns of all groups; the first column of the first group is preferred.

    Parameters
    ----------
    system : System
        A, with its cache of kernel rows.
    groups : sequence of Columns
        Right-hand sides; they are updated in place.
    sizes : BlockSizes
        Sizes of blocks.
    passes : float
        Stop once the blocks together had this many times n rows, finished or not.

    Yields
    ------
    int
        Number of blocks so far, after each block. The iteration ends when all columns are finished.

    Notes
    -----
    Per block of b rows and m coarse rows, n b kernel entries whatever the number k of columns, and 2 (n + 2 m + b) b k
    flops; 2 n m k more whenever norms are computed, which is after a pass or where they seem to be within limits.
    Columns that are combined with previous steps take 2 n (b + m) k flops per block.
    """
    coarse = system.once("coarse rows", lambda: CoarseRows(system, min(sizes.coarse, system.n // 2), sizes.seed))
    b = min(sizes.block, system.n - len(coarse.rows))
    buffers = BlockBuffers(coarse.W, b)
    sample = torch.randperm(system.n, generator=generator(sizes.seed, "norms"))[:SAMPLED_ROWS].to(coarse.rows.device)
    blocks_per_pass = max(system.n // b, 1)  # norms are computed once per pass in any case, and estimated more often
    number, unfinished = 0, [group for group in groups if not group.drop_finished()]
    while unfinished and number * b < passes * system.n:
        gradient = _gradient_for_choice(groups[0], unfinished, number, sizes.seed)
        block = Block(system, gradient, coarse, buffers)
        for _ in fill_block(system, block, sizes, number):
            pass
        for group in unfinished:
            group.move(block)
        number += 1
        in_any_case = number % blocks_per_pass == 0 or number * b >= passes * system.n
        estimated = number % max(blocks_per_pass // ESTIMATES, 1) == 0
        unfinished = [group for group in unfinished if not _is_finished(group, sample, estimated, in_any_case)]
        yield number


def _is_finished(group: Columns, sample: Tensor, estimated: bool, in_any_case: bool) -> bool:
    """Whether all columns are finished; their norms are computed in any case, or if that seems worth it."""
    if group.conjugate or in_any_case:
        return group.drop_finished()
    return estimated and group.share_within_limits(sample) > 1.0 - COMPACT and group.drop_finished()


def _gradient_for_choice(first: Columns, unfinished: Sequence[Columns], number: int, seed: int) -> Tensor:
    """The gradient [n] for which block `number` is chosen."""
    if number % 2 == 0 and first.conjugate and len(first.active) and int(first.active[0]) == 0:
        return first.G[:, 0].clone()
    draw = generator(seed, "combination", number)
    total = torch.zeros(len(unfinished[0].G), dtype=unfinished[0].dtype, device=unfinished[0].G.device)  # [n]
    for group in unfinished:
        weights = torch.randn(len(group.active), generator=draw, dtype=torch.float64).to(total)
        total += group.combined_gradient(weights / group.limits)
    return total
