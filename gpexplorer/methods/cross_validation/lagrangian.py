"""The augmented Lagrangian of a group of folds: its value, its gradient in theta, and its minimiser in z.

    C = K_TT + s2 I                                                                      [n_T, n_T] for each fold
    L = |y_V - K_VT z|^2 + lambda'(C z - y_T) + rho/2 |C z - y_T|^2                      section 3.1
    r = y_V - K_VT z [n_V],  c = C z - y_T [n_T],  w = lambda + rho c [n_T]
    dL/dtheta = d/dtheta [(w, -2 r)' M(theta) z], and 2 s2 w'z in addition for the log noise sd
    (2 K_VT' K_VT + rho C^2) z = 2 K_VT' y_V + C (rho y_T - lambda)                      eq 13, gradient in z is zero

The equations are those of Xu, Yin, Zhang, Luo and Cui (2019). Their gradients (17) and (18) omit the products of the
noise variance and the kernel; the gradient here is our own and is tested against finite differences. Every operation
costs O(n^2): products of M with vectors. In the code `dual` is lambda. Each fold of the group has a column: z is
Z [c, K], and all sums are over the folds.

The matrix of (13) has the square of C's condition number. With v = C z it becomes

    (rho I + 2 G'G) v = C^-1 (2 K_VT' y_V) + rho y_T - lambda,   G = K_VT C^-1           (13) times C^-1

whose condition number is 1 + 2 |G|^2 / rho: close to 1 for the usual rho and any C. A few iterations are enough,
each with two solutions of C alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from .folds import FoldGroup, FoldKernel
from .solvers import NystromInverse, Solution, Target, solve

FOLDS_AT_ONCE = 10  # folds whose gradients take one pass over M; each of them takes n (d + 2) numbers
MAX_OUTER = 30  # iterations for v, at most
INNER = 0.3  # solutions with C are this much more accurate than the z step that they are part of


class LagrangianTerms(NamedTuple):
    """The augmented Lagrangian at one (theta, z, lambda), term by term."""

    losses: Tensor  # [K] |r|^2, the squared error of the validation rows of each fold
    slacks: Tensor  # [K] lambda'c
    gaps: Tensor  # [K] |c|, the violation of the constraint C z = y_T
    loss: float  # the sum of `losses`
    total: float  # L
    c: Tensor  # [c, K]
    r: Tensor  # [n, K]


def lagrangian_terms(group: FoldGroup, M: FoldKernel, Z: Tensor, dual: Tensor, rho: float) -> LagrangianTerms:
    """Compute the terms of L at Z and lambda [c, K], by one product with M."""
    product = M.times(Z)  # [n, K]
    c = product[: group.trained].add(Z, alpha=M.s2).sub_(group.y[: group.trained, None]).mul_(group.T)
    r = group.V * (group.y[:, None] - product)
    losses, slacks, squared_gaps = r.square().sum(0), (dual * c).sum(0), c.square().sum(0)
    loss, slack, squared_gap = torch.stack([losses, slacks, squared_gaps]).sum(1).tolist()
    total = loss + slack + 0.5 * rho * squared_gap
    return LagrangianTerms(losses, slacks, squared_gaps.sqrt(), loss, total, c, r)


def theta_gradient(group: FoldGroup, M: FoldKernel, Z: Tensor, W: Tensor, r: Tensor) -> Tensor:
    """Compute dL/dtheta [p] at W = lambda + rho c [c, K], summed over the folds, in one pass over M for several."""
    U = -2.0 * r
    U[: group.trained].add_(W)
    pairs = zip(U.split(FOLDS_AT_ONCE, 1), Z.split(FOLDS_AT_ONCE, 1), strict=True)
    gradient = sum((M.gradient(u, z) for u, z in pairs), start=torch.zeros_like(M.theta))
    gradient[-1].add_((W * Z).sum(), alpha=2.0 * M.s2)
    return gradient


class Limits(NamedTuple):
    """When a solution by conjugate gradients is good enough."""

    iterations: int  # at most
    tolerance: float  # residual of C z, as a share of |y_T|; error of multipliers, as a share of these


class FoldSystems:
    """The two linear systems of each fold at one theta: C x = b, and the system (13) of the z step."""

    def __init__(self, group: FoldGroup, M: FoldKernel, rank: int) -> None:
        self.group, self.M, self.s2 = group, M, M.s2
        self.T = group.T
        self.y_T = group.y_T  # [c, K]
        self.y_norms = self.y_T.norm(dim=0)  # [K]
        self.C_inverse = NystromInverse(group, M, rank, self.s2)

    def times_C(self, V: Tensor) -> Tensor:
        """Return C V [c, K], for V that is zero outside of the training rows."""
        return self.T * self.M.noisy_times(V)

    def solve_C(self, B: Tensor, X: Tensor, limits: Limits) -> Solution:
        """Solve C X = B, starting at X. The tolerance of the residual is a share of |y_T|."""
        return self._solve(B, X, Target(limits.tolerance * self.y_norms, limits.iterations))

    def adjoint(self, r: Tensor, X: Tensor, limits: Limits) -> Solution:
        """Solve C X = 2 K_VT' r for r [n, K], starting at X. The tolerance of X itself is a share of |X|."""
        B = self.T * self.M.transposed_times(2.0 * r)
        norms = torch.maximum(X.norm(dim=0), self.C_inverse(B).norm(dim=0))
        return self._solve(B, X, Target(limits.tolerance * norms, limits.iterations, of_solution=True))

    def _solve(self, B: Tensor, X: Tensor, target: Target) -> Solution:
        """Solve C X = B from X, or from zero where that is closer: at another theta the old X may be far off."""
        R = B
        if not X.is_cpu or bool(X.any()):
            R = B - self.times_C(X)
            is_farther = R.norm() > B.norm()
            if not X.is_cpu:
                X, R = X.masked_fill(is_farther, 0.0), torch.where(is_farther, B, R)
            elif is_farther:
                X, R = torch.zeros_like(X), B
        return solve(self.times_C, B, X, self.C_inverse, target, R)

    def z_step(self, dual: Tensor, rho: float, limits: Limits) -> Solution:
        """Solve (13) by conjugate gradients for v = C z, with the matrix H = rho I + 2 G'G.

        The residual of that equation is the adjoint 2 C^-1 K_VT' r less the new multipliers lambda + rho c. It stops
        when this is a share `limits.tolerance` of the adjoint, or when the solutions with C have taken
        `limits.iterations` iterations together.

        Notes
        -----
        It starts at v = y_T, where c = 0, and not at the z of another theta: C changes z so much that its residual
        would be many times |y_T|. A step of v has at most length |s| / rho, and an error e of v counts as rho e: the
        accuracy needed of the solutions with C does not depend on rho.
        """
        zeros = torch.zeros_like(dual)
        start = self.solve_C(self.y_T, zeros, limits)
        Z, product = start.X, self.M.times(start.X)
        c = self.T * (product[: self.group.trained] + self.s2 * Z) - self.y_T  # [c, K]
        adjoint = self.adjoint(self.group.V * (self.group.y[:, None] - product), zeros, limits)
        iterations, target = start.iterations + adjoint.iterations, limits.tolerance * adjoint.X.norm(dim=0)
        R = adjoint.X - dual - rho * c
        S, rr = R, (R * R).sum(0)
        for _ in range(MAX_OUTER):
            if iterations >= limits.iterations or bool((R.norm(dim=0) <= target).all()):
                break
            inverse = self._solve(S, zeros, Target(INNER * target, limits.iterations - iterations))
            iterations += inverse.iterations
            G_s = self.group.V * self.M.times(inverse.X)  # [n, K]
            accuracy = INNER * max(rho, 1.0) * target
            inner_target = Target(accuracy, max(limits.iterations - iterations, 1), of_solution=True)
            curvature = self._solve(self.T * self.M.transposed_times(2.0 * G_s), zeros, inner_target)
            iterations += curvature.iterations
            HS = rho * S + curvature.X
            alpha = _ratio(rr, (S * HS).sum(0))
            Z, R = Z + alpha * inverse.X, R - alpha * HS
            rr, rr_before = (R * R).sum(0), rr
            S = R + _ratio(rr, rr_before) * S
        return Solution(Z, iterations, float((R.norm(dim=0) / target.clamp_min(torch.finfo(R.dtype).tiny)).max()))


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """Return a / b, or 0 where both are zero: a column that is solved already."""
    return a / b.clamp_min(torch.finfo(b.dtype).tiny)
