"""The exact marginal likelihood of a finite-dimensional kernel, its gradient and posterior, by passes over the rows.

    F = Phi'Phi + s2 I,   w = F^-1 Phi'y,   r = Phi w - y
    NLML = (r'r / s2 + w'w + (n - D) log s2 + log |F|) / 2 = l(theta) / 2        Shoham and Avron, section 2

The gradient is a sum over the rows, whose parts tell its standard error: a theta at which it is no larger is as good as
a stationary one.

The model and its gradient are those of `linalg.gaussian`, with A = F and beta = -r / s2. F and Phi'y are summed and
solved in float64 even if the features are float32: the largest eigenvalue of F is of order n and the smallest is s2,
which float32 cannot represent together.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...features.learned import LearnedFeatures
from ...kernels.theta.restrictions import noise_limits
from ...linalg.blocks import row_blocks
from ...linalg.gaussian import LinearGaussian, Sums
from ...posteriors import FeaturePosterior, PrecisionFactor
from .model import Model

PARTS = 50  # of the rows, from which the standard error of the gradient is estimated
WITHIN_SAMPLING = 1.0  # standard errors up to which a gradient counts as zero


class ExactLikelihood(NamedTuple):
    """The result of one pass over the rows."""

    model: LinearGaussian  # in float64
    w: Tensor  # [D] posterior mean of the weights, in the precision of theta
    gram: Tensor  # [D, D] Phi'Phi in float64

    @property
    def value(self) -> float:
        """NLML in nat."""
        return self.model.value

    @property
    def L(self) -> Tensor:
        """Cholesky factor [D, D] of F in float64."""
        return self.model.L

    @property
    def s2(self) -> float:
        """The noise variance s2."""
        return self.model.s2


def exact_likelihood(model: Model, theta: Float[Tensor, " p"]) -> ExactLikelihood:
    """Compute the NLML of all training rows, with its factors.

    Cost: n D^2 flops and the features of n rows; O(D^2 + block) memory.
    """
    parts, s2, D = model.parts(theta), math.exp(2.0 * float(theta[-1])), model.D
    yy = theta.new_zeros((), dtype=torch.float64)
    sums = Sums(D, yy)
    for block in row_blocks(model.n, 4 * yy.element_size() * D, yy):
        X, y = model.rows(block)
        Phi, y = model.features(parts, X).Phi.double(), y.double()  # [b, D], [b]
        sums.add(Phi.T, y)
        yy += y @ y
    gram = sums.A.clone()
    gaussian = sums.model(model.n, yy, s2)
    return ExactLikelihood(gaussian, gaussian.weights.to(theta), gram)


def exact_gradient(model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood) -> Float[Tensor, " p"]:
    """Compute d NLML / d theta [p] by a second pass: 2 n D^2 flops and the backward pass of n rows."""
    total = torch.zeros_like(theta)
    for part in _gradient_by_rows(model, theta, exact, row_blocks(model.n, 6 * theta.element_size() * model.D, theta)):
        total += part
    return total


def gradient_in_standard_errors(model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood) -> float:
    """Return |g| / |e|, with g = d NLML / d theta and e the standard errors of its entries as sums over sampled rows.

    With g = sum_k g_k over K parts of the rows, e_j^2 = K / (K - 1) sum_k (g_kj - g_j / K)^2.

    Notes
    -----
    At the theta that is best for many other rows of the same kind it would be about 1, and at the one that is best
    for these rows it is 0. It costs as much as `exact_gradient`. A noise that is not free does not count. The result is
    nan with fewer than two rows per part.
    """
    if model.n < 2 * PARTS:
        return math.nan
    rows = (torch.arange(k, model.n, PARTS, device=model.rows_device) for k in range(PARTS))
    total, squares = torch.zeros_like(theta, dtype=torch.float64), 0.0
    is_free = noise_limits(model.problem.kernel, model.problem.theta) is None
    for part in _gradient_by_rows(model, theta, exact, rows):
        part[-1] *= is_free
        total += part
        squares += float(part.double().square().sum())
    size = float(total.square().sum())
    variance = PARTS / (PARTS - 1) * (squares - size / PARTS)
    return math.sqrt(size / variance) if variance > 0.0 else math.nan


def _gradient_by_rows(
    model: Model, theta: Tensor, exact: ExactLikelihood, parts: Iterable[slice | Tensor]
) -> Iterator[Tensor]:
    """Yield what each part of the rows adds to the gradient [p]; the tensor is used again."""
    views, pullback, gradient = model.parts(theta), exact.model.pullback(theta), torch.zeros_like(theta)
    into, by_model = model.parts(gradient), pullback.by_noise(theta.new_zeros((), dtype=torch.float64))
    for rows in parts:
        X, y = model.rows(rows)
        tape = model.features(views, X)
        beta = pullback.beta(tape.Phi.T, y)  # [b]
        model.pullback(views, tape, pullback.rows(tape.Phi, beta), into)
        share = len(y) / model.n
        gradient[-1] = 2.0 * exact.s2 * (share * by_model - 0.5 * (beta @ beta).double())
        yield gradient


def exact_posterior(model: Model, theta: Float[Tensor, " p"]) -> FeaturePosterior:
    """Return the posterior of f: mean phi'w and variance s2 phi'F^-1 phi. One pass, then D^2 flops per test point."""
    exact = exact_likelihood(model, theta)
    features = LearnedFeatures(model.map, model.waves, theta)
    return FeaturePosterior(features, PrecisionFactor(exact.w, exact.L.to(theta), exact.s2), exact.s2)
