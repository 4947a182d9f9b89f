"""The settings of the schemes of cross-validation by ADMM, which the loop over the folds and every fold read."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import param

from ..base import Method
from ..setting_kinds import amount, choice, count, positive, share
from . import settings
from .fold_steps import FoldSettings
from .theta_step import Limits, ZRule, fixed_z, z_eliminated, z_follows

ELIMINATED = "z eliminated"
Z_RULES: dict[str, ZRule] = {ELIMINATED: z_eliminated, "z follows": z_follows, "z held still": fixed_z}


class Scheme(Method):
    """Base class of the schemes: settings, and which rows each fold validates on."""

    rho: Any = positive(
        20.0,
        (0.05, 100.0),
        doc="Initial weight of the penalty on Cz = y (published: 5). Too small diverges; too large makes theta slow.",
    )
    balance: Any = amount(
        0.0,
        (0.0, 1000.0),
        doc="rho doubles where the primal residual exceeds the dual one, and halves where it is this many times "
        "smaller. 0 leaves rho as it is.",
    )
    rho_span: Any = param.Number(
        1e4, bounds=(1.0, None), softbounds=(1.0, 1e6), doc="rho stays within this factor of its initial value."
    )
    relaxation: Any = param.Number(
        1.0,
        bounds=(0.0, 2.0),
        inclusive_bounds=(False, False),
        softbounds=(0.5, 1.8),
        doc="Length of a dual step: above 1 over-relaxes; below 1 is the smaller rho' that the paper suggests.",
    )
    largest_gap: Any = positive(
        0.1,
        (0.01, 1.0),
        doc="A step with |Cz - y| above this share of |y| is taken back, and rho is multiplied by four.",
    )
    max_rollbacks: Any = count(
        12, (1, 30), doc="The run has diverged after this many consecutive steps were taken back."
    )
    theta_method: Any = choice(
        list(Z_RULES),
        doc="While theta moves, Cz = y holds (the limit of a large rho), or z minimises L, or z is fixed, as "
        "published. The first two take a quasi-Newton step per iteration, the last gradient steps.",
    )
    theta_steps: Any = count(2, (1, 10), most=100, doc="Gradient steps per iteration, where z is held still.")
    one_at_a_time: Any = param.Boolean(
        False,
        doc="Where z is held still, a gradient step moves one hyperparameter after the other, each as far as Armijo's "
        "rule allows: coordinate descent, as in section 5.3 of the paper.",
    )
    cg_iterations: Any = count(
        100, (5, 300), doc="Iterations of conjugate gradients (CG) per z step, at most; each costs O(n^2)."
    )
    cg_tolerance: Any = share(
        3e-4,
        (1e-8, 1e-2),
        doc="CG ends where the error of a z step, measured as an error of Cz, is about this share of |y|.",
    )
    forcing: Any = share(
        0.1,
        (0.01, 0.5),
        doc="The CG tolerance of a z step is this share of the relative gradient in theta, within a factor of 30 above "
        "and 1000 below cg_tolerance. 0 keeps cg_tolerance, as before. It has no effect where rank covers all rows, "
        "because two iterations then solve to rounding.",
    )
    rank: Any = count(
        300,
        (0, 1000),
        least=0,
        doc="Largest number of rows in the preconditioner of the z step; it costs n rank^2 per iteration. A smooth "
        "kernel needs fewer, and uses fewer. 0 means no preconditioner, as published.",
    )
    dual_start: Any = choice(
        ["adjoint", "zeros", "ones"],
        doc="First multipliers. With the adjoint, the first gradient is that of the loss itself; ones are published.",
    )
    restarts = settings.restarts()
    tolerance: Any = amount(
        5e-3,
        (1e-5, 1e-1),
        doc="Stop when theta moves by less than this and |Cz - y| is a smaller share of |y| (published: 0.01).",
    )
    patience: Any = count(
        4,
        (1, 20),
        doc="Number of consecutive iterations that must move theta by less than the tolerance (published: 1).",
    )
    max_iterations: Any = count(100, (10, 500), doc="Outer iterations, at most (published: 100).")
    calibrate = settings.calibrate()
    refit = settings.refit("auto")
    memory = settings.memory()

    @property
    def coupling_strength(self) -> float:
        """Return kappa as a share of the validation loss of a fold; 0 leaves the folds independent."""
        return 0.0

    @property
    def shares_theta(self) -> bool:
        """Return whether all folds have one theta, and therefore one kernel matrix."""
        return False

    @abstractmethod
    def validation(self, n: int) -> list[slice]:
        """Return the validation rows of each fold, as slices of the n shuffled rows."""

    def fold_settings(self) -> FoldSettings:
        """Return the settings that a fold needs."""
        return FoldSettings(
            rank=self.rank,
            limits=Limits(self.cg_iterations, self.cg_tolerance),
            forcing=self.forcing,
            gradient_steps=self.theta_steps,
            one_at_a_time=self.one_at_a_time,
            z_rule=Z_RULES[self.theta_method],
            relaxation=self.relaxation,
            balance=self.balance,
            rho_span=self.rho_span,
            rho=self.rho,
            largest_gap=self.largest_gap,
        )
