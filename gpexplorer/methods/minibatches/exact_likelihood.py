"""The exact marginal likelihood of a finite-dimensional kernel, its gradient and posterior, by passes over the rows.

    F = Phi'Phi + s2 I,   w = F^-1 Phi'y,   r = Phi w - y
    NLML = (r'r / s2 + w'w + (n - D) log s2 + log |F|) / 2 = l(theta) / 2        Shoham and Avron, section 2

The model and its gradient are those of `linalg.gaussian`, with A = F and beta = -r / s2. F and Phi'y are summed and
solved in float64 even if the features are float32: the largest eigenvalue of F is of order n and the smallest is s2,
which float32 cannot represent together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...features.learned import LearnedFeatures
from ...linalg.blocks import row_blocks
from ...linalg.gaussian import LinearGaussian, Sums
from ...posteriors import FeaturePosterior, PrecisionFactor
from .model import Model


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
    for block in row_blocks(model.n, 4 * yy.element_size() * D):
        X, y = model.rows(block)
        Phi, y = model.features(parts, X).Phi.double(), y.double()  # [b, D], [b]
        sums.add(Phi.T, y)
        yy += y @ y
    gram = sums.A.clone()
    gaussian = sums.model(model.n, yy, s2)
    return ExactLikelihood(gaussian, gaussian.weights.to(theta), gram)


def exact_gradient(model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood) -> Float[Tensor, " p"]:
    """Compute d NLML / d theta [p] by a second pass: 2 n D^2 flops and the backward pass of n rows."""
    parts, pullback = model.parts(theta), exact.model.pullback(theta)
    total, block_gradient = torch.zeros_like(theta), torch.zeros_like(theta)
    into, beta_beta = model.parts(block_gradient), theta.new_zeros((), dtype=torch.float64)
    for block in row_blocks(model.n, 6 * theta.element_size() * model.D):
        X, y = model.rows(block)
        tape = model.features(parts, X)
        beta = pullback.beta(tape.Phi.T, y)  # [b]
        model.pullback(parts, tape, pullback.rows(tape.Phi, beta), into)
        total += block_gradient
        beta_beta += (beta @ beta).double()
    total[-1] = 2.0 * exact.s2 * pullback.by_noise(beta_beta)
    return total


def exact_posterior(model: Model, theta: Float[Tensor, " p"]) -> FeaturePosterior:
    """Return the posterior of f: mean phi'w and variance s2 phi'F^-1 phi. One pass, then D^2 flops per test point."""
    exact = exact_likelihood(model, theta)
    features = LearnedFeatures(model.map, model.waves, theta)
    return FeaturePosterior(features, PrecisionFactor(exact.w, exact.L.to(theta), exact.s2), exact.s2)
