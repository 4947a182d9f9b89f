"""Kernels whose logarithm is an inner product of features, log k(x, z) = a(x)'b(z): SE, periodic, and their products.

With feature matrices A [n, t] and B [m, t], the covariance matrix is K = exp(A B'), one matrix product and an
exponential. The derivative of u'K z needs no other n x m matrix than K:

    d(u'K z) = sum_ij u_i K_ij z_j d(a_i'b_j) = sum_i u_i da_i'(K [z b])_i + sum_j z_j db_j'(K'[u a])_j
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from .base import Covariance, Sides, Theta
from .distances import FILL_BYTES, FILL_ROWS


class Exponential(Covariance):
    """Base class of kernels with log k(x, z) = a(x)'b(z); theta[0] is the log standard deviation."""

    @abstractmethod
    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Float[Tensor, "n t"], Float[Tensor, "m t"]] | None:
        """Features a(X) [n, t] and b(Z) [m, t], differentiable with respect to theta.

        None if their product would lose digits; the covariances and their gradient are then computed without it.
        """

    def fill(self, theta: Theta, X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """Write the covariance into `out`, by row blocks that stay in the cache: 2 n m t flops, n m exponentials."""
        features = self.features(theta, X, Z)
        if features is None:
            super().fill(theta, X, Z, out)
            return
        A, B = features
        row_bytes, B = X.element_size() * max(len(Z), 1), B.T.contiguous()  # B [t, m]
        for rows in row_blocks(len(X), row_bytes, out, max(FILL_BYTES, FILL_ROWS * row_bytes)):
            torch.mm(A[rows], B, out=out[rows]).clamp_max_(2.0 * theta[0]).exp_()

    def theta_gradient_from_matrix(self, theta: Theta, X: Tensor, Z: Tensor, sides: Sides, K: Tensor) -> Theta | None:
        """Gradient [p] of u'K z from K [n, m] alone, by the formula of the module docstring; summed over k columns.

        4 n m t k flops, and autograd only through the features, O((n + m) t). K may contain further factors. None if
        there are no features for these inputs.
        """
        with torch.enable_grad():
            leaf = theta.detach().clone().requires_grad_(True)
            features = self.features(leaf, X, Z)
        if features is None:
            return None
        A, B = (part.detach() for part in features)
        u, z = ((side if side.ndim > 1 else side[:, None])[..., None] for side in sides)  # [n, k, 1], [m, k, 1]
        zB, uA = (z * B[:, None]).flatten(1), (u * A[:, None]).flatten(1)  # [m, k t], [n, k t]
        # products with few rows are faster than products with few columns
        weights_A = (u * (zB.T @ K.T).T.unflatten(1, (u.shape[1], -1))).sum(1)  # [n, t]
        weights_B = (z * (uA.T @ K).T.unflatten(1, (u.shape[1], -1))).sum(1)  # [m, t]

        parts = [pair for pair in zip(features, (weights_A, weights_B), strict=True) if pair[0].requires_grad]
        if not parts:
            return torch.zeros_like(theta)
        outputs, weights = zip(*parts, strict=True)
        (gradient,) = torch.autograd.grad(outputs, leaf, weights)
        return gradient

    def theta_gradient_bilinear(self, theta: Theta, X: Tensor, Z: Tensor, sides: Sides) -> Theta:
        """Gradient [p] of u'k(theta, X, Z) z, summed over k columns; covariances are computed in blocks of rows."""
        (u, z), total = sides, torch.zeros_like(theta)
        for rows in row_blocks(len(X), X.element_size() * max(len(Z), 1), X):
            K = X.new_empty(rows.stop - rows.start, len(Z))  # [block, m]
            self.fill(theta, X[rows], Z, K)
            gradient = self.theta_gradient_from_matrix(theta, X[rows], Z, (u[rows], z), K)
            total += super().theta_gradient_bilinear(theta, X[rows], Z, (u[rows], z)) if gradient is None else gradient
        return total
