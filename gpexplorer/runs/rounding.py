"""Rounding that a run reports: channels that rise though they never should, and problems that float32 cannot hold.

A channel that its method declares monotone never rises, apart from rounding. A rise shows that the computation went
wrong, for example that a number which is updated step by step has lost its digits. The run reports it (`Run.rises`, the
outcome's message, the status line of the page), and pictures do not draw the values from there on as if they were
right.

A value v after a value u counts as a rise if

    v - u > sqrt(eps) max(1, |u|, |v|),     eps = 2.2e-16 in float64 and 1.2e-7 in float32

The objectives of every method contain K + s2 I or K_hat + s2 I. If rounding changes an entry of K by delta, objectives
and bands change as if the noise variance had changed by a multiple of delta. So a method can be trusted in float32
only where delta is small beside s2. Two things cause delta, and both are measured on a few hundred rows:

    inputs        X is stored in float32; a lengthscale that is far below the range magnifies the last digit of X
    covariances   k(x, z) is computed in float32, with a relative error of 1e-7 and more

float64 holds many more problems, and how many digits are left depends on the method and on the targets as well. Where
the noise is very small, the answer itself is tried, on a few hundred training rows:

    response      how far means move if the sd of the kernel is changed by its last digits, which changes the rounding
                  of every covariance. Exactly computed means would not move; they err by about as much as they move
    projection    D_i = k_ii - k_i'K_mm^-1 k_i at the level of rounding is all that float64 can tell of row i beside
                  inducing points. It moves means by about D_i / s2 times the residual y_i - mean_i
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..errors import GPExplorerError
from ..linalg.randomness import generator, random_rows
from ..methods.base import Method
from ..noise_floor import noise_floor
from ..objectives import least_noise, noise_variance
from ..posteriors import InducingPosterior
from ..problem import Channel, Dataset, MixedRows, Problem
from .trace import Record

ROWS = 256  # above this many rows, draw a random sample of this size
NOISE_FREE = 1e-2  # of the standard deviation of the targets: rows with less noise look free of it
SHARE = 1e-2  # of the noise variance: a larger error of covariances is reported
LEAST_TRIED = 1e-7  # of the prior variance: an answer with less noise is tried in float64
LAST_DIGITS = 4.0  # times eps: the relative change of a standard deviation for which an answer is tried
LOST_DIGITS = 0.5  # noise standard deviations by which means may move
FAST_IN_FLOAT64 = {(3, 7), (6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}  # compute capabilities with a rate of 1/2 or 1/3

# Phases that may raise any channel: a person's change, another size of model, and more rows.
NEW_STARTS = ("forced", "resize", "all rows")


class Rise(NamedTuple):
    """A channel that rose although its method declares that it never does.

    Attributes
    ----------
    channel : Channel
        The channel.
    index : int
        The index of the record with the higher value.
    before, after : float
        The last finite value before this record, and the value of this record.
    """

    channel: Channel
    index: int  # type: ignore[assignment]  # in place of tuple.index, which a rise does not need
    before: float
    after: float


class MonotoneWatch:
    """Compares every new record with the last finite value of each monotone channel.

    Parameters
    ----------
    channels : sequence of Channel
        The channels of the method. Those that are not monotone are ignored.
    dtype : torch.dtype
        The precision of the run, which decides what counts as rounding.
    learned : str
        The channel that hyperparameters minimise, minus a log prior density.
    log_prior : callable
        That density at a record.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        dtype: torch.dtype,
        learned: str = "",
        log_prior: Callable[[Record], float] = lambda _: 0.0,
    ) -> None:
        self._learned, self._log_prior = learned, log_prior
        self._channels = [channel for channel in channels if channel.monotone]
        self._dtype = dtype
        self._last: dict[str, float] = {}

    def check(self, record: Record) -> list[Rise]:
        """The rises of this record. A step of the phases in NEW_STARTS is never a rise."""
        rises = []
        is_new_start = getattr(record.step.info, "phase", "") in NEW_STARTS
        for channel in self._channels:
            value = float(getattr(record.step.info, channel.name, math.nan))
            value -= self._log_prior(record) if channel.name == self._learned else 0.0
            before = self._last.get(channel.name, math.inf)
            if not is_new_start and _rose(before, value, self._dtype):
                rises.append(Rise(channel, record.index, before, value))
            if not math.isnan(value):
                self._last[channel.name] = value
        return rises


def first_rise(values: Iterable[float], dtype: torch.dtype = torch.float64) -> int | None:
    """The position of the first rise in a series, which may contain nan; None if there is none."""
    before = math.inf
    for position, value in enumerate(values):
        if _rose(before, value, dtype):
            return position
        before = before if math.isnan(value) else value
    return None


def rise_sentence(rises: Sequence[Rise]) -> str:
    """The first rise of each channel as a sentence with a way out, or an empty text if there is none."""
    first: dict[str, Rise] = {}
    for rise in rises:
        first.setdefault(rise.channel.name, rise)
    return " ".join(
        f"Do not trust the {rise.channel.label} from step {rise.index} on: it rose there from {rise.before:.6g} to "
        f"{rise.after:.6g}, which it never does in exact arithmetic ({_count(rises, rise)}). Raise the noise, drop "
        "duplicate rows, or use float64."
        for rise in first.values()
    )


def _count(rises: Sequence[Rise], rise: Rise) -> str:
    count = sum(other.channel.name == rise.channel.name for other in rises)
    return "the only rise" if count == 1 else f"one of {count} rises"


def _rose(before: float, value: float, dtype: torch.dtype) -> bool:
    """Whether the step from `before` (inf if there is no value yet) to `value` is a rise beyond rounding."""
    if math.isnan(value) or value <= before:
        return False
    if math.isinf(before) or math.isinf(value):
        return True
    return value - before > math.sqrt(torch.finfo(dtype).eps) * max(1.0, abs(before), abs(value))


def precision_sentence(problem: Problem, last: Sequence[Record]) -> str:
    """Return a sentence with a way out if float32 cannot hold the problem, or if it can and float64 is slow.

    Parameters
    ----------
    problem : Problem
        The scaled training rows, whose precision is that of the run.
    last : sequence of Record
        The last record, or none. A state without hyperparameters of the kernel gives an empty text.

    Notes
    -----
    At most three times 256^2 kernel entries, two of them computed in float64. A run in float64 costs nothing, but on a
    GPU whose float64 is slow, where float32 is offered if it holds the problem.
    """
    train, theta = problem.train, getattr(last[-1].step.state, "theta", None) if last else None
    if not isinstance(theta, Tensor) or theta.shape != problem.theta.shape:
        return ""
    is_single = train.y.dtype == torch.float32
    device = train.y.device  # some GPUs are slow in float64
    is_slow = device.type == "cuda" and torch.cuda.get_device_capability(device) not in FAST_IN_FLOAT64
    if not is_single and not (is_slow and isinstance(train.X, Tensor)):
        return ""
    X = train.rows(random_rows(len(train), ROWS, generator(0, "precision")).to(device)).X
    error = covariance_rounding(problem.kernel, theta.float(), X if is_single else X.float())
    s2 = noise_variance(theta)
    fits = error <= SHARE * s2
    if not is_single and fits:
        return (
            "This GPU is 32 to 64 times slower in float64 than in float32, and float32 can hold this problem: rounding "
            f"would change covariances by up to {error:.1e}, beside a noise variance of {s2:.1e}. Use dtype float32."
        )
    if not is_single or fits:
        return ""
    return (
        f"float32 cannot hold this problem: rounding changes covariances by up to {error:.1e}, beside a noise variance "
        f"of {s2:.1e}, so that objectives and bands are inaccurate. Use dtype float64."
    )


def digits_sentence(method: Method, problem: Problem, last: Sequence[Record]) -> str:
    """Return a sentence if float64 leaves too few digits to the means of a method with very little noise.

    Parameters
    ----------
    method : Method
    problem, last : Problem, sequence of Record
        As for `precision_sentence`. The state of a solver of the exact GP has coefficients whose error the solver knows
        and reports: no answer is tried.

    Notes
    -----
    Two posteriors of the last state, only where the noise variance is below LEAST_TRIED of the prior variance.
    """
    state = last[-1].step.state if last else None
    theta = getattr(state, "theta", None)
    if not isinstance(theta, Tensor) or theta.shape != problem.theta.shape or theta.dtype != torch.float64:
        return ""
    train, s2 = problem.train, noise_variance(theta)
    rows = train.rows(random_rows(len(train), ROWS, generator(0, "precision")).to(train.y.device))
    prior = problem.kernel.diag(theta.to(train.y.device), rows.X)
    if hasattr(state, "alpha") or s2 > LEAST_TRIED * float(prior.mean()):
        return ""
    try:
        error = mean_rounding(method, problem, state, rows) / math.sqrt(s2)
    except GPExplorerError:
        return ""
    if not error > LOST_DIGITS:  # also where there is no answer
        return ""
    share = math.sqrt(s2 / float(prior.mean()))
    return (
        f"float64 cannot hold this problem: the noise standard deviation is {share:.1e} of that of the function, and "
        f"rounding changes means by about {error:.2g} noise standard deviations, which the bands do not contain. Raise "
        "the noise, or choose the method states if there is one input and its kernel fits."
    )


def mean_rounding(method: Method, problem: Problem, state: Any, rows: Dataset) -> float:
    """Return about how far the means of a state err by rounding at some training rows; see the module docstring."""
    theta, posterior = state.theta.clone(), method.posterior(problem, state)
    is_sd = torch.tensor(["sd" in name.split() for name in problem.kernel.names], device=theta.device)
    theta += is_sd * theta.abs().clamp_min(1.0) * LAST_DIGITS * torch.finfo(theta.dtype).eps
    mean = posterior.mean(rows.X)
    error = float((method.posterior(problem, state._replace(theta=theta)).mean(rows.X) - mean).abs().max())
    if isinstance(posterior, InducingPosterior):
        D = posterior.unexplained(rows.X)
        is_rounding = D <= least_noise(problem.kernel, state.theta, problem.train)
        error = max(error, float((D * is_rounding * (rows.y - mean)).abs().max()) / noise_variance(state.theta))
    return error


def least_noise_sentence(problem: Problem, last: Sequence[Record]) -> str:
    """Return a sentence if learning has lowered the noise to its least value; the parameters are as above."""
    theta = getattr(last[-1].step.state, "theta", None) if last else None
    if not isinstance(theta, Tensor) or theta.shape != problem.theta.shape or torch.equal(theta, problem.theta):
        return ""
    floor = noise_floor(problem)
    spread = float(problem.train.y.std(correction=0))
    if not spread or not floor.is_touched(theta):  # of equal targets there is no share
        return ""
    share = math.sqrt(noise_variance(theta)) / spread
    free = " These rows look free of noise." if share <= NOISE_FREE else ""
    return (
        f"The noise, {share:.1g} of the standard deviation of the targets, is at its least value beside the function, "
        f"{math.exp(floor.log_share):.2g} of its standard deviation: with less, rounding decides.{free}"
    )


def covariance_rounding(kernel: Any, theta: Tensor, X: Any) -> float:
    """Return the largest error of the covariances [n, n] of float32 rows X, for the computation and for the inputs."""
    computed = kernel(theta, X, X).double()
    if not isinstance(X, Tensor):
        X = X.to(theta.device, torch.float64) if isinstance(X, MixedRows) else X
        return float((computed - kernel(theta.double(), X, X)).abs().max())
    exact = kernel(theta.double(), X.double(), X.double())
    error = (computed - exact).abs().max()
    if X.is_floating_point():
        signs = torch.randint(2, X.shape, generator=generator(0, "last digits")).to(X.device).double() * 2.0 - 1.0
        moved = X.double() * (1.0 + 0.5 * torch.finfo(torch.float32).eps * signs)
        error = torch.maximum(error, (kernel(theta.double(), moved, moved) - exact).abs().max())
    return float(error)
