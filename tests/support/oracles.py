"""Slow dense formulas with which the fast code is compared."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def dense_terms(kernel, theta: Tensor, X: Tensor, y: Tensor, Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """E_D, E_C and E_V of the Nystrom model by n x n algebra (Cao et al. 2013, eqs 4-5), differentiable in theta."""
    K_nm, K_mm, K_nn = kernel(theta, X, Z), kernel(theta, Z, Z), kernel(theta, X, X)
    Khat, s2 = K_nm @ torch.linalg.solve(K_mm, K_nm.T), torch.exp(2.0 * theta[-1])
    C = Khat + s2 * torch.eye(len(X), dtype=X.dtype)
    return y @ torch.linalg.solve(C, y), torch.logdet(C), (K_nn.diagonal() - Khat.diagonal()).sum() / s2


def dense_objective(kernel, theta: Tensor, X: Tensor, y: Tensor, Z: Tensor, objective: str) -> Tensor:
    """VFE, tight VFE or PP."""
    fit, complexity, trace = dense_terms(kernel, theta, X, y, Z)
    if objective == "tight-vfe":
        K_nm, s2 = kernel(theta, X, Z), torch.exp(2.0 * theta[-1])
        D = kernel(theta, X, X).diagonal() - (K_nm.T * torch.linalg.solve(kernel(theta, Z, Z), K_nm.T)).sum(0)
        trace = torch.log(1.0 + D / s2).sum()
    return 0.5 * (fit + complexity + (0.0 if objective == "pp" else trace))


def exact_nlml(kernel, theta: Tensor, X: Tensor, y: Tensor) -> Tensor:
    """Negative log evidence of the full GP, less n/2 log 2 pi."""
    C = kernel(theta, X, X) + torch.exp(2.0 * theta[-1]) * torch.eye(len(X), dtype=X.dtype)
    return 0.5 * (y @ torch.linalg.solve(C, y) + torch.logdet(C))


def exact_prediction(kernel, theta: Tensor, X: Tensor, y: Tensor, Xs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of f under the full GP."""
    C = kernel(theta, X, X) + torch.exp(2.0 * theta[-1]) * torch.eye(len(X), dtype=X.dtype)
    K = kernel(theta, X, Xs)
    return K.T @ torch.linalg.solve(C, y), kernel.diag(theta, Xs) - (K * torch.linalg.solve(C, K)).sum(0)


def projected_prediction(kernel, theta: Tensor, X: Tensor, y: Tensor, Z: Tensor, Xs: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of f under projected process / VFE, by the textbook formula with Sigma."""
    s2 = torch.exp(2.0 * theta[-1])
    K_mn, K_mm, K_ms = kernel(theta, Z, X), kernel(theta, Z, Z), kernel(theta, Z, Xs)
    Sigma = K_mm + K_mn @ K_mn.T / s2
    mean = K_ms.T @ torch.linalg.solve(Sigma, K_mn @ y) / s2
    explained = (K_ms * torch.linalg.solve(K_mm, K_ms)).sum(0)
    return mean, kernel.diag(theta, Xs) - explained + (K_ms * torch.linalg.solve(Sigma, K_ms)).sum(0)


STATIONARY = ("se", "matern12", "matern32", "matern52", "rq")
SEPARABLE = ("matern12-product", "matern32-product", "matern52-product", "anova", "anova-matern52")
OTHERS = ("linear", "linear-ard", "periodic", "lp", "same")
FORMULAS = (*STATIONARY, *(f"{key}-ard" for key in STATIONARY), *OTHERS, *SEPARABLE)


def covariance(key: str, theta: list[float], x: list[float], z: list[float]) -> float:
    """One covariance, by the book, in plain floats; theta without the noise."""
    sd2 = math.exp(2 * theta[0])
    difference = [a - b for a, b in zip(x, z, strict=True)]

    def r2(scales: list[float]) -> float:
        scales = [math.exp(s) for s in scales]
        scales = scales * len(x) if len(scales) == 1 else scales
        return sum((q / s) ** 2 for q, s in zip(difference, scales, strict=True))

    def sines() -> float:
        return sum(math.sin(math.pi * q / math.exp(theta[2])) ** 2 for q in difference)

    if key in SEPARABLE:
        factor_key, w = ("matern52" if "matern52" in key else "se" if key == "anova" else key[:8]), math.exp(theta[-1])
        value = sd2
        for q, scale in enumerate(theta[1 : 1 + len(x)]):
            k = covariance(factor_key, [0.0, scale], [x[q]], [z[q]])
            value *= (1 + w * k) / (1 + w) if "anova" in key else k
        return value
    if key == "same":
        return sd2 if list(x) == list(z) else sd2 * math.exp(-0.5 * math.exp(-2.0 * theta[1]))
    base = key.removesuffix("-ard")
    if base == "linear":
        slopes = theta[1:] * len(x) if len(theta) == 2 else theta[1:]
        return sd2 + sum(math.exp(2 * v) * a * b for v, a, b in zip(slopes, x, z, strict=True))
    if base == "periodic":
        return sd2 * math.exp(-2 * sines() / math.exp(2 * theta[1]))
    if base == "lp":
        return sd2 * math.exp(-2 * sines() / math.exp(2 * theta[1]) - r2([theta[3]]) / 2)
    if base == "rq":
        alpha = math.exp(theta[-1])
        return sd2 * (1 + r2(theta[1:-1]) / (2 * alpha)) ** -alpha
    r = math.sqrt(r2(theta[1:]))
    return (
        sd2
        * {
            "se": lambda: math.exp(-r * r / 2),
            "matern12": lambda: math.exp(-r),
            "matern32": lambda: (1 + math.sqrt(3) * r) * math.exp(-math.sqrt(3) * r),
            "matern52": lambda: (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r),
        }[base]()
    )
