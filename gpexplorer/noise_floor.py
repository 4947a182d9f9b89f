"""The least noise that learning may reach, beside the function: less noise drowns in rounding.

On rows without noise the likelihood, and every error of rows left out, may have no minimum at a positive noise: the
noise tends to 0, and an objective with sf2 / s2 = 1e14 consists of rounding, as do the means of its GP. With

    s2 >= share mean k(x, x),   share = 2e-9 in float64 and 1e-4 in float32

the mean of an exact GP errs by less than .05 noise standard deviations. Optimisers know the bound
(`linalg.replayed_descent`); where it is reached, a derivative that wants less noise does not count.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from .linalg.deferred_reads import moved_together
from .objectives import rounding
from .problem import Problem, rows_like, take

PRIOR_ROWS = 100  # of which the prior variance beside the noise is the mean
RAISES = 5  # moves to the least noise; one is enough for a kernel with one sd
TOUCH = 1e-5  # difference of log noise sds that is rounding


class NoiseFloor:
    """The least noise that learning may reach, as a share of the prior standard deviation of the function.

    It is `least_share`, or that of the initial values where it is less. A descent that asks for less noise goes on
    along this bound (`linalg.replayed_descent`), unless restrictions tie or bound the noise: then such a point has no
    value. Noise that is fixed or known has no bound.

    Parameters
    ----------
    problem : Problem
        Its theta has the initial values.
    dtype : torch.dtype, optional
        The precision in which the objective is computed; that of theta by default.

    Attributes
    ----------
    begin : Tensor [p]
        The initial values, in the memory of the host.
    """

    def __init__(self, problem: Problem, dtype: torch.dtype | None = None) -> None:
        self.kernel: Any = problem.kernel
        self.entry, theta, host = len(problem.theta) - 1, problem.theta, torch.device("cpu")
        rows = torch.linspace(
            0, len(problem.train) - 1, min(len(problem.train), PRIOR_ROWS), dtype=torch.float64
        ).long()
        X: Any = take(problem.train.X, rows.to(problem.train.y.device))
        is_tensor = isinstance(X, Tensor)
        theta, X = moved_together([theta, X.to(theta.dtype)], host) if is_tensor else (theta.to(host), X)
        self.begin, self.X = theta, rows_like(X, theta)
        self.log_share = min(0.5 * math.log(least_share(dtype or theta.dtype)), float(theta[-1] - self._prior(theta)))
        restrictions = getattr(self.kernel, "restrictions", None)
        parameters = None if restrictions is None else restrictions.parameters
        self.is_learned = not getattr(self.kernel, "noise_is_known", False)
        self.is_learned &= parameters is None or not bool(parameters.is_fixed[-1])
        self.is_movable = self.is_learned and (parameters is None or not bool(parameters.is_restricted[-1]))

    def _prior(self, theta: Float[Tensor, " p"]) -> Tensor:
        """The logarithm of the prior standard deviation."""
        prior: Tensor = self.kernel.log_prior_sd(theta.cpu(), self.X)
        return prior

    def least(self, point: Float[Tensor, " q"]) -> tuple[float, Float[Tensor, " q"]]:
        """The least log noise sd at a point that begins with theta, and its gradient [q]."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf = point.detach().clone().requires_grad_(True)
            value = self._prior(leaf[: self.entry + 1])
            (gradient,) = torch.autograd.grad(value, leaf) if value.requires_grad else (torch.zeros_like(point),)
        return float(value.detach()) + self.log_share, gradient

    def admits(self, point: Float[Tensor, " q"]) -> bool:
        """Return whether the noise at a point is not less than the least, or not learned."""
        return not self.is_learned or self._distance(point) >= -TOUCH

    def _distance(self, point: Float[Tensor, " q"]) -> float:
        """The log noise sd less the least one."""
        point = point.cpu()
        return float(point[self.entry]) - float(self._prior(point[: self.entry + 1])) - self.log_share

    def normal(self, theta: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """The gradient [p] of the distance of the log noise sd from its least value."""
        normal = -self.least(theta)[1]
        normal[self.entry] = 1.0
        return normal

    def raised(self, theta: Float[Tensor, " p"], direction: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Return theta, moved along a direction to the least noise where it has less."""
        for _ in range(RAISES if self.is_learned else 0):
            lacking = -self._distance(theta)
            if lacking <= 0.0:
                break
            theta = theta + direction * (lacking / float(self.normal(theta) @ direction))
        return theta

    def along(self, theta: Float[Tensor, " p"], gradient: Float[Tensor, " p"]) -> Float[Tensor, " p"]:
        """Return the gradient with the noise following its bound, where theta is there and the noise would be less."""
        if not self.is_touched(theta) or float(gradient[self.entry]) <= 0.0:
            return gradient
        along = gradient + gradient[self.entry] * self.least(theta)[1].to(gradient)
        along[self.entry] = 0.0
        return along

    def is_touched(self, theta: Float[Tensor, " p"]) -> bool:
        """Return whether the noise has reached its bound."""
        return self.is_movable and self._distance(theta) <= TOUCH


_floors: WeakKeyDictionary[Problem, dict[torch.dtype, NoiseFloor]] = WeakKeyDictionary()


def noise_floor(problem: Problem, dtype: torch.dtype | None = None) -> NoiseFloor:
    """Return the bound of a problem, which is found once: its rows and initial values are read from a GPU together."""
    floors, dtype = _floors.setdefault(problem, {}), dtype or problem.theta.dtype
    if dtype not in floors:
        floors[dtype] = NoiseFloor(problem, dtype)
    return floors[dtype]


def descent_limits(problem: Problem, learns: bool = True, dtype: torch.dtype | None = None) -> dict[str, Any]:
    """Return what a descent (`linalg.replayed_descent`) must obey where theta is learned."""
    if not learns:
        return {}
    return {"restrictions": getattr(problem.kernel, "restrictions", None), "floor": noise_floor(problem, dtype)}


def least_share(dtype: torch.dtype) -> float:
    """Return the least noise variance that learning may reach, as a share of the prior variance.

    The objective is accurate there to about 1e-7, and the mean of an exact GP to less than .05 noise standard
    deviations. In float32, which would lose most problems by such a margin, it is that of `objectives.least_noise`.
    """
    return (100.0 if dtype == torch.float64 else 1.0) * rounding(dtype)
