"""The linear system of exact GP regression, and the quadratic objective that its solution minimises.

    A     = K + s2 I                               [n, n], never formed as a whole
    f(a)  = a'A a / 2 - y'a                        the objective; its minimiser alpha solves A alpha = y        eq 3
    g(a)  = A a - y                                the gradient, so that f(a) = (a'g - y'a) / 2 costs no product

Equation numbers are those of Bo and Sminchisescu (2008). Column i of K is row i, because K is symmetric: a block of
kernel columns A_:B is kept as the rows A_B [b, n].

`SolverState` is what a step of a solver carries, and `SolverInfo` what it reports.

`iteration_cost` is what an iteration of a solver costs: floating-point operations, bytes, calls, and the arrays that it
holds.

The constants were measured on a two-core machine at 50 Gflop/s; `python -m benchmarks costs` compares the
formulas with the clock. A "call" is one tensor operation that Python asks for: it takes a few microseconds however
small its operands are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from ...linalg.blocks import BLOCK_BYTES
from ...linalg.cholesky import cholesky
from ...linalg.kernel_columns import KernelColumns, Map, kernel_rows
from ...objectives import noise_variance
from ...problem import Cost, Problem, channel, channels_of, take


class SolverState(NamedTuple):
    """All that the rest of a run depends on."""

    theta: Tensor  # [p]
    alpha: Tensor  # [n]
    gradient: Tensor  # [n] as the solver updated it if columns are float32; else empty, because it can be recomputed
    step: int = 0
    phase: str = "learn"  # of the step: "learn" (theta, on a subset), "full" (theta, on all rows) or "solve"
    position: int = 0  # steps done in this phase
    memory: tuple[Tensor, ...] = ()  # what a solver needs besides alpha in order to continue, [n] each
    largest: float = math.inf  # |g|_inf, computed from scratch if it is within the tolerance
    float64_from: int = 0  # iteration from which on columns are float64 although `mixed` is set; 0 if there is none
    repaired: int = 0  # iteration at which rounding was last repaired by a gradient from scratch; 0 if there is none
    checked: float = math.inf  # |g|_inf from scratch, when the updated gradient was last within the tolerance
    stalled: bool = False  # whether |g|_inf cannot reach the tolerance in this precision
    norm: float = math.inf  # |g|_2, computed from scratch if the run may stop on it
    probes: Tensor = torch.zeros(0)  # [n, s] solutions for the probes, while theta is learned on all rows
    moments: Tensor = torch.zeros(0)  # [2, p] of Adam, while theta is learned on all rows
    slope: float = 0.0  # largest derivative of the likelihood of the subset at theta, if too large for an optimum
    unlearned: str = ""  # why learning on the subset ended before an optimum; empty if it did not


class SolverInfo(NamedTuple):
    """What a step reports. Channels that do not apply are nan; f(0) = 0 for every theta."""

    phase: str
    objective: Annotated[float, channel("quadratic f(alpha)", monotone=True)] = math.nan
    largest: Annotated[float, channel("largest gradient |g|", log=True)] = math.nan  # |g|_inf
    norm: Annotated[float, channel("gradient norm", log=True)] = math.nan  # |g|_2
    # negative log marginal likelihood on the subset, while theta is learned
    evidence: Annotated[float, channel("NLML on the subset", "nat")] = math.nan
    # |g from scratch - g as updated|_inf, at the steps where g is computed from scratch
    drift: Annotated[float, channel("drift of the carried gradient", log=True)] = math.nan
    # norm of the estimated gradient of the NLML in theta, per row
    likelihood_gradient: Annotated[float, channel("gradient of the NLML of all rows", "nat per row", log=True)] = (
        math.nan
    )
    # f(alpha) - min f is at most this, |g|_2^2 / (2 s2)
    gap_bound: Annotated[float, channel("bound on f - minimum", log=True)] = math.nan
    # no predictive mean errs by more than this
    mean_bound: Annotated[float, channel("bound on the error of a mean", "noise sd", log=True)] = math.nan
    active: Tensor = torch.zeros(0, dtype=torch.int64)  # rows of alpha that changed
    gains: Tensor = torch.zeros(0)  # decrease of f that each active row alone promised when it was chosen


# for methods whose objective may rise: solvers with momentum, and a solver whose single step leaves no series
CHANNELS_NOT_MONOTONE = channels_of(SolverInfo, objective=channel("quadratic f(alpha)"))


T = TypeVar("T")


class System:
    """A and y of one problem at one theta, with a cache of kernel rows and a gradient that can be handed over.

    Parameters
    ----------
    problem : Problem
        Training rows and kernel.
    theta : Tensor [p]
        Log-hyperparameters, the last entry is the log noise standard deviation.
    budget : float
        Bytes of kernel rows that may be kept; 0 keeps none.
    mixed : bool, default False
        Whether kernel rows are computed and kept in float32. A gradient computed from scratch (`gradient`) always uses
        float64, also if the data are float32.
    apply : callable, default map
        How independent pieces of a matrix product are computed, for example on the workers of a cluster.

    Attributes
    ----------
    columns : KernelColumns
        Kernel rows in the precision in which solvers update their gradients.
    exact : KernelColumns
        Kernel rows in float64; the same object as `columns` if these are float64.
    mixed : bool
        Whether kernel rows have a lower precision than the data.
    diag : Tensor [n]
        Diagonal of A.
    gain_factors : Tensor [n]
        1 / (2 A_ii): a row alone reduces f by this times the square of its gradient entry (eq 10).
    prior_variance : float
        Largest prior variance k(x, x) of a training row.
    """

    def __init__(self, problem: Problem, theta: Tensor, budget: float, mixed: bool = False, apply: Map = map) -> None:
        kernel, X = problem.kernel, problem.train.X
        self.y, self.d, self.s2 = problem.train.y, problem.train.d, noise_variance(theta)
        self.columns = KernelColumns(kernel, theta, X, budget, torch.float32 if mixed else None, apply)
        self.exact = self.columns
        if self.columns.theta.dtype != torch.float64:
            self.exact = KernelColumns(kernel, theta, X, 0.0, torch.float64, apply)
        self.mixed = self.columns.theta.dtype != theta.dtype
        prior = kernel.diag(theta, X)
        self.prior_variance, self.diag = float(prior.max()), prior + self.s2  # [n]
        self.gain_factors = 0.5 / self.diag  # [n]
        self._noise = self.columns.theta.new_full((1, 1), self.s2)
        self._built: dict[str, Any] = {}
        self._carried: tuple[Tensor, Tensor] | None = None
        self._workspace = self.columns.theta.new_empty(0, self.n)

    @property
    def n(self) -> int:
        """Number of training rows."""
        return len(self.y)

    def once(self, name: str, build: Callable[[], T]) -> T:
        """Return `build()`, called at most once per name: a preconditioner or partition survives a restart."""
        if name not in self._built:
            self._built[name] = build()
        built: T = self._built[name]
        return built

    def product(self, V: Tensor) -> Tensor:
        """A V for V [n] or [n, k] in the precision of the columns; n^2 / 2 kernel entries if none are kept."""
        return self.columns.product(V).add_(V, alpha=self.s2)

    def rows(self, index: Tensor, out: Tensor | None = None) -> Tensor:
        """A[index] [c, n] in the precision of the columns, written into `out` if it is given."""
        A_rows = self.columns(index, out)
        return A_rows.scatter_add_(1, index[:, None], self._noise.expand(len(index), 1))

    def rows_in_workspace(self, index: Tensor) -> Tensor:
        """A[index] [c, n] in a buffer that the next call overwrites, which saves the page faults of a new buffer."""
        if len(self._workspace) < len(index):
            self._workspace = self._workspace.new_empty(len(index), self.n)
        return self.rows(index, self._workspace[: len(index)])

    def gradient(self, alpha: Tensor) -> Tensor:
        """Gradient A alpha - y from scratch: computed in float64, returned in the precision of alpha.

        Parameters
        ----------
        alpha : Tensor [n] or [n, k]
            One iterate, or one per column.

        Returns
        -------
        Tensor
            The gradient, of the shape of `alpha`. If `carry_gradient` was called with this alpha, its gradient is
            returned once instead of being computed.
        """
        carried, self._carried = self._carried, None
        if carried is not None and torch.equal(carried[0], alpha):
            return carried[1]
        y = self.y if alpha.ndim == 1 else self.y[:, None]
        if not bool(alpha.any()):
            return (-y).expand_as(alpha).clone()
        exact = self.exact.product(alpha.to(self.exact.theta.dtype)).add_(alpha, alpha=self.s2).sub_(y)
        return exact.to(alpha.dtype)

    def carry_gradient(self, alpha: Tensor, gradient: Tensor) -> None:
        """Let the next call of `gradient` return this gradient if it asks for this alpha."""
        self._carried = (alpha.clone(), gradient.clone())

    def value(self, alpha: Tensor, gradient: Tensor) -> float:
        """Objective f(alpha) from alpha [n] and its gradient [n]: one dot product, no kernel entry."""
        return 0.5 * float(alpha @ (gradient - self.y))

    def exact_value(self, alpha: Tensor, rows: Tensor) -> float:
        """Objective f(alpha) in float64 for an alpha [n] that is zero except at these rows; |rows|^2 kernel entries."""
        a, X = alpha[rows].double(), take(self.exact.X, rows)
        K = kernel_rows(self.exact.kernel, self.exact.theta, X, X)
        return float(a @ (0.5 * (K @ a + self.s2 * a) - self.y[rows]))


class Iteration(NamedTuple):
    """The result of one iteration of a solver."""

    alpha: Tensor  # [n]
    gradient: Tensor  # [n] A alpha - y, as the solver updated it
    memory: tuple[Tensor, ...] = ()  # what the solver needs besides alpha in order to continue
    active: Tensor | None = None  # int64 rows of alpha that changed; None means all
    gains: Tensor | None = None  # decrease of f that each active row alone promised when it was chosen


def updated_gradient(gradient: Tensor, A_B: Tensor, step: Tensor) -> Tensor:
    """gradient + A_:B step [n], with the product in the precision of the block A_B [b, n]."""
    if A_B.dtype == gradient.dtype:
        return torch.addmv(gradient, A_B.T, step)
    return gradient + (A_B.T @ step.to(A_B.dtype)).to(gradient.dtype)


def solve_block(system: System, rows: Tensor, gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Minimise f exactly over one block of coefficients: A_BB t = -g_B, then g <- g + A_:B t.

    Parameters
    ----------
    system : System
        The linear system.
    rows : Tensor [b]
        Indices of the block.
    gradient : Tensor [n]
        Gradient at the current alpha.

    Returns
    -------
    step : Tensor [b]
        What to add to alpha at `rows`.
    gradient : Tensor [n]
        Gradient after that step.

    Notes
    -----
    n b kernel entries, b^3 / 3 flops for the factor, 2 n b for the update.
    """
    A_B = system.rows_in_workspace(rows)  # [b, n]
    L = cholesky(A_B.index_select(1, rows).to(gradient.dtype), "A_BB [block]").L  # [b, b]
    step = torch.cholesky_solve(-gradient[rows][:, None], L)[:, 0]
    return step, updated_gradient(gradient, A_B, step)


FLOPS_PER_ENTRY = 100.0  # a kernel entry takes as long as this many flops and 2 d more (0.4 to 0.6 G entries/s)
FLOPS_PER_COPIED_ENTRY = 70.0  # additional flops if the entry is written into memory that was not used before

CALLS_PER_ITERATION = 60.0  # every solver: choose rows, solve their system, update alpha
CALLS_PER_SKETCH = 130.0  # additional calls if a block is replaced by its leading eigenvectors
CALLS_PER_SUBSPACE_STEP = 80.0  # additional calls if a step is combined with the previous ones
CALLS_PER_CHUNK = 70.0  # each time that rows join a block
CALLS_PER_PAIR = 52.0  # of SMO
VECTORS_PER_PAIR = 40.0  # vectors of length n that the choice of a pair reads: masks, gains, the largest of them
CALLS_PER_JOIN = 67.0  # each time that regressors join a sparse model
CALLS_PER_GAINS = 50.0  # each time that the gains of candidate regressors are computed

CALLS_PER_FILL, FILL_BYTES = 8.0, 2**20  # calls per FILL_BYTES of kernel entries, which are filled in blocks
STRIP_FACTOR = 2.0  # factor of the calls if the whole matrix is visited in strips that are used on both sides


def iteration_cost(problem: Problem, cache: float, entries: float, flops: float, columns: int) -> Cost:
    """Cost of one iteration from its counts of kernel entries and flops.

    Parameters
    ----------
    problem : Problem
        Training rows, for n, d and the number of bytes per number.
    cache : float
        Gigabytes of kernel rows that are kept.
    entries : float
        Kernel entries that the iteration reads. n^2 or more means a product with the whole matrix.
    flops : float
        Floating-point operations besides those for kernel entries.
    columns : int
        Vectors of length n that are held besides the kept rows.

    Returns
    -------
    Cost
        Kept rows save a product with the whole matrix their entries, and symmetry saves half of the others. The
        entries of a block are counted as if none of them was kept. Rows that are to be kept are computed in place.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    kept = min(cache * 1e9, 1.0 * s * n * n)
    computed = entries * (0.5 * (1.0 - kept / (s * n * n)) ** 2 if entries >= n * n else 1.0)
    arrays = {
        "kept kernel rows": kept,
        "block columns": 1.0 * s * n * columns,
        "rows being computed": min(s * entries, 1.0 * BLOCK_BYTES) if kept < s * n * n else 0.0,
        "alpha and gradient": 4.0 * s * n,
    }
    traffic = s * (entries + 2.0 * computed + 6.0 * n)
    calls = CALLS_PER_ITERATION + fill_calls(s * computed) * (STRIP_FACTOR if entries >= n * n else 1.0)
    per_entry = FLOPS_PER_ENTRY + 2.0 * d + (0.0 if entries >= n * n else FLOPS_PER_COPIED_ENTRY)
    return Cost(flops + computed * per_entry, traffic, arrays, calls)


def fill_calls(size: float) -> float:
    """Number of calls that compute kernel entries of this size in bytes."""
    return CALLS_PER_FILL * (1.0 + size / FILL_BYTES)
