"""Kernels whose logarithm is a product of features: log k(x, z) = a(x)'b(z).

A matrix of them is one matrix product and an exponential, and K alone tells the slope of u'K z in theta:

    d(u'K z) = sum_ij u_i K_ij z_j d(a_i'b_j) = sum_i u_i da_i'(K [z b])_i + sum_j z_j db_j'(K'[u a])_j
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from jaxtyping import Float
from torch import Tensor

from ..linalg.blocks import row_blocks
from .base import Covariance, gradient_of

FILL_BYTES, FILL_ROWS = 2**20, 8  # a block this small stays in cache while a logarithm becomes a covariance


class Exponential(Covariance):
    """theta[0] is the logarithm of the standard deviation."""

    @abstractmethod
    def features(self, theta: Tensor, X: Tensor, Z: Tensor) -> tuple[Float[Tensor, "n t"], Float[Tensor, "m t"]]:
        """a(X) and b(Z), differentiable in theta."""

    def fill(self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor, out: Float[Tensor, "n m"]) -> None:
        """By row blocks that stay in cache; 2 n m t flops and n m exponentials."""
        A, B = self.features(theta, X, Z)
        a_row, B = X.element_size() * max(len(Z), 1), B.T.contiguous()
        for rows in row_blocks(len(X), a_row, max(FILL_BYTES, FILL_ROWS * a_row)):
            torch.mm(A[rows], B, out=out[rows]).clamp_max_(2.0 * theta[0]).exp_()

    def theta_gradient_from_matrix(
        self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor, sides: tuple[Tensor, Tensor], K: Tensor
    ) -> Float[Tensor, " p"]:
        """4 n m t flops; the features alone are differentiated, O((n + m) t). K may have other factors too."""
        u, z = (side[:, None] for side in sides)
        A, B = self.features(theta, X, Z)
        right, left = ((z * B).T @ K.T).T, ((u * A).T @ K).T  # few rows, which are quicker than few columns

        def value(at: Tensor) -> Tensor:
            A, B = self.features(at, X, Z)
            return (u * A * right).sum() + (z * B * left).sum()

        return gradient_of(theta, value)

    def theta_gradient_bilinear(
        self, theta: Float[Tensor, " p"], X: Tensor, Z: Tensor, sides: tuple[Tensor, Tensor]
    ) -> Float[Tensor, " p"]:
        """By blocks of rows, each computed and told."""
        (u, z), total = sides, torch.zeros_like(theta)
        for rows in row_blocks(len(X), X.element_size() * max(len(Z), 1)):
            K = X.new_empty(rows.stop - rows.start, len(Z))
            self.fill(theta, X[rows], Z, K)
            total += self.theta_gradient_from_matrix(theta, X[rows], Z, (u[rows], z), K)
        return total
