"""Have the chains mixed, and how many independent draws are they worth? ArviZ's definitions.

Rank-normalised split R-hat, the larger of the bulk's and the folded draws': Vehtari, Gelman, Simpson, Carpenter and
Buerkner (2021), eqs 3, 4 and 14; bulk effective sample size: eqs 10 to 13, with Geyer's initial monotone sequence.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtri

from ....linalg.ranks import ranks

Draws = np.ndarray  # [chains, draws]


def split(draws: Draws) -> Draws:
    """Each chain's halves as chains of their own; the middle draw of an odd number is dropped."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def normalised(draws: Draws) -> Draws:
    """Normal scores of the ranks over all chains."""
    return ndtri((ranks(draws) - 0.375) / (draws.size + 0.25))


def plain_rhat(draws: Draws) -> float:
    """sqrt(((N - 1) W / N + B / N) / W)."""
    n = draws.shape[1]
    within, between = draws.var(1, ddof=1).mean(), draws.mean(1).var(ddof=1)
    return float(np.sqrt(((n - 1) / n * within + between) / within)) if within > 0 else float("nan")


def rhat(draws: Draws) -> float:
    """Rank-normalised split R-hat; nan for fewer than four draws a chain."""
    if draws.shape[1] < 4 or not np.isfinite(draws).all():
        return float("nan")
    folded = np.abs(draws - np.median(draws))
    return max(plain_rhat(normalised(split(part))) for part in (draws, folded))


def autocovariance(draws: Draws) -> Draws:
    """Biased autocovariance of each chain at every lag, by FFT."""
    n = draws.shape[1]
    size = 2 ** int(np.ceil(np.log2(2 * n)))
    spectrum = np.fft.rfft(draws - draws.mean(1, keepdims=True), size, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, size, axis=1)[:, :n] / n


def plain_ess(draws: Draws) -> float:
    """Effective number of draws of all chains together."""
    chains, n = draws.shape
    covariance = autocovariance(draws)
    within = covariance[:, 0].mean() * n / (n - 1.0)
    var_plus = within * (n - 1.0) / n + (draws.mean(1).var(ddof=1) if chains > 1 else 0.0)
    if var_plus <= 0.0:
        return float("nan")
    rho = 1.0 - (within - covariance.mean(0)) / var_plus
    rho[0] = 1.0
    total = chains * n
    last, kept = _monotone(rho)
    tau = -1.0 + 2.0 * kept[: last + 1].sum() + kept[last + 1]
    return float(total / max(tau, 1.0 / np.log10(total)))


def _monotone(rho: np.ndarray) -> tuple[int, np.ndarray]:
    """Geyer's sequence: pairs of lags while their sum is positive, none above the one before."""
    n, kept, t = len(rho), np.zeros(len(rho)), 1
    kept[:2] = rho[:2]
    even, odd = rho[0], rho[1]
    while t < n - 3 and even + odd > 0.0:
        even, odd = rho[t + 1], rho[t + 2]
        if even + odd >= 0.0:
            kept[t + 1], kept[t + 2] = even, odd
        t += 2
    last = t - 2
    if even > 0.0:
        kept[last + 1] = even
    for k in range(1, last - 1, 2):
        if kept[k + 1] + kept[k + 2] > kept[k - 1] + kept[k]:
            kept[k + 1] = kept[k + 2] = 0.5 * (kept[k - 1] + kept[k])
    return last, kept


def bulk_ess(draws: Draws) -> float:
    """Bulk effective sample size; nan for fewer than four draws a chain."""
    if draws.shape[1] < 4 or not np.isfinite(draws).all():
        return float("nan")
    return plain_ess(normalised(split(draws)))
