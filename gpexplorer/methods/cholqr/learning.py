"""The continuous phase: hyperparameters by SciPy's nonlinear conjugate gradients or L-BFGS, inducing points fixed."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from scipy import optimize
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.ask_tell import evaluations
from ...objectives import Nystrom, Terms, nystrom_gradient
from ...problem import Dataset, Kernel

SPAN = 12.0  # log-hyperparameters stay this close to where the phase began


def descend(
    kernel: Kernel, theta: Tensor, train: Dataset, Z: object, objective: str, optimiser: str, limit: int
) -> Generator[tuple[Tensor, Terms, float], None, None]:
    """Yield (best theta so far, its terms, its jitter) after each of at most `limit` evaluations.

    The best objective never rises. A theta at which K_mm is not positive definite counts as infinitely bad.
    """
    begin = theta.double().cpu().numpy()
    options = {"CG": {"gtol": 1e-6, "norm": np.inf}, "L-BFGS-B": {"maxfun": limit}}[optimiser]
    asked = evaluations(lambda fun: optimize.minimize(fun, begin, jac=True, method=optimiser, options=options))
    best, best_theta, found, answer = np.inf, theta.clone(), None, None
    try:
        for _ in range(limit):
            try:
                point = next(asked) if answer is None else asked.send(answer)
            except StopIteration:
                return
            here = _evaluate(kernel, point, begin, theta, train, Z, objective)
            if here is None:
                answer = (10.0 * abs(best) + 1e3, np.zeros_like(point))
                continue
            now, gradient = here
            value = now.terms.total(objective)
            if value < best:
                best, best_theta, found = value, torch.as_tensor(point).to(theta), (now.terms, now.jitter)
            answer = (value, gradient.double().cpu().numpy())
            if found is not None:
                yield best_theta.clone(), *found
    finally:
        asked.close()


def _evaluate(
    kernel: Kernel, point: np.ndarray, begin: np.ndarray, like: Tensor, train: Dataset, Z: object, objective: str
) -> tuple[Nystrom, Tensor] | None:
    """Terms and gradient at `point`, or None where the objective does not exist."""
    if not np.isfinite(point).all() or np.abs(point - begin).max() > SPAN:
        return None
    try:
        return nystrom_gradient(kernel, torch.as_tensor(point).to(like), train, Z, objective)
    except NotPositiveDefinite:
        return None
