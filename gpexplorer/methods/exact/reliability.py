"""A check of one iteration that costs no kernel entry: is the updated gradient still the gradient of alpha?

    s = a_new - a_old,   q = g_new - g_old                     q should be A s
    a_old'q = a_old'A s = s'A a_old = s'(g_old + y)            because A is symmetric and g_old = A a_old - y

    error    = a_old'q - s'(g_old + y)                         the change of the decrease of f by rounding
    decrease = f(a_old) - f(a_new),   f(a) = a'(g - y) / 2     never negative for a descent method

The gradient also bounds the distance to the solution, because no eigenvalue of A is below s2 (`ErrorBounds`).

Kernel columns in float32, or a block whose factor is inaccurate, break one of the two: either the error is no longer
small beside the decrease, and then the reported f and g drift away from alpha, or f rises, and then every further
step makes it worse. Both are visible one step after they begin. In float64 the error is about 1e-12 of f.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from ...problem import Outcome
from .system import System

SHARE = 0.1  # an error above this share of the decrease means that rounding decides how far a step goes
RESOLUTION = 1e-6  # changes below this share of f are visible in no picture and no score


class Point(NamedTuple):
    """An iterate with its gradient."""

    alpha: Tensor  # [n]
    gradient: Tensor  # [n] A alpha - y


class ErrorBounds(NamedTuple):
    """What the norm of an exact gradient says about the answer, whatever the method that found it.

    Notes
    -----
    A error = g for the error of alpha, and A = K + s2 I. Therefore f - min f = g'A^-1 g / 2 <= |g|^2 / (2 s2). With
    features phi of the kernel, K = Phi Phi' and k(X, x*) = Phi phi*, the error of a mean is phi*'Phi'A^-1 g. No
    singular value of Phi'A^-1, which are a / (a^2 + s2) for those a of Phi, exceeds 1 / (2 s), so that the error is at
    most k(x*, x*)^1/2 |g| / (2 s). Both are equalities for the worst gradient.
    """

    gap: float  # f(alpha) - min f is at most this, in nats
    mean: float  # of a predictive mean where k(x*, x*) is at most that of a training row, in units of s

    def within(self, tolerance: float) -> bool:
        """Whether means err by at most this, in noise standard deviations, and f by at most this, in nats."""
        return self.mean <= tolerance and self.gap <= tolerance


def error_bounds(prior_variance: float, s2: float, norm: float) -> ErrorBounds:
    """Bounds on the objective and on predictive means; no kernel entry.

    Parameters
    ----------
    prior_variance : float
        Largest k(x, x) of the training rows.
    s2 : float
        Noise variance.
    norm : float
        Norm |g|_2 of the exact gradient.
    """
    return ErrorBounds(gap=0.5 * norm / s2 * norm, mean=0.5 * norm / s2 * math.sqrt(prior_variance))


class StepCheck(NamedTuple):
    """What an iteration did to the objective."""

    decrease: float  # of f, from the updated gradients
    error: float  # of that decrease, because of rounding
    resolution: float  # changes of f below it do not matter
    objective: float = math.nan  # f after the step
    largest: float = math.nan  # entry of its gradient
    norm: float = math.nan  # of its gradient

    @property
    def rises(self) -> bool:
        """Whether f rises by more than rounding, or is not finite."""
        return not (math.isfinite(self.decrease) and self.decrease >= -self.resolution)

    @property
    def unreliable(self) -> bool:
        """Whether the error is large beside the decrease."""
        return not (abs(self.error) <= max(self.resolution, SHARE * abs(self.decrease)))


def check_step(system: System, before: Point, after: Point) -> StepCheck:
    """Check the step between two iterates with their updated gradients; a few dot products in float64.

    Parameters
    ----------
    system : System
        The linear system.
    before, after : Point
        Iterates with their gradients.

    Returns
    -------
    StepCheck
        Decrease of f, its error, and the size of changes that do not matter; all numbers are read at once.

    Notes
    -----
    From a_old = 0 the error is zero for any q. If columns are not float64, f is then computed from scratch on the
    rows that moved, |B|^2 kernel entries for a block B, unless most rows moved.
    """
    alphas = torch.stack([before.alpha, after.alpha]).double()  # [2, n]
    gradients = torch.stack([before.gradient, after.gradient, system.y]).double()  # [3, n], and y as the last row
    norms = [torch.linalg.vector_norm(gradients[1], order)[None] for order in (torch.inf, 2)]
    numbers = torch.cat([(alphas @ gradients.T).flatten(), *norms])
    ag, ag_new, ay, a_new_g, a_new_g_new, a_new_y, largest, norm = numbers.tolist()
    f_old, f_new = 0.5 * (ag - ay), 0.5 * (a_new_g_new - a_new_y)
    error = ag_new - a_new_g - (a_new_y - ay)  # a_old'q - s'(g_old + y), in which a_old'g_old cancels
    if system.columns is not system.exact and not bool(before.alpha.any()):
        rows = after.alpha.nonzero()[:, 0]
        error = f_new - system.exact_value(after.alpha, rows) if 2 * len(rows) <= system.n else error
    resolution = RESOLUTION * max(abs(f_old), abs(f_new))
    return StepCheck(f_old - f_new, error, resolution, objective=f_new, largest=largest, norm=norm)


BANDS = "Bands contain an estimate of the error of the mean."  # those of an `UnsolvedPosterior`


def used_up(check: StepCheck, number: int, system: System) -> Outcome:
    """The outcome of a run whose precision does not allow another step."""
    ratio = float(system.diag.max()) / system.s2
    cause = f"{name_of(system.y.dtype)} is not accurate enough where the signal variance is {ratio:.0e} times the noise"
    if check.rises:
        return Outcome(
            "diverged",
            f"The objective would rise by {-check.decrease:.2g} in iteration {number}, although its gradient was "
            f"computed from scratch: {cause}. {BANDS} {way_out(system.y.dtype)}",
        )
    return Outcome(
        "budget",
        f"Rounding changes the objective by {abs(check.error):.2g} in iteration {number}, which decreases it by "
        f"{check.decrease:.2g}: {cause}. {BANDS} {way_out(system.y.dtype)}",
    )


def name_of(dtype: torch.dtype) -> str:
    """Name of a precision, for messages."""
    return str(dtype).removeprefix("torch.")


def way_out(dtype: torch.dtype) -> str:
    """What a person can do when a precision is not accurate enough."""
    if dtype == torch.float64:
        return "Raise the noise, or drop duplicate rows."
    return "Use dtype float64 (mixed=True keeps most of the speed), or raise the noise."
