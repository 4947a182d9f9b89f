"""The exact marginal likelihood of a finite-dimensional kernel, its gradient and posterior, by passes over the rows.

    F = Phi'Phi + s2 I,   w = F^-1 Phi'y,   r = Phi w - y
    NLML = (r'r / s2 + w'w + (n - D) log s2 + log |F|) / 2 = l(theta) / 2        Shoham and Avron, section 2
    dNLML / dPhi = r w' / s2 + Phi F^-1
    dNLML / dlog sd = -r'r / s2 + (n - D) + s2 tr F^-1

The constant n/2 log 2 pi is omitted, as everywhere in this package. F and Phi'y are summed and solved in float64 even
if the features are float32: the largest eigenvalue of F is of order n and the smallest is s2, which float32 cannot
represent together.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...features.learned import LearnedFeatures
from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky
from ...posteriors import FeaturePosterior, PrecisionFactor
from .model import Model


class ExactLikelihood(NamedTuple):
    """The result of one pass over the rows."""

    value: float  # NLML in nat
    w: Tensor  # [D] posterior mean of the weights, in the precision of theta
    gram: Tensor  # [D, D] Phi'Phi in float64
    L: Tensor  # [D, D] Cholesky factor of F in float64
    s2: float  # noise variance
    jitter: float


def exact_likelihood(model: Model, theta: Float[Tensor, " p"]) -> ExactLikelihood:
    """Compute the NLML of all training rows, with its factors.

    Cost: n D^2 flops and the features of n rows; O(D^2 + block) memory.
    """
    parts, s2, D = model.parts(theta), math.exp(2.0 * float(theta[-1])), model.D
    gram, c, yy = (theta.new_zeros(shape, dtype=torch.float64) for shape in ((D, D), (D,), ()))
    for block in row_blocks(model.n, 4 * gram.element_size() * D):
        X, y = model.rows(block)
        Phi, y = model.features(parts, X).Phi.double(), y.double()  # [b, D], [b]
        gram.addmm_(Phi.T, Phi)
        c.addmv_(Phi.T, y)
        yy += y @ y
    F = gram.clone()
    F.diagonal().add_(s2)
    L, jitter = cholesky(F, "Phi'Phi + s2 I")
    w = torch.cholesky_solve(c[:, None], L)[:, 0]  # [D]
    fit, half_logdet = torch.stack([yy - c @ w, L.diagonal().log().sum()]).tolist()
    value = 0.5 * (fit / s2 + (model.n - D) * math.log(s2) + 2.0 * half_logdet)
    return ExactLikelihood(value, w.to(theta), gram, L, s2, jitter)


def exact_gradient(model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood) -> Float[Tensor, " p"]:
    """Compute d NLML / d theta [p] by a second pass: 2 n D^2 flops and the backward pass of n rows."""
    parts, inverse = model.parts(theta), torch.cholesky_inverse(exact.L).to(theta)  # F^-1 [D, D]
    total, block_gradient = torch.zeros_like(theta), torch.zeros_like(theta)
    into, squares = model.parts(block_gradient), theta.new_zeros((), dtype=torch.float64)
    for block in row_blocks(model.n, 6 * theta.element_size() * model.D):
        X, y = model.rows(block)
        tape = model.features(parts, X)
        r = tape.Phi @ exact.w - y  # [b]
        model.pullback(parts, tape, (tape.Phi @ inverse).addr_(r, exact.w, alpha=1.0 / exact.s2), into)
        total += block_gradient
        squares += (r @ r).double()
    total[-1] = exact.s2 * inverse.diagonal().sum().double() - squares / exact.s2 + (model.n - model.D)
    return total


def exact_posterior(model: Model, theta: Float[Tensor, " p"]) -> FeaturePosterior:
    """Return the posterior of f: mean phi'w and variance s2 phi'F^-1 phi. One pass, then D^2 flops per test point."""
    exact = exact_likelihood(model, theta)
    features = LearnedFeatures(model.map, model.waves, theta)
    return FeaturePosterior(features, PrecisionFactor(exact.w, exact.L.to(theta), exact.s2), exact.s2)
