"""Conjugate gradients with a low-rank preconditioner: fewer iterations, each as dear, after n r^2 once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ....features.grid_root import grid_root
from ....linalg.conjugate_gradients import Iterate, cg, from_residual
from ....linalg.preconditioners import drawn_root, nystrom_root, pivoted_root, woodbury
from ....linalg.randomness import generator
from ....problem import Cost, Problem
from .. import settings
from ..costs import cost
from ..loop import State
from ..solver import Solver
from ..system import Move, System

SHIFT = 0.1  # of the noise, on the diagonal of drawn pivots: well above the rounding of columns, and no iteration more


class PreconditionedCG(Solver):
    """The exact GP, solved by conjugate gradients in coordinates where the kernel is nearly the identity."""

    key: ClassVar[str] = "pcg"
    title: ClassVar[str] = "Preconditioned conjugate gradients"
    paper: ClassVar[str] = "Gardner et al. (2018). Blackbox matrix-matrix Gaussian process inference. NeurIPS."
    equations: ClassVar[dict[str, str]] = {"rank": r"M = L_r L_r^\top + \sigma^2 I,\quad \kappa(M^{-1}A) \to 1"}

    rank = param.Integer(
        100,
        bounds=(1, None),
        softbounds=(10, 500),
        doc="Rank of the preconditioner: more saves iterations.",
    )
    root: Any = param.Selector(
        default="pivoted",
        objects=["pivoted", "nystrom", "drawn", "grief"],
        doc="pivoted: rows of most residual variance in turn; nystrom: random rows; drawn: random, by the variance "
        "that others leave; grief: eigenfunctions of a grid.",
    )
    mixed = settings.mixed()
    refresh = settings.refresh()

    def moves(self, system: System, state: State) -> Iterator[Move]:
        """As `cg`, with M^-1 r in the place of r where directions are made."""
        if "preconditioner" not in system.made:
            system.made["preconditioner"] = self._preconditioner(system)
        apply = system.made["preconditioner"]
        first = (
            Iterate(state.alpha, *state.memory)
            if state.memory
            else from_residual(state.alpha, -system.gradient(state.alpha), apply)
        )
        for at in cg(system.product, first, apply):
            yield Move(at.x, -at.r, (at.r, at.p, at.rz))

    def _preconditioner(self, system: System) -> Callable[[Tensor], Tensor]:
        rank = min(self.rank, system.n)

        def columns(rows: Tensor) -> Tensor:
            return system.columns(rows).T.to(system.y.dtype)

        if self.root == "grief":
            whole = system.exact
            return woodbury(grid_root(whole.kernel, whole.theta, whole.X, rank), system.s2)
        if self.root == "drawn":
            root, spare = system.y.new_empty(system.n, rank), system.diag - system.s2
            drawn_root(lambda rows: system.columns(rows).to(root.dtype), spare, root, self.seed, SHIFT * system.s2)
        elif self.root == "pivoted":
            root = pivoted_root(columns, system.diag - system.s2, rank)
        else:
            order = torch.randperm(system.n, generator=generator(self.seed, "preconditioner"))
            root = nystrom_root(columns, order[:rank].to(system.y.device))
        return woodbury(root, system.s2)

    def cost(self, problem: Problem) -> Cost:
        n, rank = len(problem.train), min(self.rank, len(problem.train))
        return cost(problem, self.cache, entries=1.0 * n * n, flops=2.0 * n * n + 4.0 * n * rank, columns=rank)
