"""Conjugate gradients on the whole system, plain and with a low-rank preconditioner.

    r = y - A alpha = -g;   every iteration takes one product A p with the whole matrix A = K + s2 I
    M = L_r L_r' + (s2 + lambda_r) I,   the preconditioner, applied by Woodbury's identity (`linalg.preconditioners`)

Each iteration reads, or computes, the whole kernel matrix. A preconditioner reduces the number of iterations; each then
takes 4 n r flops more, after n r^2 flops once.

For A x = b, one iteration at a time, for one right-hand side or many:

    r = b - A x,  z = M^-1 r,  p <- z + (r'z / r_old'z_old) p,  step = r'z / p'A p          (Hestenes and Stiefel 1952)

A is symmetric positive definite and given as a product v -> A v; M is a preconditioner, given as v -> M^-1 v. Several
right-hand sides are columns, and each column has its own scalars. A column that has converged stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, NamedTuple

import param
import torch
from torch import Tensor

from ...features.grid_eigenfunctions import grid_root
from ...linalg.preconditioners import drawn_root, nystrom_root, pivoted_root, woodbury
from ...linalg.randomness import generator
from ...problem import Cost, Problem
from ..setting_kinds import choice, count
from . import settings
from .solver import Solver
from .system import FLOPS_PER_ENTRY, Iteration, SolverState, System, iteration_cost

Product = Callable[[Tensor], Tensor]


class Iterate(NamedTuple):
    """The position of an iteration: everything that is needed to continue it."""

    x: Tensor  # [n] or [n, k]
    r: Tensor  # the residual b - A x
    p: Tensor  # the search direction
    rz: Tensor  # [] or [k] r'M^-1 r


def begin(product: Product, b: Tensor, x: Tensor, precondition: Product | None = None) -> Iterate:
    """The iterate before the first step from x [n] or [n, k]; one product with A unless x is zero."""
    return from_residual(x, b - product(x) if bool(x.any()) else b.clone(), precondition)


def from_residual(x: Tensor, r: Tensor, precondition: Product | None = None) -> Iterate:
    """The iterate before the first step, if the residual r = b - A x is already available; no product with A."""
    z = precondition(r) if precondition else r
    return Iterate(x.clone(), r, z.clone(), (r * z).sum(0))


def cg(product: Product, iterate: Iterate, precondition: Product | None = None) -> Iterator[Iterate]:
    """Yield the iterates that follow, without end.

    Parameters
    ----------
    product : callable
        v -> A v for v [n] or [n, k].
    iterate : Iterate
        Where to start, from `begin`, `from_residual` or an earlier iterate.
    precondition : callable, optional
        v -> M^-1 v; the identity if omitted.

    Yields
    ------
    Iterate
        New tensors each time: what was yielded never changes.

    Notes
    -----
    One product with A and one with M^-1 per iteration.

    Examples
    --------
    >>> A, b = torch.tensor([[2.0, 0.0], [0.0, 4.0]]), torch.tensor([2.0, 4.0])
    >>> *_, last = islice(cg(A.mv, begin(A.mv, b, torch.zeros(2))), 2)
    >>> last.x
    tensor([1., 1.])
    """
    x, r, p, rz = iterate
    tiny = torch.finfo(x.dtype).tiny
    while True:
        Ap = product(p)
        curvature = (p * Ap).sum(0)
        step = torch.where(curvature > tiny, rz / curvature.clamp_min(tiny), 0.0)
        x, r = x + step * p, r - step * Ap
        z = precondition(r) if precondition else r
        rz, rz_before = (r * z).sum(0), rz
        p = z + torch.where(rz_before > tiny, rz / rz_before.clamp_min(tiny), 0.0) * p
        yield Iterate(x, r, p, rz)


MANY = 1000  # a rank chosen by rule may be this large for any size of the cache, as in gbcd by default
SHIFT = 0.1  # share of the noise variance that is added to K_CC of drawn pivots; it costs no iteration

Preconditioner = Callable[[Tensor], Tensor]


class ConjugateGradients(Solver):
    """The exact GP, solved by conjugate gradients.

    Notes
    -----
    One product with A per iteration: n^2 / 2 kernel entries if none are kept. In exact arithmetic the objective falls
    at every iteration and the method ends after at most n of them.

    References
    ----------
    Hestenes and Stiefel (1952). Methods of conjugate gradients for solving linear systems. J. Res. NBS 49.
    """

    key: ClassVar[str] = "cg"
    title: ClassVar[str] = "Conjugate gradients"
    paper: ClassVar[str] = (
        "Hestenes and Stiefel (1952). Methods of conjugate gradients for linear systems. J. Res. NBS."
    )

    mixed = settings.mixed()
    refresh = settings.refresh()

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """Iterates of conjugate gradients from this alpha on."""
        return _iterations(system, state, None)

    def cost(self, problem: Problem) -> Cost:
        """Cost of one product with A."""
        n = len(problem.train)
        return iteration_cost(problem, self.cache, entries=1.0 * n * n, flops=2.0 * n * n, columns=0)


class PreconditionedCG(Solver):
    """The exact GP, solved by conjugate gradients with a low-rank preconditioner.

    Notes
    -----
    The preconditioner is built once per theta, at n r kernel entries and n r^2 flops; it takes n r numbers of memory.

    The published preconditioner has no lambda_r, the smallest eigenvalue of L_r L_r'. In directions outside the range
    of L_r it is s2, far below the eigenvalues that A has there, so that the first iterations fit these directions,
    which are mostly noise. On kin40k (n = 2500, rank 387) the SMSE after three iterations is .90 without lambda_r and
    .15 with it (plain CG 2.25); both converge in 77 iterations, and plain CG has not converged after 366.

    References
    ----------
    Gardner, Pleiss, Bindel, Weinberger and Wilson (2018). GPyTorch: Blackbox matrix-matrix Gaussian process inference
    with GPU acceleration. NeurIPS.
    """

    key: ClassVar[str] = "pcg"
    added_settings: ClassVar[Mapping[str, Any]] = {**Solver.added_settings, "damped": False}
    title: ClassVar[str] = "Preconditioned conjugate gradients"
    paper: ClassVar[str] = "Gardner et al. (2018). Blackbox matrix-matrix Gaussian process inference. NeurIPS."
    equations: ClassVar[dict[str, str]] = {"rank": r"M = L_r L_r^\top + (\sigma^2 + \lambda_r) I"}

    rank = count(
        0,
        (0, 1000),
        doc="Rank of the preconditioner. A larger rank saves iterations. 0 is automatic: the rank at which building it "
        "takes as long as one product with the matrix, as far as it fits into the memory of the cache.",
    )
    root: Any = choice(
        ["pivoted", "nystrom", "drawn", "grief"],
        default="drawn",
        doc="How the root is built. pivoted: the row with the largest residual variance, in turn; nystrom: random "
        "rows; drawn: random rows, with their residual variance as probability; grief: eigenfunctions of a grid.",
    )
    damped = param.Boolean(
        True,
        doc="Add the smallest eigenvalue of the root to the noise in the preconditioner. It costs no iterations, and "
        "predictions are good after the first of them already. Off is the published method.",
    )
    mixed = settings.mixed()
    refresh = settings.refresh()

    def iterations(self, system: System, state: SolverState) -> Iterator[Iteration]:
        """Iterates of conjugate gradients, whose directions are made from M^-1 r."""
        return _iterations(system, state, system.once("preconditioner", lambda: self._preconditioner(system)))

    def _preconditioner(self, system: System) -> Preconditioner:
        """The map v -> M^-1 v for the chosen kind of root."""
        rank = self._rank_for(system.n, system.d, system.y.element_size())

        def columns(rows: Tensor) -> Tensor:
            return system.columns(rows).T.to(system.y.dtype)  # [n, c]

        if self.root == "grief":
            exact = system.exact
            root = grid_root(exact.kernel, exact.theta, exact.X, rank).to(system.y.dtype)
        elif self.root == "drawn":
            root, prior = system.y.new_empty(system.n, rank), system.diag - system.s2
            drawn_root(lambda rows: system.columns(rows).to(root.dtype), prior, root, self.seed, SHIFT * system.s2)
        elif self.root == "pivoted":
            root = pivoted_root(columns, system.diag - system.s2, rank)
        else:
            order = torch.randperm(system.n, generator=generator(self.seed, "preconditioner"))
            root = nystrom_root(columns, order[:rank].to(system.y.device))
        return woodbury(root, system.s2, self.damped)

    def _rank_for(self, n: int, d: int, bytes_per_number: int) -> int:
        """The rank that is set or, if it is 0, the rank r with n r^2 = flops of one product with A.

        Building the preconditioner can then never cost more than one iteration, and it may save most of them. The
        root takes at most the memory of the cache, or that of 1000 vectors.
        """
        if self.rank:
            return min(self.rank, n)
        r = int((n * (0.5 * FLOPS_PER_ENTRY + d + 2.0)) ** 0.5)
        room = int(self.cache * settings.GIGABYTE // (bytes_per_number * n))
        return min(r, max(room, MANY), n)

    def cost(self, problem: Problem) -> Cost:
        """Cost of one product with A and one with M^-1."""
        n = len(problem.train)
        rank = self._rank_for(n, problem.train.d, problem.train.y.element_size())
        flops = 2.0 * n * n + 4.0 * n * rank
        return iteration_cost(problem, self.cache, entries=1.0 * n * n, flops=flops, columns=rank)


def _iterations(system: System, state: SolverState, precondition: Preconditioner | None) -> Iterator[Iteration]:
    """Iterates from this state on; its memory is (r, p, r'M^-1 r), empty at the start and after a refresh."""
    if state.memory:
        initial = Iterate(state.alpha, *state.memory)
    else:
        initial = from_residual(state.alpha, -system.gradient(state.alpha), precondition)
    for iterate in cg(system.product, initial, precondition):
        yield Iteration(iterate.x, -iterate.r, (iterate.r, iterate.p, iterate.rz))
