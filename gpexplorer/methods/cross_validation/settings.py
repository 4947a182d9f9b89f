"""Settings that the methods of this family share, one function each, so that every method declares its own."""

from __future__ import annotations

from typing import Any

import param

from .learning import OPTIMISERS


def optimiser() -> Any:
    """How an exact objective is lowered."""
    return param.Selector(
        default="L-BFGS-B",
        objects=OPTIMISERS,
        doc="How theta moves; gradient descent with Armijo's rule is the paper's benchmark, and the slowest.",
    )


def evaluations() -> Any:
    """Budget of n^3."""
    return param.Integer(
        60, bounds=(1, None), softbounds=(10, 200), doc="Evaluations of the objective at most, n^3 flops each."
    )


def slope_tolerance() -> Any:
    """When theta counts as found."""
    return param.Number(
        1e-4,
        bounds=(0.0, None),
        softbounds=(1e-6, 1e-1),
        doc="Stop when no slope in a log-hyperparameter exceeds this fraction of the objective.",
    )


def refit() -> Any:
    """How predictions are made."""
    return param.Selector(
        default="cholesky",
        objects=["cholesky", "cg"],
        doc="Predict by one Cholesky factor of all rows, or by conjugate gradients that never hold the matrix.",
    )


def memory() -> Any:
    """Kernel held."""
    return param.Number(
        2.0,
        bounds=(0.0, None),
        softbounds=(0.0, 16.0),
        doc="Gigabytes for kernel matrices; beyond it their rows are computed again, in blocks, whenever needed.",
    )


def calibrate() -> Any:
    """Whether the scale is found."""
    return param.Boolean(
        True,
        doc="Multiply all sds so that residuals have the size they claim; squared errors alone leave it open.",
    )


def restarts() -> Any:
    """Starts beside the first."""
    return param.Integer(
        0, bounds=(0, 100), softbounds=(0, 10), doc="Random starts beside the first; the lowest objective wins."
    )


FOLLOWING, STILL = "z follows", "z held still"


def folds() -> Any:
    """K."""
    return param.Integer(
        4, bounds=(2, None), softbounds=(2, 10), doc="Folds K: each is a fit of its own, on (K - 1)/K of the rows."
    )


def rho() -> Any:
    """The penalty."""
    return param.Number(
        20.0,
        bounds=(0.0, None),
        inclusive_bounds=(False, True),
        softbounds=(0.05, 100.0),
        doc="Penalty on Cz = y to begin with, 5 published: too small diverges, too large stalls.",
    )


def balance() -> Any:
    """Residual balancing."""
    return param.Number(
        0.0,
        bounds=(0.0, None),
        softbounds=(0.0, 1000.0),
        doc="rho doubles where the primal residual exceeds the dual, halves where it is this much smaller; 0 never.",
    )


def rho_span() -> Any:
    """Safeguard of the penalty."""
    return param.Number(
        1e4, bounds=(1.0, None), softbounds=(1.0, 1e6), doc="rho stays within this factor of where it began."
    )


def relaxation() -> Any:
    """alpha."""
    return param.Number(
        1.0,
        bounds=(0.0, 2.0),
        inclusive_bounds=(False, False),
        softbounds=(0.5, 1.8),
        doc="Length of a dual step: above 1 over-relaxes, below 1 is the smaller rho' that the paper suggests.",
    )


def largest_gap() -> Any:
    """When a step is taken back."""
    return param.Number(
        0.1,
        bounds=(0.0, None),
        inclusive_bounds=(False, True),
        softbounds=(0.01, 1.0),
        doc="A step that leaves Cz further from y than this share of |y| is taken back, and rho raised fourfold.",
    )


def max_rollbacks() -> Any:
    """When to say that it diverges."""
    return param.Integer(
        12, bounds=(1, None), softbounds=(1, 30), doc="Steps taken back in a row after which the run has diverged."
    )


def theta_method() -> Any:
    """How theta moves."""
    return param.Selector(
        default=FOLLOWING,
        objects=[FOLLOWING, STILL],
        doc="A quasi-Newton step with z solved for at every trial, or gradient steps with z held still, as published.",
    )


def theta_steps() -> Any:
    """Inner iterations."""
    return param.Integer(
        2, bounds=(1, 100), softbounds=(1, 10), doc="Gradient steps an iteration where z is held still."
    )


def cg_iterations() -> Any:
    """Budget of the z step."""
    return param.Integer(
        100,
        bounds=(1, None),
        softbounds=(5, 300),
        doc="CG iterations: of conjugate gradients, a z step at most; n^2 each.",
    )


def cg_tolerance() -> Any:
    """Accuracy of the z step."""
    return param.Number(
        3e-4,
        bounds=(0.0, 1.0),
        softbounds=(1e-8, 1e-2),
        doc="CG tolerance: a z step is solved when about this share of |y| is left between Cz and where it should be.",
    )


def rank() -> Any:
    """Preconditioner."""
    return param.Integer(
        300,
        bounds=(0, None),
        softbounds=(0, 1000),
        doc="Most rows behind the preconditioner of the z step, at n rank^2 an iteration; a smooth kernel is "
        "served by fewer. 0 is none, as published.",
    )


def dual_start() -> Any:
    """Multipliers."""
    return param.Selector(
        default="adjoint",
        objects=["adjoint", "zeros", "ones"],
        doc="First multipliers: the adjoint makes the first slope that of the loss itself; ones are published.",
    )


def tolerance() -> Any:
    """When it has converged."""
    return param.Number(
        5e-3,
        bounds=(0.0, None),
        softbounds=(1e-5, 1e-1),
        doc="Stop when theta moves by less and Cz misses y by a smaller share; .01 published.",
    )


def patience() -> Any:
    """How long theta must rest."""
    return param.Integer(
        4, bounds=(1, None), softbounds=(1, 20), doc="Iterations in a row that must move theta so little; 1 published."
    )


def max_iterations() -> Any:
    """When to give up."""
    return param.Integer(100, bounds=(1, None), softbounds=(10, 500), doc="Outer iterations at most; 100 published.")
