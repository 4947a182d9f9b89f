"""MINIMAX: the Gram matrix is a variable A, and a penalty with an unbiased gradient makes it equal to the true one, F.

    Psi = g(theta) + log |A| + mu <B, A - F(theta)> / |A|,   min over (theta, A), max over |B| <= 1        eq 3.2
    1. (theta, A) <- proj(. - a grad Psi)        A >= s2 I, sd >= sd_min, and the box
    2. B <- proj(B + b grad Psi), on another minibatch

F is linear in the rows, so its minibatch estimates are unbiased. A and F are stored per row (A / n), which leaves the
penalty unchanged.

In the paper, A and B are moved by the optimiser of theta (`metric="flat"`). If F is ill-conditioned, A then leaves the
cone A >= s2 I at almost every step, and mu = 1 is too small for A = F, which requires mu >= |F| |F^-1|. With
`metric="affine"` the steps of A and B are preconditioned so that they fit every eigenvalue, and a damping term draws A
towards F, because the iteration for the saddle point alone would spiral outwards:

    M = -mu B / |A|                          the multiplier of A = F, which tends to F^-1
    A <- A - a (2 (A^-1 + M)^-1 - A) - a kappa (A - F),    since 2 (A^-1 + M)^-1 - A = (A^-1 + M)^-1 (A^-1 - M) A
    B <- B + b (|A| / mu) A^-1 (A - F) A^-1,          A^-1 F A^-1 = (Phi A^-1)'(Phi A^-1) / s + s2 A^-2 / n

A^-1 - M is the gradient with respect to A, except for the derivative of 1 / |A|, which vanishes at A = F. These
matrices are float64 for any precision of the features: M is close to the inverse of A, and float32 cannot
represent both ends of either spectrum. M is noisy. When the noise makes A^-1 + M indefinite, M is restricted to
M >= -A^-1 / 2, so that A loses at most 3 a A in one step.

A minibatch of b rows estimates F with a relative variance of about D / b, and the steps of A and B are not linear in
it. With constant rates the mean of M therefore exceeds F^-1 if b < D (by 70 % at b = 8, D = 64, theta at rest). By
default both rates are multiplied by min(1, b / D), which leaves a few per cent. This removes the bias that noise
causes.

While theta moves, A and B follow F with a delay. If F grows by a fraction f per minibatch, the steps above settle, to
first order, at

    F^1/2 A^-1 F^1/2 = I - x,     x = (1 - 2 l) f / (b + 2 kappa l a)
    F^1/2 M F^1/2    = I + z,     z = 2 f / a + (2 kappa - 1) x

with l = 0: one matrix is too small and the other too large. M is moreover an integral of A - F, and where A is far from
F, the step of A hardly depends on M: M then overshoots, and returns by at most b A^-1 per minibatch. By default
(`multiplier="corrected"`) two terms are added, which vanish at A^-1 = M and leave the solution where it is:

    B <- B - l a (|A| / mu) (A^-1 - M)        the multiplier is damped, so that an overshoot decays exponentially
    w M + (1 - w) A^-1                        replaces M in the gradient of theta
    w = x / (x + z) = a (1 - 2 l) / (2 (b + kappa a))

With this weight the two delays cancel. Along learning on four public sets (16 and 64 rows per minibatch, D = 64 and
128), the mean eigenvalue of F^1/2 N F^1/2 for the matrix N in place of F^-1 is .97 to 1.02 (1.0 to 5.3 with M alone),
and N changes the gradient of theta by 1 to 17 % (6 to 70 %): docs/minibatches.md has the table. It costs two additions
of D x D matrices. To add the change of Phi'Phi between two moves of theta on the same rows to A instead made it worse,
because these changes add noise of their own.

The weights w of the features are solved for as well (`head="solve"`), by recursive least squares with A^-1 as the
inverse of the Gram matrix of earlier rows:

    w <- w + min(a, d'p / (|Phi p|^2 / s)) p,     p = A^-1 d,   d = Phi'(y - Phi w) / s - s2 w / n

The step ends at the minimum for the rows of the minibatch along p at the latest. Steps of length a would grow without
limit where F exceeds A by more than a factor of 2 / a in some direction: with 512 features and 64 rows, 2 / a is 320,
and the first moves of theta enlarge the smallest eigenvalues of F by factors of 500 to 3000.

A running average of Phi'y in its place would have to forget rows exactly as A does: the noise of Phi'y is that of the
whole signal, and here only that of the residual. The paper moves w by its gradient (`head="descend"`), as this package
does in the flat metric, in which A need not be near F.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import param
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.cholesky import (
    cholesky,
    factor,
    inverse_and_logdet,
    lift_above,
    num_squarings,
    project_above,
    project_to_unit_ball,
)
from ...linalg.deferred_reads import Number, add_multiple, add_product, happens, number, plus_multiple
from ...problem import Cost, Problem
from ..setting_kinds import amount, choice, positive
from . import settings
from .exact_likelihood import ExactLikelihood, exact_likelihood
from .gradients import Parameters
from .learner import Learner, MinibatchRows
from .loop import ADDED_SETTINGS, LikelihoodGradient
from .model import Model, factorisation_flops, feature_flops, step_cost
from .state import MinibatchState

MIN_RELATIVE_M = -0.5  # M is restricted to M >= this times A^-1
MULTIPLIER_DAMPING = 0.25  # l above; with 1/2, A alone would have no delay and M no weight
LIFTS = 0.3  # the share of steps after which eigenvalues of A have to be raised, as measured for the cost
LARGE_GAP = 3.0  # with |A - F| larger than this times |F| at the end, the outcome says so; below 1 is usual
MAX_GAP = 100.0  # with |A - F| larger than this times |F|, A has diverged in the affine metric


class Minimax(LikelihoodGradient):
    """Stochastic descent and ascent on a saddle-point problem whose value is the marginal likelihood.

    Notes
    -----
    A minibatch of b rows with D features costs about 8 D^3 + 8 b D^2 flops and two forward passes of the network.

    References
    ----------
    Shoham and Avron (2025), section 3.1, equation 3.2.
    """

    key: ClassVar[str] = "minimax"
    added_settings: ClassVar[Mapping[str, Any]] = {
        **ADDED_SETTINGS,
        "rate_scaling": "constant",
        "multiplier": "plain",
        "head": "descend",
    }
    title: ClassVar[str] = "MINIMAX"
    equations: ClassVar[dict[str, str]] = {
        **LikelihoodGradient.equations,
        "mu": r"\Psi = g + \log|A| + \mu\,\langle B, A - F(\theta)\rangle / \|A\|",
        "rate_matrix": r"A \leftarrow \operatorname{proj}_{A \succeq \sigma^2 I}(A - a\,\nabla_A \Psi)",
        "rate_ascent": r"B \leftarrow \operatorname{proj}_{\|B\|\le 1}(B + b\,\nabla_B \Psi)",
    }

    batch_size = settings.batch_size()
    metric: str = choice(
        ["affine", "flat"],
        doc="Geometry of the steps of A and B: affine is that of positive definite matrices, flat is the paper's.",
    )
    mu = positive(
        1e10, doc="Penalty on A - F: 1 in the paper. A = F requires mu larger than the condition number of F."
    )
    mu_growth = param.Number(
        1.0, bounds=(1.0, None), softbounds=(1.0, 10.0), doc="Factor by which mu is multiplied after each epoch."
    )
    rate_matrix = positive(
        0.05,
        (1e-3, 1.0),
        doc="Rate of the matrix A: its learning rate a, in the affine metric.",
    )
    rate_ascent = positive(
        0.02,
        (1e-3, 1.0),
        doc="Rate of the ascent: learning rate b of B.",
    )
    damping = amount(
        2.0,
        (0.0, 10.0),
        doc="Damping kappa, which draws A towards F in the affine metric; 0 is undamped.",
    )
    rate_scaling: str = choice(
        ["batch", "constant"],
        doc="Batch multiplies the affine rates of A and B by min(1, b / D), without which M is biased; or constant.",
    )
    multiplier: str = choice(
        ["corrected", "plain"],
        doc="Stands for F^-1 in the affine metric: M alone (plain), or a mean of M and A^-1 that has no delay.",
    )
    head = settings.head("Weights w of the features: solved for with A^-1, or moved by their gradient as in the paper.")
    refresh = settings.refresh()

    def learner(self, model: Model, state: MinibatchState) -> Learner:
        return MinimaxLearner(self, model, state)

    def stationary_matrices(self, model: Model, exact: ExactLikelihood) -> tuple[Tensor, ...]:
        """Return A / n and B at which the method would stay if theta did not move."""
        A = gram_per_row(model, exact)
        B = torch.cholesky_inverse(exact.L) * (-model.n * A.norm() / self.mu)
        return A, B / B.norm().clamp_min(1.0)

    def matrix_rates(self, model: Model) -> tuple[float, float]:
        """Return the rates of A and B in the affine metric, after scaling."""
        is_scaled = self.rate_scaling == "batch"
        scale = min(1.0, min(self.batch_size, model.n) / model.D) if is_scaled else 1.0
        return self.rate_matrix * scale, self.rate_ascent * scale

    def multiplier_terms(self) -> tuple[float, float]:
        """Return l, the damping of M relative to the rate of A, and w, the weight of M beside A^-1."""
        if self.metric == "flat" or self.multiplier == "plain":
            return 0.0, 1.0
        a, b, l = self.rate_matrix, self.rate_ascent, MULTIPLIER_DAMPING  # noqa: E741 - the letter above
        return l, min(1.0, a * (1.0 - 2.0 * l) / (2.0 * (b + self.damping * a)))

    def multiplier_norm(self, state: MinibatchState) -> float:
        """Return |B|, at most 1; nan before the first minibatch."""
        return float(state.matrices[1].norm()) if len(state.matrices) > 1 else math.nan

    def cost(self, problem: Problem) -> Cost:
        model = Model(self, problem, self.validation)
        D, b = model.D, min(self.batch_size, model.n)
        cubes, squares, products, width = 25.0 / 3.0, 1.0, 6.0, 1.0  # flat: A leaves the cone at most steps
        if self.metric == "affine":
            cubes, products = 2.0 + 1.0 / 3.0 + LIFTS, 8.0
            squares = 1.0 + LIFTS * num_squarings(self.matrix_rates(model)[0])
            width = 8.0 / model.like.element_size()
        algebra = cubes * factorisation_flops(D) + 2.0 * squares * D**3 + products * b * D**2
        algebra += b * feature_flops(model)  # the ascent computes features once more
        return step_cost(self, model, self.batch_size, algebra=algebra, matrices=6.0 * width, calls=76.0)


class MinimaxLearner(Learner):
    """One minibatch of MINIMAX: the descent of theta and A, then the ascent of B on other rows."""

    A: Tensor  # [D, D] variable that approximates F / n
    B: Tensor  # [D, D] multiplier, |B| <= 1
    ascent_averages: tuple[Tensor, ...]  # the optimiser's averages of B, in the flat metric
    A_minus_F: Tensor  # [D, D] A - F / n, estimated by the minibatch of theta
    A_inverse: Tensor  # [D, D]
    A_logdet: Number
    A_norm: Number
    s2_before: Number  # the noise variance at that minibatch

    def __init__(self, method: Minimax, model: Model, state: MinibatchState) -> None:
        self.flat, self.refresh, self.mu_growth = method.metric == "flat", method.refresh, method.mu_growth
        flat_rates: tuple[float, float] = method.rate_matrix, method.rate_ascent
        self.a, self.b = flat_rates if self.flat else method.matrix_rates(model)
        self.kappa, self.mu, self.solved = method.damping, method.mu, method.head == "solve" and not self.flat
        relative_damping, self.weight = method.multiplier_terms()
        self.multiplier_damping = relative_damping * self.a
        self.matrix_dtype = model.like.dtype if self.flat else torch.float64
        self.ascent_rows = MinibatchRows(method.seed, model.n, method.batch_size, "ascent", model.rows_device)
        self.defers_reads = not self.flat  # A leaves the cone at almost every step, which has to be known
        super().__init__(method, model, state, method.batch_size)

    def begin(self, state: MinibatchState) -> Parameters:
        model = self.model
        if state.matrices:
            self.A, self.B, *averages = (matrix.clone() for matrix in state.matrices)
            theta, w, self.ascent_averages = state.theta, state.w, tuple(averages)
        else:
            theta = model.matched(state.theta)
            exact = exact_likelihood(model, theta)
            self.A, w = gram_per_row(model, exact).to(self.matrix_dtype), exact.w
        parameters = Parameters(model, w, theta, self.A.flatten() if self.flat else None)
        if self.flat:
            self.A = parameters.extra.view(model.D, model.D)
        self._project_and_invert(parameters)
        if not state.matrices:
            self.B = project_to_unit_ball(self.A_inverse * (-self.A_norm / self.mu))
            count = self.optimiser.averages if self.flat else 0
            self.ascent_averages = tuple(torch.zeros_like(self.B) for _ in range(count))
        return parameters

    def matrices(self) -> tuple[Tensor, ...]:
        return (self.A.clone(), self.B.clone(), *(average.clone() for average in self.ascent_averages))

    def indices(self, t: int) -> tuple[Tensor, ...]:
        return self.rows(t), self.ascent_rows(t)

    def moved(self) -> tuple[Tensor, ...]:
        return (*super().moved(), self.A, self.B, *self.ascent_averages)

    def carried(self) -> tuple[str, ...]:
        return "A_inverse", "A_logdet", "A_norm"

    def constants(self, t: int) -> tuple[float, ...]:
        return (self._mu(t),)

    def gap(self, exact: ExactLikelihood) -> tuple[float, float]:
        F = gram_per_row(self.model, exact).to(self.matrix_dtype)
        distance, size, size_A = torch.stack([(self.A - F).norm(), F.norm(), self.A.norm()]).tolist()
        return distance / size, self.mu * distance / size_A

    def divergence(self, exact: ExactLikelihood | None = None) -> str:
        if message := super().divergence(exact):
            return message
        if not bool(torch.isfinite(self.B).all()):
            return "B has entries that are not finite. Lower rate_ascent or the rate."
        gap = self.gap(exact)[0] if exact and not self.flat else 0.0  # the paper's A may be anywhere: theta follows B
        return self._distance_sentence(gap) if gap >= MAX_GAP else ""

    def remark(self, gap: float) -> str:
        return self._distance_sentence(gap) if gap > LARGE_GAP else ""

    def _distance_sentence(self, gap: float) -> str:
        far = f"A differs from F by {gap:.2g} times |F| at"
        if self.flat:
            return f"{far} mu {self.mu:g}, as the paper's form allows. Raise mu to draw A towards F."
        return (
            f"{far} damping {self.kappa:g} and {self.rows.size:,} rows per minibatch, and no longer represents it. "
            "Raise damping (2 by default) or batch_size, or lower rate_matrix and rate_ascent."
        )

    def before(self, t: int) -> None:
        if self.refreshes(t):
            exact = exact_likelihood(self.model, self.parameters.theta)
            self.A.copy_(gram_per_row(self.model, exact).to(self.matrix_dtype))
            self._project_and_invert(self.parameters)

    def gradient(self, index: Tensor, t: int) -> Number:
        """Line 1, for theta (and for A in the flat metric)."""
        model, parameters, mu = self.model, self.parameters, self._mu(t)
        X, y = model.rows(index)
        tape, A_norm = model.features(parameters.parts, X), self.A_norm
        self.A_minus_F, self.s2_before = self._estimate_difference(tape.Phi.to(self.matrix_dtype)), parameters.s2()

        fit = parameters.write_gradient(tape, y, *self.inverse_of_F(t))
        if self.solved:
            self._solve_w(tape.Phi.to(self.matrix_dtype))
        penalty = mu * number(torch.dot(self.B.flatten(), self.A_minus_F.flatten())) / A_norm
        if self.flat:
            A_gradient = self.A_inverse + self.B * (mu / A_norm) - self.A * (penalty / A_norm**2)
            torch.mul(A_gradient, 0.5 / model.n, out=parameters.g_extra.view_as(self.A))
        ridge = number(torch.dot(parameters.w, parameters.w)) + (model.n - model.D) * parameters.log_s2()
        logdet = self.A_logdet + model.D * math.log(model.n)
        return fit / len(y) + (ridge + logdet + penalty) / model.n

    def after(self, t: int, *indices: Tensor) -> None:
        """Line 1 for A (in the affine metric) with its projection, then line 2 for B on other rows."""
        if self.flat:
            self._project_and_invert(self.parameters)
        else:
            self._descend_A(self._mu(t))
        X, _ = self.model.rows(indices[0])
        Phi, A_norm = self.model.features(self.parameters.parts, X).Phi, self.A_norm
        if self.flat:
            B_gradient = self._estimate_difference(Phi).mul_(-0.5 * self._mu(t) / (self.model.n * A_norm))
            self.optimiser.move(self.B, B_gradient, self.ascent_averages, t, self.b)
        else:
            self._ascend_B(Phi.to(self.matrix_dtype), A_norm / self._mu(t))
        project_to_unit_ball(self.B)

    def inverse_of_F(self, t: int) -> tuple[Tensor, Number]:
        """Return a matrix [D, D] and a factor, whose product stands for F^-1 in the gradient of minibatch t."""
        scale = -self._mu(t) / (self.model.n * self.A_norm)
        if self.weight == 1.0:
            return self.B, scale
        return plus_multiple(self.A_inverse * ((1.0 - self.weight) / self.model.n), self.B, self.weight * scale), 1.0

    def _project_and_invert(self, parameters: Parameters) -> None:
        """Project A onto A >= s2 I, then update its inverse, log determinant and norm."""
        project_above(self.A, parameters.s2() / self.model.n)
        self.A_inverse, self.A_logdet = inverse_and_logdet(self.A, "A")
        self.A_norm = number(self.A.norm())

    def _solve_w(self, Phi: Tensor) -> None:
        """Move w by recursive least squares; its gradient, which the optimiser would follow, becomes zero.

        Phi: features [b, D] of the minibatch. Cost: 2 D^2 + 2 b D flops.
        """
        parameters = self.parameters
        descent = parameters.g_w.to(self.matrix_dtype) * -parameters.s2()  # [D]
        direction = torch.mv(self.A_inverse, descent)
        decrease, curvature = torch.dot(descent, direction), torch.mv(Phi, direction).square().mean()
        length = (decrease / curvature.clamp_min(torch.finfo(curvature.dtype).tiny)).clamp_max(self.a)
        parameters.w.add_((direction * length).to(parameters.w.dtype))
        parameters.g_w.zero_()

    def _descend_A(self, mu: float) -> None:
        """Move A by its affine step and by the change of the noise.

        If A >= s2 I and a (1 + kappa) <= 1, the step gives A >= (1 - a) s2 I. The eigenvalues of features that hardly
        vary all settle near s2.
        """
        s2 = self.parameters.s2() / self.model.n
        half_mean = self._half_harmonic_mean(mu / self.A_norm)
        self.A.mul_(1.0 + self.a).sub_(half_mean, alpha=2.0 * self.a)
        self.A.sub_(self.A_minus_F, alpha=self.a * self.kappa)
        self.A.diagonal().add_(s2 - self.s2_before / self.model.n)
        self.A_inverse, self.A_logdet = lift_above(self.A, s2, self.a)
        self.A_norm = number(self.A.norm())

    def _ascend_B(self, Phi: Tensor, scale: Number) -> None:
        """Move B by its affine step on the features of other rows, and by its damping; scale is |A| / mu."""
        G, inverse = torch.mm(Phi, self.A_inverse), self.A_inverse  # [b, D], [D, D]
        rate, damping = self.b * scale, self.multiplier_damping
        if damping:
            self.B.mul_(1.0 - damping)
        add_product(add_multiple(self.B, inverse, rate - damping * scale), G.T, G, -rate / len(Phi))
        add_product(self.B, inverse, inverse, -rate * self.parameters.s2() / self.model.n)

    def _mu(self, t: int) -> float:
        return float(self.mu * self.mu_growth ** (t // self.rows.per_epoch))

    def _half_harmonic_mean(self, scale: Number) -> Tensor:
        """(A^-1 + M)^-1 with M = -scale B: half the harmonic mean of A and M^-1."""
        L, info = factor(plus_multiple(self.A_inverse, self.B, -scale).mT)
        return self._restricted_harmonic_mean(scale) if happens(info) else torch.cholesky_inverse(L).mT

    def _restricted_harmonic_mean(self, scale: Number) -> Tensor:
        """The same when noise has made A^-1 + M indefinite: M, and with it B, is first restricted from below."""
        if not bool(torch.isfinite(self.B).all()):
            raise NotPositiveDefinite(
                "A^-1 + M", len(self.B), 0.0, "It has entries that are not finite: lower the rates."
            )
        L = cholesky(self.A, "A").L
        relative, Q = torch.linalg.eigh(L.T @ self.B @ L * -scale)  # eigenvalues of A^1/2 M A^1/2
        restricted, W = relative.clamp_min(MIN_RELATIVE_M), torch.linalg.solve_triangular(L.T, Q, upper=True)
        self.B.addmm_(W * ((relative - restricted) / scale), W.T)
        V = L @ Q
        return (V / (1.0 + restricted)) @ V.T

    def _estimate_difference(self, Phi: Tensor) -> Tensor:
        """A - F / n, with F estimated from the features of one minibatch."""
        difference = torch.addmm(self.A, Phi.T, Phi, alpha=-1.0 / len(Phi))
        difference.diagonal().sub_(self.parameters.s2() / self.model.n)
        return difference


def gram_per_row(model: Model, exact: ExactLikelihood) -> Tensor:
    """Return F / n [D, D] in float64."""
    F = exact.gram / model.n
    F.diagonal().add_(exact.s2 / model.n)
    return F
