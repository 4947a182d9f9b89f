"""The continuous phase: hyperparameters by SciPy's nonlinear conjugate gradients or L-BFGS, inducing points fixed."""

from __future__ import annotations

from collections.abc import Generator

import numpy as np
import torch
from torch import Tensor

from ...errors import NotPositiveDefinite
from ...linalg.scipy_descent import Evaluated
from ...linalg.scipy_descent import descend as descent
from ...objectives import Terms, nystrom_gradient
from ...problem import Dataset, Kernel


def descend(
    kernel: Kernel, theta: Tensor, train: Dataset, Z: object, objective: str, optimiser: str, limit: int
) -> Generator[tuple[Tensor, Terms, float], None, None]:
    """Yield (best theta so far, its terms, its jitter) after each of at most `limit` evaluations.

    The best objective never rises. A theta at which K_mm is not positive definite counts as infinitely bad.
    """

    def evaluate(point: np.ndarray) -> Evaluated | None:
        try:
            now, gradient = nystrom_gradient(kernel, torch.as_tensor(point).to(theta), train, Z, objective)
        except NotPositiveDefinite:
            return None
        return Evaluated(now.terms.total(objective), gradient.double().cpu().numpy(), (now.terms, now.jitter))

    found = descent(evaluate, theta.double().cpu().numpy(), optimiser, limit)
    try:
        for best in found:
            yield torch.as_tensor(best.point).to(theta), *(best.extra or (Terms(np.nan, np.nan, np.nan), 0.0))
    finally:
        found.close()
