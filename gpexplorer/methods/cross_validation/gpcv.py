"""GPCV-ADMM: hyperparameters by cross-validation, with products of the kernel matrix and vectors alone.

    min sum_k |y_V - K_VT(theta_k) z_k|^2   subject to   C(theta_k) z_k = y_T   and   theta_k = mean    eqs 9, 10, 16

Algorithm 1 of Xu, Yin, Zhang, Luo and Cui (2019), and its K-fold schemes. What is added here can be switched off:
multipliers that start at the adjoint, a quasi-Newton theta step, a preconditioned z step, a penalty that balances
the residuals, steps taken back. `theta_method="z held still"`, `dual_start="ones"`, `rank=0`, `balance=0` is published.
"""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from typing import Any, ClassVar

import param

from ...problem import Channel, Cost, Posterior, Problem
from ..base import Method, Steps
from . import settings
from .consensus import run
from .costs import admm_cost
from .exact_posterior import posterior
from .fold_steps import Rules
from .state import CHANNELS
from .state import Info as Report
from .state import State as At

PAPER = "Xu, Yin, Zhang, Luo and Cui (2019). A general O(n^2) hyper-parameter optimization for GP regression with ADMM."


class Folded(Method):
    """What the three schemes share: settings and steps. They differ in the rows held out, and in what ties folds."""

    family: ClassVar[str] = "cross_validation"
    paper: ClassVar[str] = PAPER
    State: ClassVar[type] = At
    Info: ClassVar[type] = Report
    equations: ClassVar[dict[str, str]] = {
        "rho": r"L_\rho = \|y_V-K_{VT}z\|^2 + \lambda^\top(Cz-y_T) + \tfrac{\rho}{2}\|Cz-y_T\|^2",
        "cg_iterations": r"(2K_{VT}^\top K_{VT}+\rho C^2)\,z = 2K_{VT}^\top y_V + C(\rho y_T-\lambda)",
        "relaxation": r"\lambda \leftarrow \lambda + \alpha\rho\,(Cz - y_T)",
    }
    channels: ClassVar[tuple[Channel, ...]] = CHANNELS

    rho = settings.rho()
    balance = settings.balance()
    rho_span = settings.rho_span()
    relaxation = settings.relaxation()
    largest_gap = settings.largest_gap()
    max_rollbacks = settings.max_rollbacks()
    theta_method = settings.theta_method()
    theta_steps = settings.theta_steps()
    cg_iterations = settings.cg_iterations()
    cg_tolerance = settings.cg_tolerance()
    rank = settings.rank()
    dual_start = settings.dual_start()
    restarts = settings.restarts()
    tolerance = settings.tolerance()
    patience = settings.patience()
    max_iterations = settings.max_iterations()
    calibrate = settings.calibrate()
    refit = settings.refit()
    memory = settings.memory()

    @property
    def coupled(self) -> float:
        """kappa, as a share of a fold's held-out squared error; 0 ties nothing."""
        return 0.0

    @abstractmethod
    def validation(self, n: int) -> list[slice]:
        """The part of the n shuffled rows that each fold holds out."""

    def rules(self) -> Rules:
        """The settings that a fold needs."""
        return Rules(
            self.rank,
            (self.cg_iterations, self.cg_tolerance),
            self.theta_steps,
            self.theta_method == settings.FOLLOWING,
            self.relaxation,
            self.balance,
            self.rho_span,
            self.rho,
            self.largest_gap,
        )

    def steps(self, problem: Problem, resume: At | None = None) -> Steps:
        return run(self, problem, resume)

    def posterior(self, problem: Problem, state: At) -> Posterior:
        return posterior(problem, state.theta, self.refit, self.memory)

    def cost(self, problem: Problem) -> Cost:
        return admm_cost(problem, self.validation(len(problem.train)), self.rules(), self.memory)


def parts(n: int, count: int) -> list[slice]:
    """n rows in `count` parts of nearly one size, fewer where there are not as many rows."""
    count = min(count, n)
    edges = [round(k * n / count) for k in range(count + 1)]
    return [slice(begin, end) for begin, end in pairwise(edges)]


class Consensus(Folded):
    """K folds, each with hyperparameters of its own, made to agree."""

    key: ClassVar[str] = "gpcv-admm"
    title: ClassVar[str] = "GPCV-ADMM"
    equations: ClassVar[dict[str, str]] = {
        **Folded.equations,
        "coupling": r"\theta_1=\dots=\theta_K=\bar\theta:\quad \nu_k^\top(\theta_k-\bar\theta)"
        r"+\tfrac{\kappa}{2}\|\theta_k-\bar\theta\|^2",
    }

    folds = settings.folds()
    coupling: Any = param.Number(
        1.0,
        bounds=(0.0, None),
        inclusive_bounds=(False, True),
        softbounds=(0.01, 100.0),
        doc="How strongly folds are tied, in units of their error: too little and they part, too much and they crawl.",
    )

    @property
    def coupled(self) -> float:
        return float(self.coupling) if self.folds > 1 else 0.0

    def validation(self, n: int) -> list[slice]:
        return parts(n, self.folds)


class Naive(Folded):
    """K hold-out runs, averaged."""

    key: ClassVar[str] = "gpcv-admm-naive"
    title: ClassVar[str] = "GPCV-ADMM, naive averaging"

    folds = settings.folds()

    def validation(self, n: int) -> list[slice]:
        return parts(n, self.folds)


class HoldOut(Folded):
    """One part of the rows is held out."""

    key: ClassVar[str] = "gpcv-admm-holdout"
    title: ClassVar[str] = "GPCV-ADMM, hold-out"

    fraction = param.Number(
        0.5,
        bounds=(0.0, 1.0),
        inclusive_bounds=(False, False),
        softbounds=(0.1, 0.5),
        doc="Share of the rows that is held out to validate on, the rest being trained on; a half is published.",
    )

    def validation(self, n: int) -> list[slice]:
        return [slice(0, min(max(round(self.fraction * n), 1), n - 1))]
