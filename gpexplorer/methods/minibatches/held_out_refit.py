"""Magnitude and noise chosen on rows set aside, for features that were learned on the other rows.

A network can fit its training rows closely, and the marginal likelihood of the same rows then has its maximum at too
small a noise. The rows set aside were not used to learn the features, so their predictive density shows it. With
Phi = e^m Z, the mean depends on rho = s2 / e^2m alone, and s2 has a closed form:

    Z'Z = Q diag(lambda) Q',   c = Q'Z'y,   P = Z_v Q
    mean(rho) = P (c / (lambda + rho)),   var = s2 h(rho),   h = 1 + P^2 (1 / (lambda + rho))
    NLPD(rho, s2) = mean [log(2 pi s2 h) + r^2 / (s2 h)] / 2,   r = y_v - mean(rho)
    s2 = S / (v - 4),   S = sum r^2 / h

If few rows are set aside, each part of the rows is set aside in turn, and the same features are learned again without
it. The sums then run over all parts k, with rho_k = g s2_k, where s2_k is the noise learned without part k: only the
factor g and the noise are chosen.

S / v gives the least NLPD. But s2 is itself an estimate: with the prior 1 / s2, and two values fitted, a new target has
a Student distribution with v - 2 degrees of freedom, whose variance is that of s2 = S / (v - 4). One eigendecomposition
costs D^3, and each value of g then 4 v D flops.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from ...linalg.blocks import row_blocks
from .exact_likelihood import ExactLikelihood
from .model import Model

MIN_ROWS = 10  # with fewer rows set aside in all, magnitude and noise keep their values
STUDENT = 4  # two values are fitted to the rows set aside; two more make S / (v - 4) the variance of a new target
NUM_RATIOS = 141  # values of g tried
RATIO_RANGE = (1e-12, 1e2)  # of rho, relative to the largest eigenvalue of Z'Z
STANDARD_ERRORS = 2.0  # an improvement of the NLPD by more than this is no sampling error
ROUNDING = 1e-9  # nat per row: a smaller gain is no gain


class SetAside(NamedTuple):
    """What the predictive density of some rows needs of features that were learned without them."""

    lam: Tensor  # [D] eigenvalues of Phi'Phi at the learned magnitude
    c: Tensor  # [D] Q'Phi'y
    P: Tensor  # [v, D] features of the rows set aside, times Q
    y: Tensor  # [v] their targets
    s2: float  # learned noise variance
    Q: Tensor  # [D, D] eigenvectors of Phi'Phi

    def residuals(self, g: float) -> tuple[Tensor, Tensor]:
        """Return r and h [v] at rho = g s2."""
        t = self.lam + g * self.s2  # [D]
        return self.y - self.P @ (self.c / t), 1.0 + self.P.square() @ t.reciprocal()


class Refit(NamedTuple):
    """Magnitude and noise by the rows set aside, beside those of the likelihood."""

    theta: Tensor  # [p] with the chosen magnitude and noise
    nlpd_before: float  # per row set aside, at the theta of the likelihood
    nlpd_after: float
    rows: int  # set aside
    is_significant: bool  # the NLPD improved by more than two standard errors of the improvement

    def sentence(self, s2_before: float) -> str:
        """Say how the rows set aside contradict the likelihood, whose noise variance was `s2_before`."""
        noise = math.sqrt(s2_before), math.exp(float(self.theta[-1]))
        return (
            f"The {self.rows:,} rows set aside contradict the magnitude and noise of the likelihood: values that fit "
            f"these rows lower their NLPD from {self.nlpd_before:.3g} to {self.nlpd_after:.3g} (noise sd "
            f"{noise[0]:.3g} becomes {noise[1]:.3g})."
        )


def rows_set_aside(model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood) -> SetAside:
    """Prepare the predictive density of the rows that this model sets aside.

    Parameters
    ----------
    model : Model
        The feature map and the rows.
    theta : Tensor [p]
        Parameters of the kernel, learned without the rows set aside.
    exact : ExactLikelihood
        The exact likelihood at this theta.
    """
    X, y = model.validation()
    lam, Q = torch.linalg.eigh(exact.gram)  # [D], [D, D]
    c = (lam + exact.s2) * (Q.T @ exact.w.double())  # [D] Q'Phi'y, since F w = Phi'y
    P = model.features(model.parts(theta), X).Phi.double() @ Q
    return SetAside(lam.clamp_min(0.0), c, P, y.double(), exact.s2, Q)


def refit_magnitude_and_noise(
    parts: Sequence[SetAside], theta: Float[Tensor, " p"], noise_floor: float, largest: float
) -> Refit | None:
    """Choose magnitude and noise by the predictive density of the rows set aside.

    Parameters
    ----------
    parts : sequence of SetAside
        The rows set aside, each part with features that were learned without it; the first part is that of theta.
    theta : Tensor [p]
        Parameters of the kernel.
    noise_floor : float
        Smallest noise standard deviation.
    largest : float
        Bound of all parameters.

    Returns
    -------
    The refit; None if fewer than 10 rows are set aside.
    """
    rows = sum(len(part.y) for part in parts)
    if rows < MIN_ROWS:
        return None

    def density(g: float, s2: float | None = None) -> tuple[Tensor, float]:
        """NLPD of each row [v], and the noise variance: by the closed form unless it is given."""
        residuals = [part.residuals(g) for part in parts]
        r, h = (torch.cat(values) for values in zip(*residuals, strict=True))  # [v], [v]
        if s2 is None:
            s2 = max(float((r.square() / h).sum()) / (rows - STUDENT), noise_floor**2)
        return 0.5 * (math.log(2.0 * math.pi * s2) + h.log() + r.square() / (s2 * h)), s2

    s2_learned = parts[0].s2
    largest_ratio = max(max(float(part.lam[-1]), part.s2) / part.s2 for part in parts)
    low, high = (math.log(ratio * largest_ratio) for ratio in RATIO_RANGE)
    losses_before, _ = density(1.0, s2_learned)
    ratios = torch.linspace(low, high, NUM_RATIOS, dtype=torch.float64).exp().tolist()
    g = min(ratios, key=lambda ratio: float(density(ratio)[0].mean()))
    losses_after, s2 = density(g)
    gain = losses_before - losses_after
    is_significant = float(gain.mean()) > max(STANDARD_ERRORS * float(gain.std()) / math.sqrt(rows), ROUNDING)
    chosen = theta.clone()
    chosen[-2] += 0.5 * math.log(s2 / (g * s2_learned))
    chosen[-1] = 0.5 * math.log(s2)
    return Refit(
        theta=chosen.clamp(-largest, largest),
        nlpd_before=float(losses_before.mean()),
        nlpd_after=float(losses_after.mean()),
        rows=rows,
        is_significant=is_significant,
    )


def band_factor(model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood) -> float:
    """Return the factor of magnitude and noise variance that fits the bands to the rows set aside; 1 if they are few.

    One value is fitted, so that the factor is S / (s2 (v - 3)). The mean does not change. Cost: v D^2 flops.
    """
    v = len(model.validation_rows)
    if v < MIN_ROWS:
        return 1.0
    X, y = model.validation()
    Phi = model.features(model.parts(theta), X).Phi.double()  # [v, D]
    r = y.double() - Phi @ exact.w.double()
    h = 1.0 + torch.linalg.solve_triangular(exact.L, Phi.T, upper=False).square().sum(0)
    return float((r.square() / h).sum()) / (exact.s2 * (v - STUDENT + 1))


def validation_error(model: Model, theta: Tensor, exact: ExactLikelihood) -> float:
    """Return the root mean squared error of the posterior mean on the validation rows; nan if there are none."""
    if not len(model.validation_rows):
        return math.nan
    X, y = model.validation()
    r = model.features(model.parts(theta), X).Phi @ exact.w - y
    return float(r.square().mean().sqrt())


def ridge_error(model: Model) -> float:
    """Return the root mean squared error on the validation rows of ridge regression on the other rows.

    The penalty of a coefficient is that of one more row; the constant has none.
    """
    width = model.problem.train.d + 1
    A, c = (model.like.new_zeros(width, k, dtype=torch.float64) for k in (width, 1))
    A[:-1, :-1].diagonal().add_(1.0)
    for block in row_blocks(model.n, 8 * width, model.like):
        X, y = model.rows(block)
        X = with_constant(X)
        A.addmm_(X.T, X)
        c.addmm_(X.T, y.double()[:, None])
    X, y = model.validation()
    coefficients = torch.linalg.lstsq(A.cpu(), c.cpu(), driver="gelsd").solution[:, 0].to(y.device)
    return float((with_constant(X) @ coefficients - y).square().mean().sqrt())


def with_constant(X: Tensor) -> Tensor:
    """Return X in float64 with a column of ones at its end."""
    return torch.cat([X.double(), X.new_ones(len(X), 1, dtype=torch.float64)], 1)
