"""GPCV-ADMM: hyperparameters by cross-validation, with products of the kernel matrix and vectors alone.

    min sum_k |y_V - K_VT(theta_k) z_k|^2   subject to   C(theta_k) z_k = y_T   and   theta_k = mean    eqs 9, 10, 16

Algorithm 1 of Xu, Yin, Zhang, Luo and Cui (2019) and its K-fold schemes. This package adds, and a setting switches
off: multipliers that start at the adjoint, a quasi-Newton theta step, a preconditioner for the z step, a rho that
balances the residuals, and steps that are taken back. The published algorithm is `theta_method="z held still"`,
`one_at_a_time=True`, `dual_start="ones"`, `rank=0`, `balance=0`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import param
import torch

from ...linalg.blocks import BLOCK_BYTES
from ...posteriors import Posterior
from ...problem import Cost, Problem, take
from ..base import Steps
from ..setting_kinds import count, positive, share
from .consensus import ConsensusInfo, ConsensusState, run
from .exact_posterior import exact_posterior
from .fold_steps import FoldSettings
from .folds import equal_parts, ordered_by_fold
from .learning import BLOCK_CALLS, ENTRY
from .scheme import Scheme
from .settings import GIGABYTE
from .theta_step import FOLDS_AT_ONCE, fixed_z, z_eliminated

SOLUTION = 8.0  # iterations of conjugate gradients per solution
TRIALS = 1.3  # kernel matrices of a theta step
ITERATION_CALLS = 400.0  # calls per outer iteration of a group
GRADIENT_CALLS = 60.0  # calls per gradient
READ_CALLS = 45.0  # calls per product with M, with the preconditioner and the vectors of conjugate gradients


class GPCV(Scheme):
    """What the three schemes share: their steps. They differ in the validation rows and in the consensus."""

    family: ClassVar[str] = "cross_validation"
    row_noise: ClassVar[tuple[str, ...]] = ("relative",)
    uses_groups: ClassVar[bool] = True
    uses_folds: ClassVar[bool] = True
    takes_priors: ClassVar[bool] = False
    paper: ClassVar[str] = (
        "Xu, Yin, Zhang, Luo and Cui (2019). A general O(n^2) hyper-parameter optimization for GP regression with ADMM."
    )
    State: ClassVar[type] = ConsensusState
    Info: ClassVar[type] = ConsensusInfo
    equations: ClassVar[dict[str, str]] = {
        "rho": r"L_\rho = \|y_V-K_{VT}z\|^2 + \lambda^\top(Cz-y_T) + \tfrac{\rho}{2}\|Cz-y_T\|^2",
        "cg_iterations": r"(2K_{VT}^\top K_{VT}+\rho C^2)\,z = 2K_{VT}^\top y_V + C(\rho y_T-\lambda)",
        "relaxation": r"\lambda \leftarrow \lambda + \alpha\rho\,(Cz - y_T)",
    }
    added_settings: ClassVar[Mapping[str, Any]] = {"forcing": 0.0}

    def steps(self, problem: Problem, resume: ConsensusState | None = None) -> Steps:
        return run(self, problem, resume)

    def posterior(self, problem: Problem, state: ConsensusState) -> Posterior:
        return exact_posterior(problem, state.theta, self.refit, self.memory, self.rank)

    def cost(self, problem: Problem) -> Cost:
        n = len(problem.train)
        _, validation = ordered_by_fold(problem.train, self.validation(n), self.seed)
        groups = [(n - (part.stop - part.start), 1) for part in validation]
        if self.shares_theta and len(validation) > 1:
            groups = [(n, len(validation))]
        return admm_cost(problem, groups, self.fold_settings(), self.memory)


class KFold(GPCV):
    """Base class of the schemes with several folds."""

    folds: Any = count(
        4,
        (2, 10),
        least=2,
        doc="Number of folds K. Each fold trains on (K - 1)/K of the rows and validates on the rest. It has no effect "
        "where folds are given with the rows.",
    )

    def validation(self, n: int) -> list[slice]:
        return equal_parts(n, self.folds)


class Consensus(KFold):
    """K-fold cross-validation with consensus: every fold has its own theta, and ADMM makes them agree (eq 16).

    References
    ----------
    Xu, Yin, Zhang, Luo and Cui (2019), section 3.2, the principled scheme. The paper solves (16) by the ADMM of Hong
    et al. (2016); here each fold also carries its own z and multipliers of C z = y_T, as in the hold-out scheme.
    """

    key: ClassVar[str] = "gpcv-admm"
    added_settings: ClassVar[Mapping[str, Any]] = {"forcing": 0.0, "copies": True}
    title: ClassVar[str] = "GPCV-ADMM"
    equations: ClassVar[dict[str, str]] = {
        **GPCV.equations,
        "coupling": r"\theta_1=\dots=\theta_K=\bar\theta:\quad \nu_k^\top(\theta_k-\bar\theta)"
        r"+\tfrac{\kappa}{2}\|\theta_k-\bar\theta\|^2",
    }

    copies: Any = param.Boolean(
        False,
        doc="Give every fold a theta and a kernel matrix of its own, made to agree by consensus, as in the paper. It "
        "is for a cluster, where each fold is a worker's. Otherwise all folds have one theta and one kernel matrix.",
    )
    coupling: Any = positive(
        1.0,
        (0.01, 100.0),
        doc="Where each fold has its own copy of theta: how strongly these are tied together, relative to the loss. "
        "With too little they disagree; with too much theta moves slowly.",
    )

    @property
    def coupling_strength(self) -> float:
        return float(self.coupling)

    @property
    def shares_theta(self) -> bool:
        return not self.copies


class Naive(KFold):
    """K independent hold-out runs whose hyperparameters are averaged.

    References
    ----------
    Xu, Yin, Zhang, Luo and Cui (2019), section 3.2, the naive scheme; the experiments of the paper use it with K = 2.
    """

    key: ClassVar[str] = "gpcv-admm-naive"
    title: ClassVar[str] = "GPCV-ADMM, naive averaging"


class HoldOut(GPCV):
    """Hold-out cross-validation: one part of the rows is the validation set.

    References
    ----------
    Xu, Yin, Zhang, Luo and Cui (2019), section 3.1 and algorithm 1.
    """

    key: ClassVar[str] = "gpcv-admm-holdout"
    title: ClassVar[str] = "GPCV-ADMM, hold-out"

    fraction: Any = share(
        0.5,
        (0.1, 0.5),
        inclusive=(False, False),
        doc="Share of the rows used for validation; the others are for training (published: one half).",
    )

    def validation(self, n: int) -> list[slice]:
        return [slice(0, min(max(round(self.fraction * n), 1), n - 1))]


def admm_cost(problem: Problem, groups: list[tuple[int, int]], fold_settings: FoldSettings, gigabytes: float) -> Cost:
    """Predict the cost of one outer iteration of all groups of folds, given as (columns c of M, folds K).

    With z eliminated an iteration solves for z, for the multipliers and for the score; the z step of the other rules
    takes several times as many solutions. With z fixed, every gradient step adds a kernel matrix and a gradient. A
    gradient that the kernel derives from M computes no entry; otherwise it costs as much as two matrices. Where M is
    not stored, every product computes it again. SOLUTION iterations of conjugate gradients are those of a
    preconditioner that nearly covers the rows.
    """
    n, d, s = len(problem.train), problem.train.d, problem.train.y.element_size()
    # whether the kernel can derive its gradient from its own values
    kernel: Any = problem.kernel
    X, ones = take(problem.train.X, torch.zeros(1, dtype=torch.int64)), problem.train.y.new_ones(1)
    from_matrix = kernel.theta_gradient_from_matrix(problem.theta, X, X, (ones, ones), ones[:, None]) is not None
    solutions = 3.0 if fold_settings.z_rule is z_eliminated else 9.0
    steps = fold_settings.gradient_steps if fold_settings.z_rule is fixed_z else 0
    steps *= len(problem.theta) if fold_settings.one_at_a_time else 1
    products = SOLUTION * solutions + 4.0
    flops = bytes_moved = calls = 0.0
    memory: dict[str, float] = {}
    for columns, folds in groups:
        M, rank = 1.0 * n * columns, min(fold_settings.rank, columns)
        passes = (1.0 + steps) * math.ceil(folds / FOLDS_AT_ONCE)  # over M, for gradients
        matrices = TRIALS + steps + (0.0 if from_matrix else 2.0 * passes)
        matrices += 1.0 if len(groups) > 1 else 0.0  # copies are scored at their mean
        not_stored = max(0.0, 1.0 - gigabytes * GIGABYTE / (s * M))
        entries = M * (matrices + not_stored * products)
        flops += entries * (ENTRY + 3.0 * d) + 2.0 * M * folds * products
        flops += 4.0 * M * (d + 2.0) * (1.0 + steps) * folds * from_matrix
        flops += TRIALS * (6.0 * columns * rank**2 + folds * rank**3 / 3.0)
        bytes_moved += s * (2.0 * entries + M * (products + 2.0 * passes))
        bytes_moved += s * 4.0 * columns * folds * SOLUTION * products  # earlier residuals
        calls += ITERATION_CALLS + READ_CALLS * products * (1.0 - steps / (steps + 1.0) / 2.0)
        calls += BLOCK_CALLS * entries * s / BLOCK_BYTES + GRADIENT_CALLS * passes
        stored = min(gigabytes * GIGABYTE, s * M) * (2.0 if steps else 1.0)
        sizes = {"kernel of a group": stored, "preconditioner": s * (2.5 * columns * rank + 2.0 * folds * rank**2)}
        sizes |= {
            "vectors": s * folds * columns * (8.0 + 2.0 * SOLUTION),
            "blocks": 0.0 if from_matrix else 1.5 * stored,
        }
        memory = max(memory, sizes, key=lambda part: sum(part.values()))
    return Cost(flops, bytes_moved, memory, calls)
