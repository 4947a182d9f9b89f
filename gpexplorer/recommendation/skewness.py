"""Which transforms of inputs and target suit their skewness, by the likelihood of a GP on some training rows.

Inputs with a long tail, such as incomes, are taken as logarithms if the likelihood of the same targets is then larger,
each with the transform of the target that suits it: a price that grows with a power of an area needs both.

With theta learned for the untransformed target, K = k(X, X) + noise is fixed up to its scale, which has a maximum in
closed form for every transform T. For z = T(y) minus its mean, on n rows:

    log L(T) = -n/2 log(z' K^-1 z / n) + sum_i log T'(y_i) + constant

All powers of a grid share one Cholesky factor: n^3 / 3 + 2 n^2 per power flops. The gain per row over the untransformed
target is about what a transform lowers the NLPD by. Where the GP has a small part of the rows, much of what it leaves
unexplained is not noise, and a transform has to gain more.

References
----------
Box, G. and Cox, D. (1964). An analysis of transformations. Journal of the Royal Statistical Society B 26.
De Oliveira, V., Kedem, B. and Short, D. (1997). Bayesian prediction of transformed Gaussian random fields. JASA 92.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..data import Split
from ..data.standardising import LOG_INPUTS, long_tailed
from ..errors import GPExplorerError
from ..linalg.cholesky import cholesky
from ..objectives import evidence
from ..problem import Dataset, Kernel, Problem
from ..runs.spec import Spec
from ..runs.studies.machine_speed import rows_for
from ..target_transforms import LOG, YEO_JOHNSON, fitted_transform
from .arguments import NO_ROWS
from .candidates import Candidate
from .lanes import step_until
from .row_questions import outliers
from .stages import TimedSearch

FEWEST_ROWS, MOST_ROWS = 200, 1000  # of the GP
SECONDS_SHARE = 0.04  # of the time of a recommendation, for learning theta, with plain inputs and with logarithms
POWERS = tuple(k / 10 for k in range(21))
LEAST_GAIN = 4.0  # nats, from which a transform is tried
LEAST_PER_ROW, LEAST_PER_ROW_OF_PART = 0.015, 0.08  # nats per row, if the GP has at least half of the rows, or fewer
LOG_PREFERRED = 2.0  # nats by which the logarithm, which is simpler, may be less likely than the best power
KERNEL = "matern32-ard"


class Transforms(NamedTuple):
    """The transforms of target and inputs, as `Spec` takes them."""

    target: str = ""
    inputs: str = ""


def suitable_transforms(search: TimedSearch, seed: int) -> Transforms:
    """The transforms with the largest likelihood, or "" where it is hardly larger than without one.

    Parameters
    ----------
    search : TimedSearch
        The training rows of its split are used, in the units of the file.
    seed : int
        Of the rows, if there are more than the time suffices for.
    """
    train, seconds = search.split.train, SECONDS_SHARE * search.seconds
    if not isinstance(train.X, Tensor) or train.noise is not None or search.should_stop():
        return Transforms()
    search.report("Looking at the skewness of the columns.")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    most = min(rows_for(len(train), seconds), MOST_ROWS)
    order = order[: max(most, FEWEST_ROWS)]
    found = outliers(train.X[order].double().cpu().numpy(), train.y[order].double().cpu().numpy())
    rows = train.rows(torch.from_numpy(np.delete(order.numpy(), found)))  # a few mistakes do not make a target skewed
    choices = ["", LOG_INPUTS] if bool((long_tailed(train.X) > 0.0).any()) else [""]
    per_row = LEAST_PER_ROW if len(rows) >= len(train) / 2 else LEAST_PER_ROW_OF_PART
    best, least = Transforms(), np.inf
    try:
        for inputs in choices:
            problem = _learned(search, rows, inputs, seconds, seed)
            if problem is None:
                break  # it was stopped, or its candidates will say what is wrong
            gains = likelihood_gains(problem.train.X, rows.y.double(), problem.kernel, problem.theta)
            target = best_of(gains, max(LEAST_GAIN, per_row * len(rows)))
            nlml = evidence(problem.kernel, problem.theta, problem.train)[0]
            nlml -= gains.get(target, 0.0)  # of the targets in the units of the file
            if nlml < least - max(LEAST_GAIN, LEAST_PER_ROW * len(rows)):  # the plain inputs come first
                best, least = Transforms(target, inputs), nlml
    except GPExplorerError:
        return Transforms()  # its candidates then say what is wrong
    return best


def _learned(search: TimedSearch, rows: Dataset, inputs: str, seconds: float, seed: int) -> Problem | None:
    """The problem with the theta that an exact GP has learned on these rows; None if it was stopped."""
    spec = Spec("ml", kernel=KERNEL, seed=seed, input_transform=inputs)
    run = spec.open(data=Split(rows, rows.rows(NO_ROWS), search.split.name))
    step_until(run, search.clock() + seconds, search.should_stop, search.clock)
    run.close()
    return replace(run.problem, theta=run.trace[-1].step.state.theta) if len(run.trace) else None


def likelihood_gains(X: Tensor, y: Tensor, kernel: Kernel, theta: Tensor) -> dict[str, float]:
    """How many nats more likely the targets are with each transform than without one.

    Parameters
    ----------
    X : Tensor [n, d]
        Scaled inputs.
    y : Tensor [n]
        Targets in the units of the file.
    kernel, theta : Kernel, Tensor
        The covariance function, with log-hyperparameters learned for the untransformed target.
    """
    names = [f"{YEO_JOHNSON} {power:g}" for power in POWERS] + [LOG] * bool((y > 0.0).all())
    transforms = [transform for name in names if (transform := fitted_transform(name, y)) is not None]
    Z = torch.stack([y, *(transform.forward(y) for transform in transforms)], 1)  # [n, 1 + transforms]
    logs = [0.0, *(float(transform.log_derivative(y).sum()) for transform in transforms)]
    K = kernel(theta, X, X)
    K.diagonal().add_((2.0 * theta[-1]).exp())
    half = torch.linalg.solve_triangular(cholesky(K, "K").L, Z - Z.mean(0), upper=False)
    n = len(y)
    fits = [-0.5 * n * float((column.square().sum() / n).log()) for column in half.T]
    values = [fit + own for fit, own in zip(fits, logs, strict=True)]
    return {name: value - values[0] for name, value in zip(names, values[1:], strict=True)}


def best_of(gains: dict[str, float], least: float) -> str:
    """The transform to try, given how many nats each of them gains; empty if none gains enough."""
    name = max(gains, key=lambda key: gains[key])
    if gains.get(LOG, -torch.inf) >= gains[name] - LOG_PREFERRED:
        name = LOG
    return name if gains[name] >= least else ""


def with_transforms(candidates: Sequence[Candidate], transforms: Transforms) -> list[Candidate]:
    """The candidates for a transformed target among the others: two of them before each of the others."""
    target_transform = transforms.target
    candidates = [replace(candidate, input_transform=transforms.inputs) for candidate in candidates]
    if not target_transform:
        return list(candidates)
    others = iter(candidates)
    mixed = list[Candidate]()
    for position, candidate in enumerate(candidates):
        transformed = candidate.transformed(target_transform)
        mixed += [transformed] if transformed not in mixed else []
        if position % 2 == 1:
            mixed.append(next(others))
    return [*mixed, *others]
