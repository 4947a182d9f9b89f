"""Initial values for learning the hyperparameters of a finite basis: lengthscales that are longer or shorter.

A descent does not change the choice of functions. It can make a lengthscale longer, but hardly shorter, because the
functions that a shorter one needs are not among those chosen for a longer one. Initial values are therefore judged with
the functions that are chosen for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from ...errors import NotPositiveDefinite
from ...features.basis_choices import Choice
from ...kernels.theta.restrictions import projected
from ...problem import Kernel, Problem
from .descents import Learner
from .evidence import regress

SHORTER = 4.0  # a shorter lengthscale is divided by this


def longer_lengthscales(kernel: Kernel, theta: Tensor, count: int) -> list[Tensor]:
    """Return `count` copies of theta with lengthscales times 1, 2, 4, ...; one copy if the kernel has none."""
    entries = _lengthscales(kernel)
    copies = [theta.clone() for _ in range(count if entries else 1)]
    for k, copy in enumerate(copies):
        copy[entries] += k * math.log(2.0)
    return [projected(kernel, copy) for copy in copies]


def shorter_starts(learner: Learner, problem: Problem, choose: Callable[[Tensor], Choice]) -> list[Tensor]:
    """Return copies of theta in which one lengthscale is a quarter of what it was, the most likely copy first.

    Parameters
    ----------
    problem : Problem
        The rows on which the copies are judged, and theta [P].
    choose : callable
        Chooses basis functions at a theta.

    Notes
    -----
    The cost is one evaluation of the likelihood per lengthscale, without gradient: n p^2 flops.
    """
    copies, values = [], []
    for entry in _lengthscales(problem.kernel):
        copy = problem.theta.clone()
        copy[entry] -= math.log(SHORTER)
        copy = projected(problem.kernel, copy)
        try:
            values.append(regress(choose(copy), copy, problem.train, learner.map).value)
        except (NotPositiveDefinite, IndexError):  # as in a descent
            continue
        copies.append(copy)
    return [copies[k] for k in sorted(range(len(copies)), key=lambda k: values[k])]


def _lengthscales(kernel: Kernel) -> list[int]:
    """Where the logarithms of the lengthscales are in theta."""
    return [i for i, name in enumerate(kernel.names) if "lengthscale" in name]
