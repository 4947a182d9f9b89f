"""The exact objective of a finite kernel, its gradient, and its posterior, by passes over blocks of rows.

    F = Phi'Phi + s2 I,   w = F^-1 Phi'y,   r = Phi w - y
    NLML = (r'r / s2 + w'w + (n - D) log s2 + log |F|) / 2 = l(theta) / 2        Shoham and Avron, section 2
    dNLML / dPhi = r w' / s2 + Phi F^-1
    dNLML / dlog sd = -r'r / s2 + (n - D) + s2 tr F^-1

The constant n/2 log 2 pi is left out, as everywhere here. F and Phi'y are summed and solved in float64 whatever the
features are: F's largest eigenvalue is of the order of n and its smallest is s2, which float32 cannot hold together.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.blocks import row_blocks
from ...linalg.cholesky import cholesky, logdet
from ...problem import Posterior, Prediction
from .model import Model


class Exact(NamedTuple):
    """What one pass over the rows leaves behind."""

    value: float  # NLML, nat
    w: Tensor  # [D], in the precision of theta
    gram: Tensor  # [D, D] Phi'Phi, in float64
    L: Tensor  # [D, D] Cholesky factor of F, in float64
    s2: float
    jitter: float


def exact(model: Model, theta: Float[Tensor, " p"]) -> Exact:
    """NLML of all rows to learn from, with its factors. n D^2 flops and n feature rows; O(D^2 + block) memory."""
    parts, s2, D = model.parts(theta), math.exp(2.0 * float(theta[-1])), model.D
    gram, c, yy = theta.new_zeros(D, D, dtype=torch.float64), theta.new_zeros(D, dtype=torch.float64), 0.0
    for block in row_blocks(model.n, 4 * gram.element_size() * D):
        X, y = model.rows(block)
        Phi, y = model.features(parts, X).Phi.double(), y.double()
        gram.addmm_(Phi.T, Phi)
        c.addmv_(Phi.T, y)
        yy += float(y @ y)
    F = gram.clone()
    F.diagonal().add_(s2)
    L, jitter = cholesky(F, "Phi'Phi + s2 I")
    w = torch.cholesky_solve(c[:, None], L)[:, 0]
    value = 0.5 * ((yy - float(c @ w)) / s2 + (model.n - D) * math.log(s2) + logdet(L))
    return Exact(value, w.to(theta), gram, L, s2, jitter)


def exact_gradient(model: Model, theta: Float[Tensor, " p"], now: Exact) -> Float[Tensor, " p"]:
    """d NLML / d theta [p] by a second pass. 2 n D^2 flops and a pullback of n rows."""
    parts, inverse = model.parts(theta), torch.cholesky_inverse(now.L).to(theta)
    total, part = torch.zeros_like(theta), torch.zeros_like(theta)
    into, squares = model.parts(part), 0.0
    for block in row_blocks(model.n, 6 * theta.element_size() * model.D):
        X, y = model.rows(block)
        at = model.features(parts, X)
        r = at.Phi @ now.w - y
        model.pullback(parts, at, (at.Phi @ inverse).addr_(r, now.w, alpha=1.0 / now.s2), into)
        total += part
        squares += float(r @ r)
    total[-1] = -squares / now.s2 + model.n - model.D + now.s2 * float(inverse.diagonal().sum())
    return total


def exact_posterior(model: Model, theta: Float[Tensor, " p"]) -> Posterior:
    """mean phi'w and variance s2 phi'F^-1 phi of f, built by one pass; D^2 flops a point."""
    now, parts = exact(model, theta), model.parts(theta)
    L = now.L.to(theta)

    def predict(X: Any) -> Prediction:
        mean, var = now.w.new_empty(len(X)), now.w.new_empty(len(X))
        for block in row_blocks(len(X), 4 * mean.element_size() * model.D):
            Phi = model.features(parts, X[block].to(mean)).Phi
            mean[block] = Phi @ now.w
            var[block] = now.s2 * torch.linalg.solve_triangular(L, Phi.T, upper=False).square().sum(0)
        return Prediction(mean, var)

    return predict
