"""The theta step of a group of folds (eq 11a), with three rules for z while theta moves.

    fixed        phi(theta) = L(theta, z, lambda)           gradient descent, as published               eq 12
    follows      psi(theta) = min_z L(theta, z, lambda)     quasi-Newton; z by the z step at each trial  eqs 11b, 13
    eliminated   F(theta)   = L(theta, C^-1 y_T, lambda)    quasi-Newton; C z = y_T holds at each trial  eqs 8, 10

To each is added the penalty nu'(theta - mean) + kappa/2 |theta - mean|^2 of eq 16, and Armijo's rule chooses the length
of a step. The curvature of phi is that of rho |d(C z)/dtheta|^2: with z fixed, theta moves very slowly where rho is
large. The curvature of psi is that of the cross-validated loss itself, and a step of it is one of the method of
multipliers, the setting of theorem 1; but psi lies below the loss by about |lambda - lambda*|^2 / (2 rho), which is
different at each theta. F is the limit of psi for large rho: it is the loss itself, and with lambda = lambda* the
gradient of L is its gradient. It needs two solutions with C per step, to an accuracy that does not grow with rho.

    d = -(B + kappa I)^-1 g,   B [p, p] the BFGS approximation of the Hessian of L alone, with Powell's damping

The gradients have no part along the direction u in which the whole covariance is multiplied by a number, since no
predicted mean changes along it (scale_direction).

Every log-hyperparameter has limits: those of its restrictions, and a distance from where it began, because the error of
an input that explains nothing decreases for ever as its lengthscale grows. Where d leaves the limits, it is replaced by
the minimiser of g'd + d'(B + kappa I)d / 2 within them: all the way there is a direction of descent inside.

The augmented Lagrangian of a group of folds: its value, its gradient in theta, and its minimiser in z.

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

import math
from collections.abc import Callable
from functools import reduce
from typing import NamedTuple

import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...kernels.theta.free_parameters import FreeParameters
from ...linalg.deferred_reads import Number, add_multiple, plus_multiple, read_at_once, sqrt
from ...noise_floor import NoiseFloor
from .folds import FoldGroup, FoldKernel
from .solvers import NystromInverse, Solution, Target, ratio, solve

FOLDS_AT_ONCE = 10  # folds whose gradients take one pass over M; each of them takes n (d + 2) numbers
MAX_OUTER = 30  # iterations for v, at most
INNER = 0.3  # solutions with C are this much more accurate than the z step that they are part of


class LagrangianTerms(NamedTuple):
    """The augmented Lagrangian at one (theta, z, lambda), term by term."""

    losses: Tensor  # [K] |r|^2, the squared error of the validation rows of each fold
    slacks: Tensor  # [K] lambda'c
    gaps: Tensor  # [K] |c|, the violation of the constraint C z = y_T
    loss: Number  # the sum of `losses`
    total: Number  # L
    c: Tensor  # [c, K]
    r: Tensor  # [n, K]


def lagrangian_terms(group: FoldGroup, M: FoldKernel, Z: Tensor, dual: Tensor, rho: float) -> LagrangianTerms:
    """Compute the terms of L at Z and lambda [c, K], by one product with M."""
    product = M.times(Z)  # [n, K]
    c = plus_multiple(product[: group.trained], Z, M.s2).sub_(group.y[: group.trained, None]).mul_(group.T)
    r = group.V * (group.y[:, None] - product)
    losses, slacks, squared_gaps = r.square().sum(0), (dual * c).sum(0), c.square().sum(0)
    sums = torch.stack([losses, slacks, squared_gaps]).sum(1)
    loss, slack, squared_gap = sums if isinstance(M.s2, Tensor) else sums.tolist()
    total = loss + slack + 0.5 * rho * squared_gap
    return LagrangianTerms(losses, slacks, squared_gaps.sqrt(), loss, total, c, r)


def largest_gap(systems: FoldSystems, terms: LagrangianTerms) -> Tensor:
    """Return the largest |C z - y_T| / |y_T| of the folds, []."""
    return (terms.gaps / systems.y_norms.clamp_min(TINY)).max()


def theta_gradient(group: FoldGroup, M: FoldKernel, Z: Tensor, W: Tensor, r: Tensor) -> Tensor:
    """Compute dL/dtheta [p] at W = lambda + rho c [c, K], summed over the folds, in one pass over M for several."""
    U = -2.0 * r
    U[: group.trained].add_(W)
    pairs = zip(U.split(FOLDS_AT_ONCE, 1), Z.split(FOLDS_AT_ONCE, 1), strict=True)
    gradient = reduce(torch.add, (M.gradient(u, z) for u, z in pairs))
    add_multiple(gradient[-1], (W * Z).sum(), 2.0 * M.s2)
    return gradient


class Limits(NamedTuple):
    """When a solution by conjugate gradients is good enough."""

    iterations: int  # at most
    tolerance: Number  # residual of C z, as a share of |y_T|; error of multipliers, as a share of these


class FoldSystems:
    """The two linear systems of each fold at one theta: C x = b, and the system (13) of the z step."""

    def __init__(self, group: FoldGroup, M: FoldKernel, rank: int) -> None:
        self.group, self.M, self.s2 = group, M, M.s2
        self.T = group.T
        self.y_T = group.y_T  # [c, K]
        self.y_norms = self.y_T.norm(dim=0)  # [K]
        self.is_few = isinstance(M.s2, Tensor)  # whether a GPU assumes that few iterations are enough
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
        return solve(self.times_C, B, X, self.C_inverse, target._replace(is_few=self.is_few), R)

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
            alpha = ratio(rr, (S * HS).sum(0))
            Z, R = Z + alpha * inverse.X, R - alpha * HS
            rr, rr_before = (R * R).sum(0), rr
            S = R + ratio(rr, rr_before) * S
        return Solution(Z, iterations, float((R.norm(dim=0) / target.clamp_min(torch.finfo(R.dtype).tiny)).max()))


ARMIJO = 1e-4
TRIALS, TRIALS_FIXED_Z = 6, 25  # halvings of a step at most: each costs a z step, or one value of L
FIRST = 0.3  # length of the first step, in log-hyperparameters
LONGEST = 1.0  # no log-hyperparameter moves further in one step: a factor of e
UNSOLVED = 10.0  # a residual of C z = y_T above this many tolerances counts as no solution
TINY = 1e-30
ENOUGH_CURVATURE = 0.2  # Powell's damping keeps this share of s'Bs


class ConsensusPenalty(NamedTuple):
    """The terms that tie a fold to the others (eq 16), and the limits of theta.

    Attributes
    ----------
    mean : Tensor [p]
        The consensus.
    kappa : float
        Weight of the penalty. 0 leaves the folds independent.
    u : Tensor [p]
        Unit vector of the scale direction, or zero where the kernel has none.
    begin : Tensor [p]
        The theta of the problem.
    span : float
        Every log-hyperparameter stays within this distance of `begin`.
    free : FreeParameters or None
        Which entries of theta are fixed, tied or bounded.
    floor : NoiseFloor or None
        The least noise beside the function.
    """

    mean: Tensor
    kappa: float
    u: Tensor
    begin: Tensor
    span: float
    free: FreeParameters | None = None
    floor: NoiseFloor | None = None

    def value(self, theta: Tensor, nu: Tensor) -> float:
        """Return the penalty at theta."""
        difference = theta - self.mean
        linear, square = torch.stack([nu @ difference, difference @ difference]).tolist()
        return float(linear + 0.5 * self.kappa * square)

    def limits(self) -> tuple[Tensor, Tensor]:
        """Return the least and the largest value of every entry, [p] each; those of a fixed entry are equal."""
        lower, upper = self.begin - self.span, self.begin + self.span
        if self.free is None:
            return lower, upper
        low, high = (self.free.full(bound) for bound in (self.free.lower, self.free.upper))
        return torch.maximum(lower, low), torch.minimum(upper, high)

    def project(self, theta: Tensor) -> Tensor:
        """Return the theta nearest to this one within the limits."""
        if self.floor is not None and self.floor.is_movable:
            theta = self.floor.raised(theta, self._normal(theta))
        theta = theta.clamp(self.begin - self.span, self.begin + self.span)
        return theta if self.free is None else self.free.project(theta)

    def _normal(self, theta: Tensor) -> Tensor:
        """The gradient of the distance of the noise from its least value, in the entries that may move."""
        assert self.floor is not None
        normal = self.floor.normal(theta)
        return normal if self.free is None else self.free.spread(normal)

    def along_floor(self, theta: Tensor, g: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
        """Return g and the Hessian B [p, p] without the direction towards less noise, where that is the least."""
        if self.floor is None or not self.floor.is_touched(theta):
            return g, B
        normal = self._normal(theta)
        normal = normal / normal.norm()
        if float(g @ normal) <= 0.0:
            return g, B
        others = torch.eye(len(g)).to(g) - torch.outer(normal, normal)
        return others @ g, others @ B @ others + B.diagonal().mean() * torch.outer(normal, normal)

    def without_scale(self, g: Tensor) -> Tensor:
        """Return g without its part along u, and without what the restrictions of theta take from a gradient."""
        g = g - (g @ self.u) * self.u
        return g if self.free is None else self.free.spread(g)

    def coordinates(self) -> list[Tensor]:
        """Return one unit vector [p] per hyperparameter that moves alone; tied ones move together."""
        every = torch.eye(len(self.u), dtype=self.u.dtype, device=self.u.device)
        if self.free is not None:
            groups = range(len(self.free.lower))
            every = torch.stack([(self.free.group == group).to(self.u) for group in groups]) if groups else every[:0]
        directions = (self.without_scale(direction) for direction in every)
        return [direction / direction.norm() for direction in directions if bool(direction.any())]

    def at(self, theta: Tensor, g: Tensor) -> Tensor:
        """Return `without_scale`, with 0 also where a limit stops the descent from theta."""
        return self.descending(theta, self.without_scale(g))

    def descending(self, theta: Tensor, g: Tensor) -> Tensor:
        """Return g with 0 where a limit stops the descent from theta."""
        lower, upper = self.begin - self.span, self.begin + self.span
        g, _ = self.along_floor(theta, g, torch.zeros(len(g), len(g)).to(g))
        g = g.where(~(((theta <= lower) & (g > 0.0)) | ((theta >= upper) & (g < 0.0))), 0.0)
        return g if self.free is None else self.free.descending(theta, g)


ZRule = Callable[["ThetaProblem", FoldSystems], tuple[Tensor, int]]


def fixed_z(problem: ThetaProblem, systems: FoldSystems) -> tuple[Tensor, int]:
    """Keep z as it is."""
    return problem.Z, 0


def z_follows(problem: ThetaProblem, systems: FoldSystems) -> tuple[Tensor, int]:
    """Minimise L over z: the z step of eq 11b."""
    solution = systems.z_step(problem.dual, problem.rho, problem.limits)
    return solution.X, solution.iterations


def z_eliminated(problem: ThetaProblem, systems: FoldSystems) -> tuple[Tensor, int]:
    """Solve C z = y_T (eq 8)."""
    solution = systems.solve_C(systems.y_T, problem.Z, problem.limits)
    return solution.X, solution.iterations


class ExactLoss(NamedTuple):
    """The validation loss of a group of folds where C z = y_T."""

    Z: Tensor  # [c, K]
    loss: Number  # sum |y_V - K_VT z|^2
    energy: Number  # sum y_T'C^-1 y_T


def exact_loss(systems: FoldSystems, Z: Tensor, dual: Tensor, limits: Limits) -> ExactLoss:
    """Compute the loss by solutions for z and lambda that start at Z and `dual`; see `score_folds` for its error."""
    group, limits = systems.group, limits._replace(iterations=4 * limits.iterations)
    Z = systems.solve_C(systems.y_T, Z, limits).X  # eq 8
    terms = lagrangian_terms(group, systems.M, Z, torch.zeros_like(Z), 0.0)
    dual = systems.adjoint(terms.r, dual, limits._replace(tolerance=sqrt(limits.tolerance))).X
    sums = torch.stack([(dual * terms.c).sum(), ((systems.y_T - terms.c) * Z).sum()])
    slack, energy = sums if isinstance(systems.s2, Tensor) else sums.tolist()
    return ExactLoss(Z, terms.loss + slack, energy)


class NextStep(NamedTuple):
    """What follows where a trial is accepted and z is eliminated."""

    dual: Tensor  # [c, K] the multipliers, the limit of eq 11c
    g: Tensor  # [p] dL/dtheta at them
    score: ExactLoss | None  # where it is asked for


class Trial(NamedTuple):
    """One theta that a step may lead to, with z and L there."""

    theta: Tensor  # [p]
    Z: Tensor  # [c, K]
    systems: FoldSystems | None  # None where a GPU has computed `ahead`
    terms: LagrangianTerms
    value: float  # L and the penalty
    gap: float  # the largest |C z - y_T| / |y_T| of the folds
    iterations: int  # of conjugate gradients, for z
    ahead: NextStep | None = None

    @property
    def solved(self) -> FoldSystems:
        """The systems, where nothing was computed ahead."""
        assert self.systems is not None
        return self.systems


Solved = tuple[FoldSystems | None, Tensor, int, LagrangianTerms, NextStep | None]  # what a trial finds at one theta
Recorded = Callable[["ThetaProblem", Tensor], tuple[Solved, Number]]  # the same, with the largest gap


class ThetaProblem(NamedTuple):
    """The subproblem of one theta step (eq 11a): all that is fixed while theta moves.

    The vectors of the folds are on the device of the group. Those with p entries may be on the host, where the few
    operations on them and their values cost a GPU no launch and no wait.
    """

    group: FoldGroup
    Z: Tensor  # [c, K] the z of the last iteration, where z is fixed
    dual: Tensor  # [c, K] lambda
    nu: Tensor  # [p] multipliers of theta_k = mean
    rho: float
    rank: int
    limits: Limits
    penalty: ConsensusPenalty
    recorded: Recorded | None = None  # on a GPU, where z is eliminated

    def trial(self, theta: Tensor, z_rule: ZRule) -> Trial | None:
        """Evaluate L at theta, or at the nearest one within the limits: one kernel matrix, and z by the rule.

        The result is None where L is not finite.
        """
        if not bool(theta.isfinite().all()):
            return None
        theta = self.penalty.project(theta)
        penalty = self.penalty.value(theta, self.nu)

        def solved() -> tuple[Solved, Tensor]:
            systems = FoldSystems(self.group, self.group.kernel_matrix(theta), 0 if z_rule is fixed_z else self.rank)
            Z, iterations = z_rule(self, systems)
            terms = lagrangian_terms(self.group, systems.M, Z, self.dual, self.rho)
            return (systems, Z, iterations, terms, None), largest_gap(systems, terms)[None]

        try:
            if self.recorded is None:
                (systems, Z, iterations, terms, ahead), gaps = read_at_once(solved, self.group.y)
            else:
                (systems, Z, iterations, terms, ahead), gaps = self.recorded(self, theta)
        except NotPositiveDefinite:  # the kernel matrix is not finite, or beyond rounding
            return None
        gap = float(gaps)
        if not math.isfinite(terms.total):
            return None
        tolerance = max(self.limits.tolerance, torch.finfo(self.group.y.dtype).eps ** 0.5)
        if z_rule is z_eliminated and gap > UNSOLVED * tolerance:
            return None  # the condition number of C is so large that its solution, and the loss, are not accurate
        return Trial(theta, Z, systems, terms, terms.total + penalty, gap, iterations, ahead)

    def lagrangian_gradient(self, trial: Trial) -> Tensor:
        """Return dL/dtheta [p] without the penalty and its part along u, on the device of the penalty."""
        W = self.dual + self.rho * trial.terms.c  # [c, K]
        M, r = trial.solved.M, trial.terms.r
        _, gradient = read_at_once(lambda: (None, theta_gradient(self.group, M, trial.Z, W, r)), W)
        return self.penalty.without_scale(gradient.to(self.penalty.u.device))

    def total_gradient(self, theta: Tensor, g: Tensor) -> Tensor:
        """Return the gradient [p] with the penalty, from dL/dtheta = g, with 0 where a limit stops the descent."""
        penalty = self.penalty
        return penalty.at(theta, g + self.nu + penalty.kappa * (theta - penalty.mean))

    def newton_step(self, theta: Tensor, g: Tensor, B: Tensor) -> tuple[Tensor, Tensor]:
        """Return the step d [p] that minimises g'd + d'(B + kappa I)d / 2 within the limits, and the total gradient."""
        penalty = self.penalty
        total = penalty.without_scale(g + self.nu + penalty.kappa * (theta - penalty.mean))
        total, B = penalty.along_floor(theta, total, B)
        d = newton_direction(total, B, penalty.kappa)
        lower, upper = (limit - theta for limit in penalty.limits())
        if bool(((d < lower) | (d > upper)).any()) and bool(B.any()):
            d = bounded_direction(total, B + penalty.kappa * torch.eye(len(g)).to(B), lower, upper)
        return d.clamp(lower.clamp_max(0.0), upper.clamp_min(0.0)), total

    def armijo(
        self, theta: Tensor, value: float, step: tuple[Tensor, Tensor], z_rule: ZRule
    ) -> tuple[Trial | None, int]:
        """Try the lengths 1, 1/2, 1/4, ... until Armijo's rule accepts one.

        Parameters
        ----------
        theta : Tensor [p]
            Where the step begins.
        value : float
            L and the penalty there.
        step : pair of Tensor [p]
            The direction, and the gradient at theta.
        z_rule : callable
            One of `fixed_z`, `z_follows`, `z_eliminated`.

        Returns
        -------
        Trial or None
            The accepted trial; None where no length is accepted.
        int
            The number of trials.

        Notes
        -----
        The value of a trial may be off, since z has the tolerance e of `limits`, but to second order only: an error c
        of C z and one of lambda, both relative to e, change it by e^2 |y_T| |lambda|. So much is conceded.
        """
        d, g = step
        expected, most = ARMIJO * float(d @ g), TRIALS_FIXED_Z if z_rule is fixed_z else TRIALS
        inaccuracy = self.limits.tolerance**2 * self.group.target_norm * float(self.dual.norm())
        for k in range(most if expected < 0.0 else 0):
            trial = self.trial(theta + 0.5**k * d, z_rule)
            if trial is not None and trial.value <= value + 0.5**k * expected + inaccuracy:
                return trial, k + 1
            trial = None  # frees its kernel matrix for the next trial
        return None, most


def newton_direction(g: Tensor, B: Tensor, kappa: float) -> Tensor:
    """Return -(B + kappa I)^-1 g, shortened so that no entry exceeds LONGEST.

    Where B is zero, as before the first step, the direction is -g with length FIRST.
    """
    if not bool(B.any()):
        return -FIRST * g / g.norm().clamp_min(torch.finfo(g.dtype).tiny)
    d = -torch.linalg.solve(B + kappa * torch.eye(len(g)).to(B), g)
    largest = float(d.abs().max())
    return d * (LONGEST / largest) if largest > LONGEST else d


def bounded_direction(g: Tensor, B: Tensor, lower: Tensor, upper: Tensor) -> Tensor:
    """Return the d [p] that minimises g'd + d'Bd / 2 with lower <= d <= upper and no entry above LONGEST.

    With B = R'R it is the bounded least-squares solution of R d = -R'^-1 g.
    """
    from scipy.optimize import lsq_linear  # on first use: most runs stay within their limits

    d, moves = torch.zeros_like(g), upper > lower
    R = torch.linalg.cholesky(B[moves][:, moves].double()).mT
    right = torch.linalg.solve_triangular(R.mT, -g[moves, None].double(), upper=False)[:, 0]
    box = (limit[moves].double() for limit in (lower.clamp(-LONGEST, 0.0), upper.clamp(0.0, LONGEST)))
    solution = lsq_linear(R.numpy(), right.numpy(), tuple(limit.numpy() for limit in box), method="bvls")
    d[moves] = torch.from_numpy(solution.x).to(d)
    return d


def bfgs(B: Tensor, s: Tensor, y: Tensor) -> Tensor:
    """Update the Hessian B [p, p] after a step s along which the gradient changed by y; it stays positive definite.

    References
    ----------
    Nocedal and Wright (2006), Numerical optimization, procedure 18.2 (damped BFGS).
    """
    if not bool(B.any()):
        B = torch.eye(len(s)).to(s) * float(y.norm() / s.norm())
    Bs = B @ s
    sBs, sy = float(s @ Bs), float(s @ y)
    if sBs <= 0.0 or not math.isfinite(sy):
        return B
    share = 1.0 if sy >= ENOUGH_CURVATURE * sBs else (1.0 - ENOUGH_CURVATURE) * sBs / (sBs - sy)
    y = share * y + (1.0 - share) * Bs
    return B - torch.outer(Bs, Bs) / sBs + torch.outer(y, y) / float(s @ y)
