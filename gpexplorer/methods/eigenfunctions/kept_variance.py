"""Which share of the prior variance the basis functions keep, and what an outcome says where it is too small."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ...features.basis_choices import Choice, Leading
from ...features.grid_eigenfunctions import MOST, allowed_loss, axis_shares
from ...objectives import noise_variance
from ...problem import Outcome, Problem

SMALL_SHARE = 0.05  # a smaller share of the prior variance is reported at the end
SMALL_AXIS_SHARE = 0.5  # an axis that represents less of its own kernel is too coarse, and is reported at the end
NOTED_LOSS = 0.01  # of the noise variance: if the largest automatic axis leaves out more, this is reported at the end


def share_kept(problem: Problem, theta: Tensor, choice: Choice) -> float:
    """Return the share of the prior variance that the basis functions represent, on the first 500 rows."""
    X = problem.train.X[:500]
    with torch.no_grad():
        represented = choice(theta)(X).square().sum()
    return float(represented / problem.kernel.diag(theta, X).sum())


def with_share_kept(message: str, kept: float, count: int) -> str:
    """Add to the message of an outcome that the functions represent almost nothing of the kernel, if they do."""
    if not kept < SMALL_SHARE:
        return message
    return (
        f"{message} The {count} basis functions represent only {100.0 * kept:.2g} % of the prior variance at these "
        "hyperparameters, so that most of the function counts as noise. Raise num_eigenfunctions, or choose a method "
        "of the family inducing."
    )


def with_coarse_axes(message: str, problem: Problem, theta: Tensor, choice: Choice) -> str:
    """Add to the message of an outcome which input has too few grid points, beside its lengthscale or the noise.

    The noise is compared where an input has as many points as an automatic grid may have.
    """
    if not isinstance(choice, Leading):
        return message
    grid, sizes = choice.grid, [len(U) for U in choice.grid.axes]
    X = problem.train.X[:, : len(sizes)]
    shares = axis_shares(grid, theta, X, choice.functions)
    coarse = [i for i, share in enumerate(shares) if share < SMALL_AXIS_SHARE]
    worst = min(range(len(shares)), key=lambda i: shares[i])
    percent = 100.0 * max(shares[worst], 0.0)
    name = repr(problem.train.names[worst]) if worst < len(problem.train.names) else f"number {worst + 1}"
    if coarse:
        more = f" {len(coarse) - 1} more inputs are affected." if len(coarse) > 1 else ""
        return (
            f"{message} The {sizes[worst]:,} grid points of input {name} are too far apart for its "
            f"lengthscale: they represent {percent:.2g} % of the variance along it at the training rows, "
            f"and the rest counts as noise.{more} Give it more by grid_points, or by points_per_input for this input "
            "only."
        )
    loss = 1.0 - shares[worst]
    if sizes[worst] < MOST or loss <= allowed_loss(grid, theta, X, len(choice), NOTED_LOSS):
        return message
    times = loss * float(grid.kernel.diag(theta, X).mean()) / noise_variance(theta)
    return (
        f"{message} The {sizes[worst]:,} grid points of input {name} leave out a variance along it that is "
        f"{100.0 * times:.2g} % of the noise variance, so that the bands of the function are too narrow. Give it more "
        "by points_per_input, or choose a method of the family exact."
    )


def outcome_at(reason: str, message: str, problem: Problem, state: Any, choice: Choice) -> Outcome:
    """Return an outcome whose message also says where the functions do not represent the kernel."""
    message = with_share_kept(message, share_kept(problem, state.theta, choice), len(choice))
    return Outcome(reason, with_coarse_axes(message, problem, state.theta, choice))
