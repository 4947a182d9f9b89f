"""Greedy block coordinate descent: exact GP regression without the kernel matrix, by blocks of chosen rows.

    f(a) = a'A a / 2 - y'a,   A = K + s2 I,   g = A a - y                                                     eq 3

    Algorithm 1   1. alpha = 0, g = -y
                  2. stop if alpha is optimal                                       (in `Solver._outcome`)
                  3. solve eq 6 greedily: block B and step t                        (Algorithm 2)
                  4. alpha_B += t,   g += A_:B t
    Algorithm 2   1. B empty, e = g, all rows are candidates O
                  2. stop if |B| = m
                  3. s = argmax over O of e_i^2 / (2 A_ii): the decrease of f if row i alone moved            eq 10
                  4. update the factor of A_BB and t                                                          eqs 12, 13
                  5. B = B + {s}
                  6. draw new candidates O of size 60, e = g + A_:B t at O

Equation and line numbers are those of Bo and Sminchisescu (2008). Published settings are `chunk=1, pool=60, coarse=0,
conjugate=0`. This implementation adds four options, each of which can be switched off:

* `chunk`: several rows join before e is computed again, and then it is computed for all rows. Only the columns of B
  are needed, and these are computed in any case.
* `shortlist`: after the first rows of a block, e is computed only where it promised most at the beginning.
* `coarse`: some rows are solved for together with every block. They remove the smooth part of the gradient, which
  blocks of a few rows reduce slowly.
* `conjugate`: each step is combined with the previous ones, which repairs what a block undoes of earlier blocks.

The hyperparameters of the full GP are learned by maximum likelihood, without its matrix, by stochastic gradients and
warm starts:

    NLML   = (y'A^-1 y + log det A) / 2
    dNLML  = (tr(A^-1 dA) - a'dA a) / 2,   A a = y
    tr(A^-1 dA) = E[u'dA z],   A u = z,   z of independent entries +1 and -1          Hutchinson (1990)

One step solves for y and for the probes z through the same blocks, from the solutions of the step before, and then
takes one step of Adam. The probes are the same at all steps, as in Lin et al. (2024), section 3: the solutions then
change as little as theta does, and the objective that is descended is one function. A step ends after a few passes over
the rows even if a residual is still above its limit; later steps continue from there.

References: Gardner et al. (2018), section 2; Wu et al. (2024), section 4; Kingma and Ba (2015), algorithm 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ...kernels.theta.restrictions import projected
from ...linalg.blocks import row_blocks
from ...linalg.deferred_reads import repeat_if_rare
from ...linalg.randomness import generator
from ...objectives import noise_derivative, noise_variance
from ...problem import Cost, Problem, Step
from ..setting_kinds import choice, count, positive
from . import settings
from .block import Block, BlockBuffers, BlockSizes, CoarseRows, after_coarse_step, combine_steps, fill_block
from .reliability import Point
from .right_hand_sides import Columns, solve_together
from .solver import Solver
from .system import CALLS_PER_CHUNK, CALLS_PER_SUBSPACE_STEP, Iteration, SolverInfo, SolverState, System, iteration_cost

COARSE_ROWS, COARSE_ROWS_FLOAT32 = 1500, 2500  # at most; from MANY_ROWS on more than rows of a block save entries
COARSE_BYTES = 0.4e9  # of them: 1500 in float64 up to 33 000 rows, 2500 in float32 up to 40 000
MOST_ROWS_FLOAT32 = 1000  # of a block, since the factor of a block takes half the time too
MOST_CHUNK, CHUNKS_FLOAT32 = 50, 5  # rows of a part of a block; number of parts of a large block
MOST_SIGNAL_TO_NOISE = 2e3  # ratio of variances up to which float32 columns are taken without being asked for


class GBCD(Solver):
    """The exact GP, solved by blocks of rows that promise the largest decrease.

    Parameters
    ----------
    block, chunk, pool, shortlist, coarse, conjugate, mixed, refresh, full_steps, probes, rate : int or str or float
        Settings of this method; each has a sentence in `doc`.
    learn, subset, evaluations, tolerance, mean_tolerance, max_iterations : bool or int or float
        Settings of all solvers of the family.
    cache, bands, band_tolerance, variance_rows, seed : int or str or float
        Settings of all solvers of the family.

    Notes
    -----
    Memory is n (block + coarse) numbers besides the cache; no n x n matrix is formed. On kin40k at n = 10000, the
    published selection needs 308 iterations, candidates from all rows need 166, and the default settings 113.

    References
    ----------
    Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale Gaussian process regression. UAI.

    Examples
    --------
    >>> import gpexplorer as gpx
    >>> run = gpx.Spec(method="gbcd", settings={"evaluations": 100}, data="friedman1", kernel="se-ard").open()
    >>> run.finish().reason
    'converged'
    """

    key: ClassVar[str] = "gbcd"
    added_settings: ClassVar[Mapping[str, Any]] = {
        **Solver.added_settings,
        "full_steps": 0,
        "probes": 8,
        "rate": 0.05,
        "shortlist": 0,
    }
    title: ClassVar[str] = "Greedy block coordinate descent"
    paper: ClassVar[str] = "Bo and Sminchisescu (2008). Greedy block coordinate descent for large scale GPs. UAI."
    equations: ClassVar[dict[str, str]] = {
        "block": r"\min_{t}\ \tfrac12 t^\top A_{BB}\,t + g_B^\top t,\quad |B| = b",
        "coarse": r"\min_{t,t_C} f(\alpha + e_B t + e_C t_C)",
        "conjugate": r"\min_c f(\alpha + P c),\quad P = [t, p_1, p_2]",
        "chunk": r"s = \arg\max_i\ e_i^2 / 2A_{ii},\quad e = g + A_{:B}\,t",
    }

    block = count(
        -1,
        (-1, 1000),
        doc="Number of rows per block. Each iteration solves for them together, at block^3 / 3 flops. -1 takes "
        f"{settings.MOST_BLOCK}, the number of the paper, or all rows if there are fewer. 0 is automatic: an eighth of "
        f"all rows, but at least {settings.LEAST_BLOCK} and at most {settings.MOST_BLOCK}.",
    )
    chunk = count(
        0,
        (0, 200),
        doc="Number of rows that join a block before the decrease that each row promises is computed again. "
        "1 is the published method. 0 is automatic: 50, or a tenth of a block that follows the number of rows if "
        "that is less; with float32 columns and at least 4000 rows, a fifth of the block.",
    )
    pool = count(
        0,
        (0, 600),
        doc="Number of random candidates per row that joins. The paper uses 60; 0 takes all rows as candidates. The "
        "first rows of a block are always chosen among all rows, as in the paper's Algorithm 2.",
    )
    shortlist = count(
        4,
        (0, 20),
        doc="Number of candidates per row of a block: the rows that promise the largest decrease when the block is "
        "begun. 0 takes all rows as candidates, which takes longer and gives hardly better blocks. Without effect if "
        "candidates are drawn (pool), or where there are fewer rows.",
    )
    coarse = count(
        -2,
        (-2, 2000),
        doc="Number of coarse rows, which are solved for together with every block, at n numbers each. They reduce the "
        "smooth part of the gradient. They are drawn by the variance that the previous ones leave. -2 takes as many as "
        "a block has, and from 4000 rows on a quarter of the rows, at most 1500 and 0.4 GB, if that is more; with "
        "float32 columns two fifths of the rows, at most 2500, and blocks of a fifth, at most 1000. -1 always takes as "
        "many as a block has; 0 is the published method.",
    )
    conjugate = settings.conjugate(2)
    mixed: Any = choice(
        ["auto", True, False],
        doc="Compute kernel columns in float32, at half the time and memory. Gradients from scratch stay in float64. "
        "Columns become float64 if rounding decides the steps. auto: with float64 data, at "
        f"least {settings.MANY_ROWS:,} rows, default coarse rows and a signal variance of at most "
        f"{MOST_SIGNAL_TO_NOISE:,.0f} times the noise variance.",
    )
    refresh = settings.refresh()
    full_steps = count(
        0,
        (0, 100),
        doc="Number of steps by which the hyperparameters are learned on all rows, after the subset. Each takes about "
        "as long as three products with the kernel matrix. 0 leaves them as the subset gave them.",
    )
    probes = count(
        8,
        (1, 64),
        doc="Number of random vectors that estimate the gradient of the likelihood of all rows. They go through the "
        "same blocks as the targets; more of them give less noise.",
    )
    rate = positive(
        0.05,
        (0.005, 0.2),
        doc="Change of a log-hyperparameter in the first step on all rows. Later steps are smaller, down to zero.",
    )

    def learn_on_all(self, problem: Problem, state: SolverState) -> Iterator[Step]:
        """Steps of Adam on the likelihood of all rows, from this state on. The rate decreases linearly to zero.

        Notes
        -----
        Per step at most (PASSES + 1) n^2 kernel entries, of which n^2 / 2 are differentiated, and O(n (s + b)) memory.
        """
        n, y, sizes = len(problem.train), problem.train.y, self._sizes(len(problem.train), in_float32=False)
        Z = rademacher(n, self.probes, self.seed).to(y)  # [n, s]
        while state.position < self.full_steps:
            system = System(problem, state.theta, self.cache * settings.GIGABYTE)
            solutions = state.probes if len(state.probes) else torch.zeros_like(Z)
            V = torch.cat([state.alpha[:, None], solutions], 1)  # [n, 1 + s]
            R = torch.cat([y[:, None], Z], 1)
            limits = R.norm(dim=0).mul_(PROBE_RESIDUAL)
            limits[0] = TARGET_RESIDUAL * (system.s2 * n) ** 0.5
            start = (V, system.product(V)) if bool(V.any()) else None
            columns = Columns(R, lambda columns, _, limits=limits: limits[columns], 2, start)  # type: ignore[misc]
            for _ in solve_together(system, [columns], sizes, PASSES):
                pass
            V = columns.result()[0]
            gradient = likelihood_gradient(problem, state.theta, V[:, 0], V[:, 1:], Z)
            if (restrictions := getattr(problem.kernel, "restrictions", None)) is not None:
                gradient = gradient + restrictions.penalty(state.theta)[1]
                gradient = restrictions.parameters.descending(state.theta, gradient)
            number, rate = state.position + 1, self.rate * (1.0 - state.position / self.full_steps)
            theta, moments = adam_step(state.theta, gradient, state.moments, number, rate)
            state = state._replace(step=state.step + 1, phase="full", position=number, moments=moments)
            state = state._replace(alpha=V[:, 0].clone(), probes=V[:, 1:].clone())
            state = state._replace(theta=projected(problem.kernel, theta))
            yield Step(state, SolverInfo("full", objective=0.0, likelihood_gradient=float(gradient.norm()) / n))

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """Algorithm 1 from this alpha on. Only the gradient is carried; it is exact when a run is resumed."""
        current, memory, iteration = Point(state.alpha, system.gradient(state.alpha)), state.memory, state.position
        sizes = self._sizes(system.n, system.mixed)
        coarse = system.once("coarse rows", lambda: CoarseRows(system, sizes.coarse, self.seed))
        buffers = BlockBuffers(coarse.W, min(sizes.block, system.n - len(coarse.rows)))
        current = after_coarse_step(system, current, coarse)

        def next_iteration() -> Iteration:
            block = Block(system, current.gradient, coarse, buffers)
            gains = torch.cat([*fill_block(system, block, sizes, iteration)])  # line 3
            minimiser = block.minimiser()
            after = Point(block.moved(current.alpha, minimiser), block.gradient(minimiser))  # line 4
            point, kept = combine_steps(current, after, memory, self.conjugate, iteration)
            return Iteration(point.alpha, point.gradient, kept, block.rows, gains)

        while True:
            result = repeat_if_rare(next_iteration, system.columns.forget, current.alpha)
            current, memory, iteration = Point(result.alpha, result.gradient), result.memory, iteration + 1
            yield result

    def promised_gains(self, info: SolverInfo) -> Tensor:
        """Decrease of f [b] that each row of the last block promised alone, in the order in which the rows joined."""
        return info.gains

    def in_float32(self, problem: Problem, theta: Tensor) -> bool:
        """Whether a run begins with float32 columns: if asked for, or if "auto" finds many rows and enough noise."""
        if self.mixed != "auto":
            return bool(self.mixed)
        if self.coarse != -2 or len(problem.train) < settings.MANY_ROWS or theta.dtype != torch.float64:
            return False
        prior_variance = float(problem.kernel.diag(theta, problem.train.X).max())
        return prior_variance <= MOST_SIGNAL_TO_NOISE * noise_variance(theta)

    def _sizes(self, n: int, in_float32: bool) -> BlockSizes:
        """Sizes of blocks for n rows. Where the block follows n, it is still chosen in five parts or more."""
        many, block = n >= settings.MANY_ROWS, settings.rows_per_block(self.block, n)
        if many and in_float32 and self.coarse == -2 and self.block <= 0:
            block = min(MOST_ROWS_FLOAT32, n // 5)
        chunk = self.chunk or MOST_CHUNK
        if many and in_float32 and not self.chunk:
            chunk = max(block // CHUNKS_FLOAT32, 1)
        elif self.block <= 0:
            chunk = min(chunk, max(1, block // 10))
        if self.block < 0 and block == n:
            return BlockSizes(block, chunk, 0, self.pool, self.seed, self.shortlist)  # one block, which solves all
        coarse = self.coarse if self.coarse >= 0 else block
        if many and self.coarse == -2:
            share, most, entry = (2 * n // 5, COARSE_ROWS_FLOAT32, 4) if in_float32 else (n // 4, COARSE_ROWS, 8)
            coarse = max(block, min(share, most, int(COARSE_BYTES / (entry * n))))
        return BlockSizes(block, chunk, min(coarse, n // 2), self.pool, self.seed, self.shortlist)

    def cost(self, problem: Problem) -> Cost:
        """Cost of one iteration: n b kernel entries, the greedy choice, the factor of the block, and the update."""
        n = len(problem.train)
        in_float32 = self.in_float32(problem, problem.theta)
        sizes = self._sizes(n, in_float32)
        m = sizes.coarse
        b = min(sizes.block, n - m)
        chunks = -(-b // sizes.chunk)
        candidates = min(n, self.pool * sizes.chunk if self.pool else self.shortlist * b or n)
        evaluated = (chunks - 1) * candidates  # the first chunk uses the gradient as it is
        flops = evaluated * (b + 2.0 * m) + 2.0 * n * (b + m) + b**3 / 3.0 + 1.0 * m * b * b
        flops += chunks * (2.0 * m * b + 1.0 * b * b) + 1.0 * m * m
        total = iteration_cost(problem, self.cache, entries=n * b, flops=flops, columns=b + m + 2 * self.conjugate)
        traffic = (4 if in_float32 else problem.train.y.element_size()) * (evaluated * (0.5 * b + m) + n * (b + m))
        return total.plus(bytes=traffic, calls=CALLS_PER_SUBSPACE_STEP + CALLS_PER_CHUNK * chunks)


PASSES = 2.0  # over the rows, per step
TARGET_RESIDUAL = 0.1  # noise standard deviations per row, for y
PROBE_RESIDUAL = 0.05  # of the norm of a probe
DECAYS = (0.9, 0.99)  # of the moments in Adam


def rademacher(n: int, count: int, seed: int) -> Float[Tensor, "n s"]:
    """Independent entries +1 and -1, so that the mean of z z' is the identity."""
    return 2.0 * torch.randint(2, (n, count), generator=generator(seed, "probes")).double() - 1.0


def likelihood_gradient(
    problem: Problem, theta: Tensor, alpha: Tensor, U: Float[Tensor, "n s"], Z: Float[Tensor, "n s"]
) -> Float[Tensor, " p"]:
    """Estimate the gradient of the negative log marginal likelihood with respect to theta.

    Parameters
    ----------
    problem : Problem
        Training rows and a kernel with `theta_gradient`.
    theta : Tensor [p]
        Log-hyperparameters.
    alpha : Tensor [n]
        A^-1 y.
    U, Z : Tensor [n, s]
        Solutions A^-1 Z, and the probes. If the mean of the products z z' is the identity, the gradient is exact.

    Returns
    -------
    Tensor [p]

    Notes
    -----
    n^2 / 2 kernel entries with derivatives, in blocks of rows; each entry off the diagonal serves both of its places.
    """
    kernel: Any = problem.kernel
    X, n, s = problem.train.X, len(alpha), Z.shape[1]
    left = torch.cat([U / s, Z / s, -2.0 * alpha[:, None]], 1)  # [n, 2 s + 1]
    right = torch.cat([Z, U, alpha[:, None]], 1)
    gradient = torch.zeros_like(theta)
    for rows in row_blocks(n, 4 * alpha.element_size() * n, alpha):
        weights = 0.5 * left[rows] @ right[rows.start :].T  # [block, n - start], twice those of one place
        weights[:, : rows.stop - rows.start] *= 0.5
        gradient += kernel.theta_gradient(theta, X[rows], X[rows.start :], weights)
    by_noise = noise_variance(theta) * (float((U * Z).sum()) / s - float(alpha @ alpha))  # dA/dtheta_p = 2 s2 I
    gradient[-1] += noise_derivative(kernel, by_noise)
    return gradient


def adam_step(
    theta: Tensor, gradient: Tensor, moments: Tensor, number: int, rate: float
) -> tuple[Float[Tensor, " p"], Float[Tensor, "2 p"]]:
    """Step `number` of Adam, counted from 1, and the moments for the next one."""
    first, second = moments if len(moments) else theta.new_zeros(2, len(theta))
    first = DECAYS[0] * first + (1.0 - DECAYS[0]) * gradient
    second = DECAYS[1] * second + (1.0 - DECAYS[1]) * gradient.square()
    mean, square = first / (1.0 - DECAYS[0] ** number), second / (1.0 - DECAYS[1] ** number)
    scale = square.sqrt().clamp_min_(torch.finfo(theta.dtype).tiny)
    return theta - rate * mean / scale, torch.stack([first, second])
