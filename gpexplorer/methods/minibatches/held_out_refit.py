"""Magnitude and noise chosen on the rows set aside, for features that were learned on the other rows.

A network can fit its training rows closely, and the marginal likelihood of the same rows then has its maximum at too
small a noise. The rows set aside were not used to learn the features, so their predictive density shows it. With
Phi = e^m Z, the mean depends on rho = s2 / e^2m alone, and s2 has a closed form:

    Z'Z = Q diag(lambda) Q',   c = Q'Z'y,   P = Z_v Q
    mean(rho) = P (c / (lambda + rho)),   var = s2 h(rho),   h = 1 + P^2 (1 / (lambda + rho))
    NLPD(rho, s2) = mean [log(2 pi s2 h) + r^2 / (s2 h)] / 2,   r = y_v - mean(rho),   s2 = sum (r^2 / h) / (v - 2)

The sum over v rows is divided by v - 2, because two values are fitted to them; division by v gives the least NLPD. One
eigendecomposition costs D^3, and each value of rho then 4 v D flops.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from .exact_likelihood import ExactLikelihood
from .model import Model

MIN_ROWS = 20  # with fewer rows set aside, magnitude and noise keep their values
FITTED = 2  # values fitted to the rows set aside
NUM_RATIOS = 141  # values of rho tried
RATIO_RANGE = (1e-12, 1e2)  # of the largest eigenvalue of Z'Z
STANDARD_ERRORS = 2.0  # an improvement of the NLPD by more than this is no sampling error


class Refit(NamedTuple):
    """Magnitude and noise by the rows set aside, beside those of the likelihood."""

    theta: Tensor  # [p] with the chosen magnitude and noise
    nlpd_before: float  # per row set aside, at the theta of the likelihood
    nlpd_after: float
    rows: int  # set aside
    is_significant: bool  # the NLPD improved by more than two standard errors of the improvement


def refit_magnitude_and_noise(
    model: Model, theta: Float[Tensor, " p"], exact: ExactLikelihood, noise_floor: float, largest: float
) -> Refit | None:
    """Choose magnitude and noise by the predictive density of the rows set aside.

    Parameters
    ----------
    model : the feature map and the rows.
    theta : parameters of the kernel, learned without the rows set aside.
    exact : the exact likelihood at this theta.
    noise_floor : smallest noise standard deviation.
    largest : bound of all parameters.

    Returns
    -------
    The refit; None if fewer than 20 rows are set aside.
    """
    if len(model.held) < MIN_ROWS:
        return None
    X, y = model.validation()
    lam, Q = torch.linalg.eigh(exact.gram)  # [D], [D, D]; at the present magnitude, so that rho is s2 at first
    lam = lam.clamp_min(0.0)
    c = (lam + exact.s2) * (Q.T @ exact.w.double())  # [D] Q'Phi'y, since F w = Phi'y
    P, y = model.features(model.parts(theta), X).Phi.double() @ Q, y.double()  # [v, D], [v]

    def density(rho: float, s2: float | None = None) -> tuple[Tensor, float]:
        """NLPD of each row [v], and the noise variance: by the closed form unless it is given."""
        r, h = y - P @ (c / (lam + rho)), 1.0 + P.square() @ (1.0 / (lam + rho))  # [v], [v]
        if s2 is None:
            s2 = max(float((r.square() / h).sum()) / (len(y) - FITTED), noise_floor**2)
        return 0.5 * (math.log(2.0 * math.pi * s2) + h.log() + r.square() / (s2 * h)), s2

    low, high = (math.log(ratio * max(float(lam[-1]), exact.s2)) for ratio in RATIO_RANGE)
    ratios = torch.linspace(low, high, NUM_RATIOS, dtype=torch.float64).exp().tolist()
    before, _ = density(exact.s2, exact.s2)
    rho = min(ratios, key=lambda ratio: float(density(ratio)[0].mean()))
    after, s2 = density(rho)
    gain = before - after
    is_significant = float(gain.mean()) > STANDARD_ERRORS * float(gain.std()) / math.sqrt(len(y))
    chosen = theta.clone()
    chosen[-2] += 0.5 * math.log(s2 / rho)
    chosen[-1] = 0.5 * math.log(s2)
    return Refit(
        theta=chosen.clamp(-largest, largest),
        nlpd_before=float(before.mean()),
        nlpd_after=float(after.mean()),
        rows=len(y),
        is_significant=is_significant,
    )
