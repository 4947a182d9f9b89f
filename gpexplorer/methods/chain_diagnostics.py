"""Convergence diagnostics of Markov chains: R-hat and the effective sample size, as ArviZ defines them.

Rank-normalised split R-hat, the larger one of the draws and of the folded draws:
    Vehtari, Gelman, Simpson, Carpenter and Bürkner (2021), eqs 3, 4 and 14.
Bulk effective sample size, with Geyer's initial monotone sequence:
    the same paper, eqs 10 to 13.
"""

from __future__ import annotations

import numpy as np

from ..linalg.ranks import ranks

Draws = np.ndarray  # [chains, draws]


def rhat(draws: Draws) -> float:
    """Return the rank-normalised split R-hat; nan if there are fewer than four draws per chain.

    A value near 1 means that the chains agree; above 1.01 they have not converged.
    """
    if draws.shape[1] < 4 or not np.isfinite(draws).all():
        return float("nan")
    folded = np.abs(draws - np.median(draws))
    return max(_plain_rhat(_normal_scores(_split(part))) for part in (draws, folded))


def bulk_ess(draws: Draws) -> float:
    """Return the bulk effective sample size: how many independent draws give the same precision of a mean.

    It is nan if there are fewer than four draws per chain.
    """
    if draws.shape[1] < 4 or not np.isfinite(draws).all():
        return float("nan")
    return _plain_ess(_normal_scores(_split(draws)))


def _split(draws: Draws) -> Draws:
    """The two halves of each chain as separate chains; the middle draw of an odd number is dropped."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _normal_scores(draws: Draws) -> Draws:
    """Normal scores of the ranks over all chains (eq 14)."""
    from scipy.special import ndtri

    return ndtri((ranks(draws) - 0.375) / (draws.size + 0.25))


def _plain_rhat(draws: Draws) -> float:
    """sqrt(((n - 1) / n W + B / n) / W), eqs 3 and 4; W is the variance within chains and B / n between them."""
    n = draws.shape[1]
    within, between = draws.var(1, ddof=1).mean(), draws.mean(1).var(ddof=1)
    return float(np.sqrt(((n - 1) / n * within + between) / within)) if within > 0 else float("nan")


def _autocovariance(draws: Draws) -> Draws:
    """Biased autocovariance of each chain at every lag, by FFT."""
    n = draws.shape[1]
    size = 2 ** int(np.ceil(np.log2(2 * n)))
    spectrum = np.fft.rfft(draws - draws.mean(1, keepdims=True), size, axis=1)
    return np.fft.irfft(np.abs(spectrum) ** 2, size, axis=1)[:, :n] / n


def _plain_ess(draws: Draws) -> float:
    """Effective number of draws of all chains together (eqs 10 to 13)."""
    chains, n = draws.shape
    covariance = _autocovariance(draws)
    within = covariance[:, 0].mean() * n / (n - 1.0)
    var_plus = within * (n - 1.0) / n + (draws.mean(1).var(ddof=1) if chains > 1 else 0.0)
    if var_plus <= 0.0:
        return float("nan")
    rho = 1.0 - (within - covariance.mean(0)) / var_plus  # eq 10
    rho[0] = 1.0
    total = chains * n
    tau = -1.0 + 2.0 * _monotone_sum(rho)  # eq 13
    return float(total / max(tau, 1.0 / np.log10(total)))


def _monotone_sum(rho: np.ndarray) -> float:
    """The sum of Geyer's initial monotone sequence: pairs of lags while they are positive, none above the last one.

    Of the pair where the sequence ends, the first lag is counted by half, unless it is negative.
    """
    pairs = rho[: 2 * max((len(rho) - 1) // 2, 1)].reshape(-1, 2).sum(1)
    ends = np.flatnonzero(pairs <= 0.0)
    last = int(ends[0]) if len(ends) else len(pairs) - 1
    half = 0.5 * (rho[2 * last] if pairs[last] >= 0.0 else max(rho[2 * last], 0.0))
    return float(np.minimum.accumulate(pairs[:last]).sum() + half)
