"""Predictive distributions of regression on a finite basis, in the given basis and in the orthogonal one.

Both follow eq 2 of Evans and Nair (2018) for the approximate kernel k(x, z) = phi(x)'W phi(z), without a correction for
the prior variance k(x, x) - phi(x)'phi(x) that the functions leave out: the likelihood has no such term either, so that
the learned noise variance already contains what the functions leave out on the training rows. Outside the grid the
functions decay to 0, no training row tells anything, and the whole prior variance is added.
"""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from ...features.basis_choices import Choice, ChosenFeatures
from ...kernels.row_scaled import unscaled_kernel
from ...kernels.theta.restrictions import noise_limits
from ...linalg.blocks import Map, sum_of_squares
from ...linalg.gaussian import LinearGaussian
from ...objectives import noise_variance
from ...posteriors import DiagonalAndDirection, FeaturePosterior, OutsideGrid, Posterior, PrecisionFactor
from ...problem import Dataset, Problem
from .evidence import gram_products
from .orthogonal_basis import (
    OrthogonalBasis,
    coefficient_posterior,
    most_likely_noise,
    orthogonalise,
    orthogonalise_rows,
)

MAX_CACHED = 4  # orthogonal bases that are kept per data set
_cache: WeakKeyDictionary[Dataset, OrderedDict[bytes, OrthogonalBasis]] = WeakKeyDictionary()
_lock = Lock()


def orthogonal_basis(problem: Problem, choice: Choice, theta: Tensor, mapper: Map = map) -> OrthogonalBasis:
    """Return the basis that is orthogonal on the training rows (section 5).

    Notes
    -----
    The cost is n p^2 flops and p^3 once, or n^2 p and n^3 if there are fewer rows than functions. The basis does not
    depend on the noise. The last few bases of a data set are cached, because a page draws and scores many steps
    between which only weights and noise change.
    """
    key = choice.fingerprint(theta)
    with _lock:
        cached = _cache.setdefault(problem.train, OrderedDict())
        if key in cached:
            cached.move_to_end(key)
            return cached[key]
    basis = _computed_basis(problem.train, choice, theta, mapper)
    with _lock:
        cached[key] = basis
        while len(cached) > MAX_CACHED:
            cached.popitem(last=False)
    return basis


def _computed_basis(train: Dataset, choice: Choice, theta: Tensor, mapper: Map) -> OrthogonalBasis:
    y, eps = train.y, torch.finfo(train.y.dtype).eps
    if len(y) < len(choice):
        with torch.no_grad():
            return orthogonalise_rows(choice(theta)(train.X).T, y, eps)
    A, c = gram_products(choice, theta, train, mapper)
    return orthogonalise(A, c, sum_of_squares(y), len(y), eps)


def refitted_posterior(problem: Problem, choice: Choice, theta: Tensor, mapper: Map = map) -> tuple[Posterior, float]:
    """Return predictions at a theta that was not learned with these functions, and the noise variance they need.

    The noise variance that another likelihood learned would make the predictions far too certain, because it does not
    contain what these functions leave out. It is replaced by the most likely one, given all rows and the functions.
    """
    basis = orthogonal_basis(problem, choice, theta, mapper)
    z = basis.e.new_zeros(1, len(basis.e) + 1)  # w = 1
    limits = noise_limits(problem.kernel, theta)
    z[0, -1] = most_likely_noise(basis, limits)
    if limits is not None:
        z[0, -1] = z[0, -1].clamp(2.0 * limits.low, 2.0 * limits.high)
    mean, var = coefficient_posterior(basis, z)
    b, noise = DiagonalAndDirection(mean[0], var[0], torch.zeros_like(mean[0])), float(z[0, -1].exp())
    return orthogonal_posterior(problem, choice, theta, basis.V, b).changed(noise_variance=noise), noise


def orthogonal_posterior(
    problem: Problem, choice: Choice, theta: Tensor, V: Tensor, coefficients: DiagonalAndDirection, unseen: float = 1.0
) -> FeaturePosterior:
    """Return the predictive distribution of f(x) = psi(x)'b.

    Parameters
    ----------
    problem, choice, theta : Problem, Choice, Tensor
        The rows and the kernel, the p basis functions, and the hyperparameters [P].
    V : tensor [p, r]
        psi(x) = V'phi(x).
    coefficients : DiagonalAndDirection
        The distribution of b.
    unseen : float
        Prior variance w of the weights of what V leaves out, of which the training rows tell nothing. There are such
        directions where functions outnumber rows, or rows repeat.

    Notes
    -----
    A prediction costs O(p r) per row.
    """
    like = problem.train.y
    parts = (coefficients.mean, coefficients.diagonal, coefficients.direction)
    b = DiagonalAndDirection(*(part.to(like) for part in parts))
    features = ChosenFeatures(choice, theta)
    outside = OutsideGrid(unscaled_kernel(problem.kernel), theta, choice.outside)
    return FeaturePosterior(features, b, noise_variance(theta), V.to(like), outside, unseen)


def regression_posterior(
    problem: Problem, choice: Choice, theta: Tensor, regression: LinearGaussian
) -> FeaturePosterior:
    """Return the predictive distribution of f(x) = phi(x)'w with w ~ N(A^-1 c, s2 A^-1) (eq 2). O(p^2) per row."""
    weights = PrecisionFactor(regression.weights, regression.L, regression.s2)
    outside = OutsideGrid(unscaled_kernel(problem.kernel), theta, choice.outside)
    return FeaturePosterior(ChosenFeatures(choice, theta), weights, regression.s2, outside=outside)
