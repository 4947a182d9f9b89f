"""Transforms of a target: a Gaussian process of z = T(y) has predictions of y that are skewed, as many targets are.

    log               z = log y                                        y > 0, and so are all predictions
    yeo-johnson L     u = (y - mean) / sd of the training rows,        0 <= L <= 2
                      z = ((1 + u)^L - 1) / L               u >= 0     log(1 + u) where L = 0
                      z = -((1 - u)^(2-L) - 1) / (2 - L)    u < 0      -log(1 - u) where L = 2

Both map onto all real numbers, so that a normal distribution of z is a distribution of y whose density integrates to 1:

    log p(y) = log N(T(y); mu_z, v_z) + log T'(y)

L = 1 changes nothing; below 1 it shortens a long upper tail. Shifting or scaling the targets does not change what
yeo-johnson does, because u has mean 0 and standard deviation 1.

Means, variances and covariances of y follow from those of z ~ N(mu, v). Where T is the logarithm, y is log-normal:

    E y = exp(mu + v/2),   var y = exp(2 mu + v) (exp(v) - 1),   cov(y, y') = E y E y' (exp(cov(z, z')) - 1)

Otherwise they are integrals by Gauss-Hermite quadrature with N nodes x_i, and covariances come from the Hermite
coefficients of g(xi) = T^-1(mu + v^1/2 xi):

    a_k = E[ g(xi) He_k(xi) ] / sqrt(k!),   cov(y, y') = sum_k>0 a_k a'_k rho^k                (Mehler's formula)

T^-1 of yeo-johnson grows like z^(1/p), p = min(L, 2 - L), and like exp(z) where p = 0. With N = 32 and 24 terms
variances and covariances are right to 1e-3 of the variance, and means to 1e-3 standard deviations, where p >= .03.
Below, 32 nodes are too few where the standard deviation of z is above 3; 128 nodes and 96 terms are as accurate up to
8, and give too little beyond.

References
----------
Yeo, I.-K. and Johnson, R. (2000). A new family of power transformations to improve normality or symmetry. Biometrika
87. Snelson, E., Rasmussen, C. and Ghahramani, Z. (2004). Warped Gaussian processes. NIPS 16.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from .errors import DataError, SettingError

LOG, YEO_JOHNSON = "log", "yeo-johnson"
NAMES = (LOG, YEO_JOHNSON)
FORMS = 'give "log", "yeo-johnson", or "yeo-johnson 0.5" with a number from 0 to 2'
LARGEST_POWER = 2.0
_SMALL = 1e-6  # a power below this is 0 to rounding
NODES, MANY_NODES = 32, 128  # of the quadrature
LEAST_POWER = 0.03  # a Yeo-Johnson transform of a smaller power, or one above 2 - 0.03, needs MANY_NODES
TERMS_PER_NODE = 0.75  # of Mehler's formula


class Quadrature(NamedTuple):
    """Nodes and weights [N] with sum_i w_i g(x_i) ~ E g(xi), xi ~ N(0, 1)."""

    nodes: Tensor
    weights: Tensor


@cache
def quadrature(count: int) -> Quadrature:
    """Gauss-Hermite quadrature for the standard normal distribution with this number of nodes."""
    x, w = np.polynomial.hermite_e.hermegauss(count)
    return Quadrature(torch.from_numpy(x), torch.from_numpy(w / math.sqrt(2.0 * math.pi)))


class TargetTransform(ABC):
    """An increasing function T of the target, with its inverse and derivative; all work on tensors of any shape."""

    name: ClassVar[str]

    @property
    @abstractmethod
    def words(self) -> str:
        """The transform in a table, such as "log" in the unit "log of price"."""

    @abstractmethod
    def forward(self, y: Tensor) -> Tensor:
        """T(y); minus infinity where T is not defined."""

    @abstractmethod
    def inverse(self, z: Tensor) -> Tensor:
        """The y with T(y) = z."""

    @abstractmethod
    def log_derivative(self, y: Tensor) -> Tensor:
        """log T'(y); minus infinity where T is not defined, so that a density there is 0."""

    @property
    def row_numbers(self) -> int:
        """How many numbers one row takes in memory while its moments and terms are computed."""
        return 5 * self._nodes

    @property
    def _nodes(self) -> int:
        """The number of nodes of the quadrature."""
        return NODES

    def moments(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [b] and variance [b] of y where T(y) is normal with these moments [b]; infinite where y overflows."""
        values, weights = self._at_nodes(mean, var)
        average = values @ weights
        variance = (values - average[:, None]).square() @ weights
        return average, torch.where(average.isinf(), math.inf, variance)

    def row_terms(self, mean: Tensor, var: Tensor) -> Tensor:
        """What `covariances` needs of each row [b, k]: here the standard deviation of T(y), and a_k for k > 0."""
        values, weights = self._at_nodes(mean, var)
        x = quadrature(self._nodes).nodes
        columns = [torch.ones_like(x), x]  # He_k / sqrt(k!) at the nodes
        for k in range(1, int(TERMS_PER_NODE * self._nodes) - 1):
            columns.append((x * columns[k] - k**0.5 * columns[k - 1]) / (k + 1) ** 0.5)
        coefficients = values @ (weights[:, None] * torch.stack(columns[1:], 1).to(values))
        return torch.cat([var.sqrt()[:, None], coefficients], 1)

    def covariances(self, C: Tensor, at_X: Tensor, at_Z: Tensor) -> Tensor:
        """Covariances of y [b, c] where those of T(y) are C [b, c]; infinite where y overflows.

        Parameters
        ----------
        C : Tensor [b, c]
        at_X, at_Z : Tensor [b, k], Tensor [c, k]
            The `row_terms` of both sides.
        """
        rho = (C / torch.outer(at_X[:, 0], at_Z[:, 0]).clamp_min(1e-150)).clamp(-1.0, 1.0)
        K = torch.zeros_like(rho)
        for k in range(at_X.shape[1] - 1, 0, -1):  # Horner's rule
            K = rho * (K + torch.outer(at_X[:, k], at_Z[:, k]))
        return K.masked_fill(K.isnan() & rho.isfinite(), math.inf)  # sums of infinite terms with either sign

    def _at_nodes(self, mean: Tensor, var: Tensor) -> Quadrature:
        """Values of y at the nodes [b, N], and the weights [N]."""
        nodes, weights = (part.to(mean) for part in quadrature(self._nodes))
        return Quadrature(self.inverse(mean[:, None] + var.sqrt()[:, None] * nodes), weights)

    def described(self) -> dict[str, Any]:
        """The name and the numbers of the transform, as a file keeps them; `transform_from` reads them."""
        return {"name": self.name, **asdict(self)}  # type: ignore[call-overload]


@dataclass(frozen=True)
class Log(TargetTransform):
    """The natural logarithm, for targets above 0."""

    name: ClassVar[str] = LOG
    words: ClassVar[str] = LOG  # type: ignore[misc]

    def forward(self, y: Tensor) -> Tensor:
        return y.clamp_min(0.0).log()

    def inverse(self, z: Tensor) -> Tensor:
        return z.exp()

    def log_derivative(self, y: Tensor) -> Tensor:
        return torch.where(y > 0.0, -y.log(), -math.inf)

    @property
    def row_numbers(self) -> int:
        return 6

    def moments(self, mean: Tensor, var: Tensor) -> tuple[Tensor, Tensor]:
        """Those of a log-normal distribution."""
        average, root = (mean + 0.5 * var).exp(), (mean + var).exp()
        variance = root * -torch.expm1(-var) * root  # exp(2 mean + var) (exp(var) - 1) that overflows last
        return average, torch.where(average.isinf(), math.inf, variance)

    def row_terms(self, mean: Tensor, var: Tensor) -> Tensor:
        """The standard deviation of T(y) and the logarithm of the mean of y [b, 2]."""
        return torch.stack([var.sqrt(), mean + 0.5 * var], 1)

    def covariances(self, C: Tensor, at_X: Tensor, at_Z: Tensor) -> Tensor:
        """Those of a log-normal distribution; see `TargetTransform.covariances`."""
        largest = torch.outer(at_X[:, 0], at_Z[:, 0])
        C = torch.minimum(torch.maximum(C, -largest), largest)
        above, below = C.clamp_min(0.0), C.clamp_max(0.0)
        root = (0.5 * (at_X[:, 1, None] + at_Z[:, 1] + above)).exp()
        ratio = torch.where(C > 0.0, -torch.expm1(-above), torch.expm1(below))  # (exp(C) - 1) exp(-above)
        return (root * ratio * root).masked_fill(root.isinf() & (C == 0.0), 0.0)


@dataclass(frozen=True)
class YeoJohnson(TargetTransform):
    """The power transform of Yeo and Johnson (2000) of standardised targets.

    Parameters
    ----------
    power : float
        L, from 0 to 2.
    mean, sd : float
        Of the training targets.
    """

    power: float
    mean: float
    sd: float

    name: ClassVar[str] = YEO_JOHNSON

    @property
    def words(self) -> str:
        return f"Yeo-Johnson {self.power:.3g}"

    def forward(self, y: Tensor) -> Tensor:
        u = (y - self.mean) / self.sd
        above, below = u.clamp_min(0.0), (-u).clamp_min(0.0)  # unlike abs, both have a derivative at 0
        return torch.where(u >= 0.0, _power(above, self.power), -_power(below, 2.0 - self.power))

    def inverse(self, z: Tensor) -> Tensor:
        above, below = z.clamp_min(0.0), (-z).clamp_min(0.0)
        u = torch.where(z >= 0.0, _root(above, self.power), -_root(below, 2.0 - self.power))
        return self.mean + self.sd * u

    @property
    def _nodes(self) -> int:
        return NODES if min(self.power, 2.0 - self.power) >= LEAST_POWER else MANY_NODES

    def log_derivative(self, y: Tensor) -> Tensor:
        u = (y - self.mean) / self.sd
        return (self.power - 1.0) * u.sign() * u.abs().log1p() - math.log(self.sd)


def checked_transform(text: Any) -> str:
    """The name of a transform in one form: "", "log", "yeo-johnson" or "yeo-johnson 0.5".

    Raises
    ------
    SettingError
        If there is no such transform, or its number is not between 0 and 2.
    """
    words = text.split() if isinstance(text, str) else None
    if words is None or len(words) > 2 or (words and words[0] not in NAMES) or (words[:1] == [LOG] and words[1:]):
        raise SettingError(f"target_transform is {text!r:.60}; {FORMS}.")
    if len(words) < 2:
        return " ".join(words)
    try:
        power = float(words[1])
    except ValueError:
        power = math.nan
    if not 0.0 <= power <= LARGEST_POWER:
        raise SettingError(f"target_transform is {text!r:.60}, and its number is not between 0 and 2; {FORMS}.")
    return f"{YEO_JOHNSON} {power:.6g}"


def transform_in_words(text: str) -> str:
    """What is modelled, such as "the logarithm of the target", for a name that `checked_transform` returned."""
    name, _, power = text.partition(" ")
    if name == LOG:
        return "the logarithm of the target"
    if name == YEO_JOHNSON:
        return "the target after a Yeo-Johnson transform" + f" with the power {power}" * bool(power)
    return "the target"


def fitted_transform(text: str, y: Tensor) -> TargetTransform | None:
    """The transform with this name for training targets.

    Parameters
    ----------
    text : str
        As `checked_transform` returns it. "yeo-johnson" without a number takes the power with which the transformed
        targets are most like normal ones (largest likelihood); "" is no transform.
    y : Tensor [n]
        Training targets.

    Raises
    ------
    DataError
        If the logarithm is asked for and a target is not above 0.
    """
    if not text:
        return None
    y = y.double()
    if text == LOG:
        if not bool((y > 0.0).all()):
            raise DataError(
                f"The target has no logarithm: {int((y <= 0.0).sum())} of {len(y)} training targets are not above 0 "
                f"(the smallest is {float(y.min()):.4g}): choose 'yeo-johnson', or leave these rows out."
            )
        return Log()
    mean, sd = float(y.mean()), float(y.std(correction=0))
    if not bool((y != y[:1]).any()):  # where all targets are equal, the standard deviation may be rounding
        mean, sd = float(y[:1].sum()), 1.0
    words = text.split()
    power = float(words[1]) if len(words) == 2 else _most_normal_power((y - mean) / sd)
    return YeoJohnson(power, mean, sd)


def transform_from(description: Any) -> TargetTransform:
    """The transform that a file describes; SettingError if the description does not fit."""
    if description == Log().described():
        return Log()
    if isinstance(description, Mapping) and set(description) == {"name", "power", "mean", "sd"}:
        name, *numbers = (description[key] for key in ("name", "power", "mean", "sd"))
        if name == YEO_JOHNSON and all(type(x) in (int, float) and math.isfinite(x) for x in numbers):
            transform = YeoJohnson(*map(float, numbers))
            if 0.0 <= transform.power <= LARGEST_POWER and transform.sd > 0.0:
                return transform
    raise SettingError(f"its transform of the target is {str(description)[:40]!r}, which does not fit.")


def _most_normal_power(u: Tensor) -> float:
    """The power [0, 2] that maximises the likelihood of a normal distribution of the transformed u [n]."""
    signed_logs = float((u.sign() * u.abs().log1p()).mean())

    def negative_log_likelihood(power: float) -> float:
        spread = float(YeoJohnson(power, 0.0, 1.0).forward(u).var(correction=0))
        return 0.5 * math.log(max(spread, 1e-300)) - (power - 1.0) * signed_logs

    from scipy.optimize import minimize_scalar

    return float(minimize_scalar(negative_log_likelihood, bounds=(0.0, LARGEST_POWER), method="bounded").x)


def _power(a: Tensor, power: float) -> Tensor:
    """((1 + a)^power - 1) / power for a >= 0."""
    logs = a.log1p()
    return torch.expm1(power * logs) / power if power > _SMALL else logs


def _root(z: Tensor, power: float) -> Tensor:
    """The a >= 0 whose `_power` is z >= 0."""
    return torch.expm1(torch.log1p(power * z) / power) if power > _SMALL else torch.expm1(z)
