"""Conjugate gradients on the whole system, plain and with a low-rank preconditioner.

    r = y - A alpha = -g;   every iteration takes one product A p with the whole matrix A = K + s2 I
    M = L_r L_r' + (s2 + lambda_r) I,   the preconditioner, applied by Woodbury's identity (`linalg.preconditioners`)

Each iteration reads, or computes, the whole kernel matrix. A preconditioner reduces the number of iterations; each then
takes 4 n r flops more, after n r^2 flops once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...features.grid_eigenfunctions import grid_root
from ...linalg.conjugate_gradients import Iterate, cg, from_residual
from ...linalg.preconditioners import drawn_root, nystrom_root, pivoted_root, woodbury
from ...linalg.randomness import generator
from ...problem import Cost, Problem
from . import settings
from .costs import FLOPS_PER_ENTRY, iteration_cost
from .solver import Solver
from .state import State
from .system import Iteration, System

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

    def iterations(self, system: System, state: State) -> Iterator[Iteration]:
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

    rank = param.Integer(
        0,
        bounds=(0, None),
        softbounds=(0, 1000),
        doc="Rank of the preconditioner. A larger rank saves iterations. 0 chooses the rank at which building it takes "
        "as long as one product with the matrix, as far as it fits into the memory of the cache.",
    )
    root: Any = param.Selector(
        default="drawn",
        objects=["pivoted", "nystrom", "drawn", "grief"],
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

    def iterations(self, system: System, state: State) -> Iterator[Iteration]:
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
        return iteration_cost(
            problem, self.cache, entries=1.0 * n * n, flops=2.0 * n * n + 4.0 * n * rank, columns=rank
        )


def _iterations(system: System, state: State, precondition: Preconditioner | None) -> Iterator[Iteration]:
    """Iterates from this state on; its memory is (r, p, r'M^-1 r), empty at the start and after a refresh."""
    if state.memory:
        initial = Iterate(state.alpha, *state.memory)
    else:
        initial = from_residual(state.alpha, -system.gradient(state.alpha), precondition)
    for iterate in cg(system.product, initial, precondition):
        yield Iteration(iterate.x, -iterate.r, (iterate.r, iterate.p, iterate.rz))
