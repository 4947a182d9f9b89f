"""Hyperparameters by maximum likelihood of an exact GP on a random subset: where methods for many rows begin."""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..errors import NotPositiveDefinite
from ..linalg.randomness import generator, some
from ..linalg.scipy_descent import Evaluated, descend
from ..objectives import evidence
from ..problem import Problem


class Learned(NamedTuple):
    """The best theta so far, and its negative log marginal likelihood on the subset."""

    theta: Tensor  # [p]
    value: float


def learn_on_subset(problem: Problem, seed: int, size: int, evaluations: int) -> Generator[Learned, None, None]:
    """One evaluation at a time, size^3 flops each; the same seed draws the same rows."""
    train, start = problem.train, problem.theta
    rows = train.rows(some(len(train), size, generator(seed, "subset")).to(train.y.device))

    def evaluate(point: np.ndarray) -> Evaluated | None:
        try:
            value, gradient = evidence(problem.kernel, torch.as_tensor(point).to(start), rows)
        except NotPositiveDefinite:
            return None
        return Evaluated(value, gradient.double().cpu().numpy(), None)

    found = descend(evaluate, start.double().cpu().numpy(), "L-BFGS-B", evaluations)
    try:
        for best in found:
            yield Learned(torch.as_tensor(best.point).to(start), best.value)
    finally:
        found.close()
