"""Bands after the last row, calibrated on forward-in-time errors by how far ahead these are.

A model of a series is fitted to the earlier rows of each fold and predicts the later ones. Its standardised residuals z
have mean square 1 if its variances are right; where a trend, a level or a season changes in a way that the model does
not know, they are larger, and the more so the further ahead. The held-out rows are therefore divided by their horizon,
the time since the last row of the fit, into four ranges of growing width, and the variance at each is multiplied by

    c2 = q^2 (nu0 + k m) / (nu0 + k),   m = mean z^2,   k = n (1 - rho) / (1 + rho),   q = t_{.975, nu0 + k} / 1.96

k is the number of independent residuals that n dependent ones are worth, rho their correlation from one row to the
next in time; at least a half per fold, because the errors of overlapping folds are alike too. nu0 is the weight of the
model's own variances: the scale of normal residuals with an inverse chi-squared prior has this mean, and q makes the
95 % interval that of the Student t distribution which follows, since a scale from few folds is uncertain. c2 is made
not to fall with the horizon and is never below 1. It grows linearly from 1 at the last row through the mean horizons of
the ranges, and on to the largest horizon H as from the first to the last. The scores of a fold use the factors of the
other folds, those of new rows the factors of all.

No fold says how variances go on beyond H. With v(h) the model's own variance of an observation at horizon h, the
variance there is

    v(h) + (c2 - 1) v(H) h / H,   c2 at H

What the model lacks at H, such as changes of a level, grows as the variance of a random walk, and is added. This is
exact for a model without a level that is a random walk, and for one that has it with a variance that is too small. A
factor that goes on growing multiplies what grows already: a stationary kernel with a large prior variance would predict
a multiple of its prior. At 3.25 to 5 times H, 95 % bands of random walks, trends and stationary series contain 93 % of
the rows by this rule, 90 % with a factor that grows on, and 70 % with a constant one (`docs/own-data.md`).

References
----------
Laves, M.-H., Ihler, S., Fast, J. F., Kahrs, L. A. and Ortmaier, T. (2020). Well-calibrated regression uncertainty in
medical imaging with deep learning. MIDL. (The scale from mean z^2.)
Gelman, A. et al. (2013). Bayesian data analysis, 3rd edition, section 2.6. (The scale of a normal distribution.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import ndtri
from scipy.stats import t as student_t
from sklearn.isotonic import isotonic_regression

from ..data import Split
from ..data.quoting import about, quote
from ..posteriors import Marginals, Widening
from ..problem import Dataset
from .held_out import Array, RowScores
from .row_order import times_of

PRIOR_WEIGHT = 4.0  # nu0
EDGES = (0.0, 1 / 8, 1 / 4, 1 / 2, 1.0)  # of the ranges, as shares of the largest horizon
FEWEST = 3  # rows in a range; one with fewer is joined with the next
LARGEST_Z = 1e3
LEAST_PER_FOLD = 0.5  # of k


class FoldErrors(NamedTuple):
    """The later rows of one fold, in the order of time.

    Attributes
    ----------
    horizon, z : array [t]
        Time since the last row of the fit, and standardised residual.
    """

    horizon: Array
    z: Array

    @property
    def independent_share(self) -> float:
        """The number of independent residuals that these are worth, over their number."""
        total = float(np.square(self.z).sum())
        rho = max(float(self.z[1:] @ self.z[:-1]) / total, 0.0) if total > 0.0 else 0.0  # at most 1
        return max((1.0 - rho) / (1.0 + rho), 1.0 / max(len(self.z), 1))


def after_rows(widening: Widening | None, rows: Dataset) -> Widening | None:
    """The widening of a model that was fitted to these rows."""
    return None if widening is None else replace(widening, last=float(times_of(rows, widening.column).max()))


def errors_after(part: Split, marginals: Marginals, column: str) -> FoldErrors:
    """The standardised residuals of the rows that this part holds out."""
    z = marginals.standardised(part.test.y.to(marginals.moments[0])).double().cpu().numpy()
    horizon = times_of(part.test, column) - times_of(part.train, column).max()
    order = np.argsort(horizon, kind="stable")
    return FoldErrors(horizon[order], np.nan_to_num(z[order], nan=LARGEST_Z).clip(-LARGEST_Z, LARGEST_Z))


def learned_widening(folds: Sequence[FoldErrors]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Horizons up to the largest one, and the factors of variances at them that these errors ask for."""
    largest = max(float(fold.horizon[-1]) for fold in folds)
    edges = [edge * largest for edge in EDGES[1:-1]]
    horizons, factors, weights = list[float](), list[float](), list[float]()
    sums = np.zeros(4)
    for first, last in zip([-np.inf, *edges], [*edges, np.inf], strict=True):
        for fold in folds:
            inside = (fold.horizon > first) & (fold.horizon <= last)
            if number := int(inside.sum()):
                independent = max(number * fold.independent_share, LEAST_PER_FOLD)
                sums += (number, independent, np.square(fold.z[inside]).sum(), fold.horizon[inside].sum())
        count, independent, squares, times = sums.tolist()
        if count < FEWEST or times <= 0.0:
            continue
        freedom = PRIOR_WEIGHT + independent
        scale = (PRIOR_WEIGHT + independent * squares / count) / freedom
        horizons.append(times / count)
        factors.append(scale * float(student_t.ppf(0.975, freedom) / ndtri(0.975)) ** 2)
        weights.append(independent)
        sums[:] = 0.0
    if not horizons:
        return (), ()
    grown = np.maximum(isotonic_regression(np.array(factors), sample_weight=np.array(weights)), 1.0).tolist()
    if largest > horizons[-1]:
        per_time = (grown[-1] - grown[0]) / (horizons[-1] - horizons[0]) if len(horizons) > 1 else 0.0
        grown.append(grown[-1] + per_time * (largest - horizons[-1]))
        horizons.append(largest)
    return tuple(horizons), tuple(grown)


def scores_of_parts(
    parts: Sequence[Split], marginals: Sequence[Marginals], column: str
) -> tuple[RowScores, Widening | None]:
    """The scores of all held-out rows, and by how much variances after the last row are to be widened.

    Parameters
    ----------
    parts : sequence of Split
        The latest first, if their held-out rows are later than those that are fitted.
    marginals : sequence of Marginals
        The distributions of the held-out targets of each part.
    column : str
        The input that is the time; "" if rows are in no order of time, and nothing is widened.

    Notes
    -----
    Each part is scored with the factors that the others ask for; a single one with its own.
    """
    widening, widened = None, list(marginals)
    if column:
        folds = [errors_after(part, own, column) for part, own in zip(parts, marginals, strict=True)]
        whole = Widening(column, 0.0, *learned_widening(folds))
        for k, part in enumerate(parts):
            horizons, factors = learned_widening([*folds[:k], *folds[k + 1 :]] or folds)
            of_part = after_rows(replace(whole, horizons=horizons, factors=factors), part.train)
            assert of_part is not None
            widened[k] = marginals[k].widened(of_part.at(torch.from_numpy(times_of(part.test, column))))
        widening = after_rows(whole, parts[0].train)
    scores = [
        RowScores.of_marginals(part.test.y.numpy(), own, part.test.groups)
        for part, own in zip(parts, widened, strict=True)
    ]
    return reduce(RowScores.joined, scores), widening


def widening_in_words(widenings: Sequence[Widening | None]) -> tuple[str, ...]:
    """What was widened, and from which errors; nothing if variances were large enough."""
    used = [widening for widening in widenings if widening is not None and widening.widens]
    if not used:
        return ()
    most = max(used, key=lambda widening: widening.factors[-1])
    first, last = (f"{most.factors[k] ** 0.5:.3g} at {about(most.horizons[k])}" for k in (0, -1))
    largest = max(widening.horizons[-1] for widening in used)
    return (
        f"After the last row, standard deviations are multiplied by {'up to ' if len(used) > 1 else ''}{first} and "
        f"{last} units of {quote(most.column)} ahead, because errors on the later rows that were held out were larger "
        f"than the model says. No held-out row is further ahead than {about(largest)}: bands beyond are extrapolated.",
    )
