"""Which transform of the target suits its skewness, by the likelihood of a GP on some training rows.

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

import numpy as np
import torch
from torch import Tensor

from ..data import Split
from ..errors import GPExplorerError
from ..linalg.cholesky import cholesky
from ..problem import Kernel
from ..runs.spec import Spec
from ..runs.studies.model_sizes import rows_for
from ..target_transforms import LOG, YEO_JOHNSON, fitted_transform
from .arguments import NO_ROWS
from .candidates import Candidate
from .lanes import step_until
from .questions.row_questions import outliers
from .stages import TimedSearch

FEWEST_ROWS, MOST_ROWS = 200, 1000  # of the GP
SECONDS_SHARE = 0.05  # of the time of a recommendation, for learning theta
POWERS = tuple(k / 10 for k in range(21))
LEAST_GAIN = 4.0  # nats, from which a transform is tried
LEAST_PER_ROW, LEAST_PER_ROW_OF_PART = 0.015, 0.08  # nats per row, if the GP has at least half of the rows, or fewer
LOG_PREFERRED = 2.0  # nats by which the logarithm, which is simpler, may be less likely than the best power
KERNEL = "matern32-ard"


def suitable_transform(search: TimedSearch, seed: int) -> str:
    """The transform with the largest likelihood, or "" if it is hardly larger than without one.

    Parameters
    ----------
    search : TimedSearch
        The training rows of its split are used, in the units of the file.
    seed : int
        Of the rows, if there are more than the time suffices for.
    """
    train, seconds = search.split.train, SECONDS_SHARE * search.seconds
    if not isinstance(train.X, Tensor) or train.noise is not None or search.should_stop():
        return ""
    search.report("Looking at the skewness of the target.")
    order = torch.randperm(len(train), generator=torch.Generator().manual_seed(seed))
    most = min(rows_for(len(train), seconds), MOST_ROWS)
    order = order[: max(most, FEWEST_ROWS)]
    found = outliers(train.X[order].double().cpu().numpy(), train.y[order].double().cpu().numpy())
    rows = train.rows(torch.from_numpy(np.delete(order.numpy(), found)))  # a few mistakes do not make a target skewed
    try:
        run = Spec("ml", kernel=KERNEL, seed=seed).open(data=Split(rows, rows.rows(NO_ROWS), search.split.name))
        step_until(run, search.clock() + seconds, search.should_stop, search.clock)
        run.close()
        if not len(run.trace):
            return ""  # it was stopped, or its candidates will say what is wrong
        theta = run.trace[-1].step.state.theta
        gains = likelihood_gains(run.problem.train.X, rows.y.double(), run.problem.kernel, theta)
    except GPExplorerError:
        return ""  # its candidates then say what is wrong
    per_row = LEAST_PER_ROW if len(rows) >= len(train) / 2 else LEAST_PER_ROW_OF_PART
    return best_of(gains, max(LEAST_GAIN, per_row * len(rows)))


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
    values = [
        -0.5 * n * float((column.square().sum() / n).log()) + own for column, own in zip(half.T, logs, strict=True)
    ]
    return {name: value - values[0] for name, value in zip(names, values[1:], strict=True)}


def best_of(gains: dict[str, float], least: float) -> str:
    """The transform to try, given how many nats each of them gains; empty if none gains enough."""
    name = max(gains, key=lambda key: gains[key])
    if gains.get(LOG, -torch.inf) >= gains[name] - LOG_PREFERRED:
        name = LOG
    return name if gains[name] >= least else ""


def with_transform(candidates: Sequence[Candidate], target_transform: str) -> list[Candidate]:
    """The candidates for a transformed target among the others: two of them before each of the others."""
    if not target_transform:
        return list(candidates)
    others = iter(candidates)
    mixed = list[Candidate]()
    for position, candidate in enumerate(candidates):
        mixed.append(candidate.transformed(target_transform))
        if position % 2 == 1:
            mixed.append(next(others))
    return [*mixed, *others]
