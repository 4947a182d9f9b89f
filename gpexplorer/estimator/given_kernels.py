"""Kernels of users, as a spec names them: keys, kernels of this package, and those of scikit-learn and GPyTorch.

Kernels of other packages are translated where there is an equal, and refused in a sentence otherwise. Their
hyperparameters are in the units of the file and become the initial theta of standardised inputs and targets:

    sd = sqrt(variance) / y_sd,   lengthscale_q = l_q / x_sd_q,   one lengthscale for all: l / geometric mean of x_sd
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import KernelError
from ..kernels.base import Covariance

SMOOTHNESS = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52"}
Floats = NDArray[np.float64]


class Units(NamedTuple):
    """The units in which hyperparameters were given."""

    x_sd: Floats  # [d]
    y_sd: float


class Part(NamedTuple):
    """A translated kernel: its text, its own log-hyperparameters, and the noise that was part of it."""

    text: str  # empty for noise and constants alone
    theta: list[float]
    variance: float = 1.0  # of a constant factor
    noise: float = 0.0  # variance


def spec_kernel(kernel: Any, units: Units) -> str | dict[str, Any]:
    """Return a kernel as `Spec` takes it.

    Parameters
    ----------
    kernel : str, dict, Covariance, or a kernel of scikit-learn or GPyTorch
    units : Units
        Standard deviations of the training rows.

    Raises
    ------
    KernelError
        If a kernel of another package has no equal here.
    """
    if isinstance(kernel, (str, dict)):
        return kernel
    if isinstance(kernel, Covariance):
        return kernel.key
    package = type(kernel).__module__.split(".")[0]
    if package not in ("sklearn", "gpytorch"):
        raise KernelError(
            f"kernel is a {type(kernel).__name__}; give a key such as 'se-ard', a kernel of gpexplorer, or one of "
            "scikit-learn or GPyTorch."
        )
    part = _sklearn(kernel, units) if package == "sklearn" else _gpytorch(kernel, units)
    if not part.text:
        raise KernelError(f"Kernel {kernel} is a constant or noise alone; add a kernel that depends on the inputs.")
    noise = math.log(math.sqrt(part.noise)) if part.noise else math.log(0.3)
    return {"name": part.text, "theta": [*_with_variance(part).theta, noise]}


def _stationary(base: str, lengthscale: Any, units: Units, extra: tuple[float, ...] = ()) -> Part:
    """A stationary kernel with variance 1 in the units of the file."""
    scales = np.atleast_1d(np.asarray(lengthscale, dtype=np.float64)).ravel()
    d = len(units.x_sd)
    if len(scales) not in (1, d):
        raise KernelError(f"The kernel has {len(scales)} lengthscales, but the data have {d} inputs.")
    ard = len(scales) > 1
    sds = units.x_sd if ard else np.exp(np.log(units.x_sd).mean(keepdims=True))
    logs = np.log(scales / sds).tolist()
    return Part(f"{base}-ard" if ard else base, [-math.log(units.y_sd), *logs, *extra])


def _with_variance(part: Part) -> Part:
    """The same kernel with its constant factor in its own standard deviation, which is its first hyperparameter."""
    return part._replace(theta=[part.theta[0] + 0.5 * math.log(part.variance), *part.theta[1:]], variance=1.0)


def _sum(first: Part, second: Part) -> Part:
    noise = first.noise + second.noise
    if not first.text or not second.text:
        kept = first if first.text else second
        constant = second if first.text else first
        if constant.variance:
            raise KernelError("A constant that is added to a kernel has no equal; targets are centred here anyway.")
        return kept._replace(noise=noise)
    first, second = _with_variance(first), _with_variance(second)
    return Part(f"{first.text} + {second.text}", [*first.theta, *second.theta], noise=noise)


def _product(first: Part, second: Part, units: Units) -> Part:
    if first.noise or second.noise:
        raise KernelError("A product with a noise kernel has no equal; add the noise kernel to the product.")
    variance = first.variance * second.variance
    if not first.text or not second.text:
        return (first if first.text else second)._replace(variance=variance)
    if "+" in second.text or "+" in first.text:
        raise KernelError("A product with a sum has no equal here; write it as a sum of products.")
    second_theta = [second.theta[0] + math.log(units.y_sd), *second.theta[1:]]  # only one factor has units of y
    return Part(f"{first.text} * {second.text}", [*first.theta, *second_theta], variance)


def _sklearn(kernel: Any, units: Units) -> Part:
    """Translate a kernel of scikit-learn."""
    name = type(kernel).__name__
    if name == "Sum":
        return _sum(_sklearn(kernel.k1, units), _sklearn(kernel.k2, units))
    if name == "Product":
        return _product(_sklearn(kernel.k1, units), _sklearn(kernel.k2, units), units)
    if name == "ConstantKernel":
        return Part("", [], float(kernel.constant_value))
    if name == "WhiteKernel":
        return Part("", [], 0.0, float(kernel.noise_level) / units.y_sd**2)
    if name == "RBF":
        return _stationary("se", kernel.length_scale, units)
    if name == "Matern" and kernel.nu in SMOOTHNESS:
        return _stationary(SMOOTHNESS[kernel.nu], kernel.length_scale, units)
    if name == "Matern" and math.isinf(kernel.nu):
        return _stationary("se", kernel.length_scale, units)
    if name == "RationalQuadratic":
        return _stationary("rq", kernel.length_scale, units, (math.log(kernel.alpha),))
    if name == "ExpSineSquared" and len(units.x_sd) == 1:
        period = math.log(kernel.periodicity / units.x_sd[0])
        return Part("periodic", [-math.log(units.y_sd), math.log(kernel.length_scale), period])
    raise KernelError(f"Kernel {kernel} of scikit-learn has no equal here for {len(units.x_sd)} inputs; {_CHOICES}.")


def _gpytorch(kernel: Any, units: Units) -> Part:
    """Translate a kernel of GPyTorch."""
    name = type(kernel).__name__
    if getattr(kernel, "active_dims", None) is not None:
        raise KernelError(f"A {name} on some inputs only has no equal here; {_CHOICES}.")
    if name in ("AdditiveKernel", "ProductKernel"):
        parts = [_gpytorch(part, units) for part in kernel.kernels]
        total = parts[0]
        for part in parts[1:]:
            total = _sum(total, part) if name == "AdditiveKernel" else _product(total, part, units)
        return total
    if name == "ScaleKernel":
        base = _gpytorch(kernel.base_kernel, units)
        if "+" in base.text:
            raise KernelError("A scaled sum has no equal here; scale each part of the sum.")
        return base._replace(variance=base.variance * float(kernel.outputscale.detach()))
    lengthscale = None if getattr(kernel, "lengthscale", None) is None else kernel.lengthscale.detach().cpu().numpy()
    if name == "RBFKernel":
        return _stationary("se", lengthscale, units)
    if name == "MaternKernel" and kernel.nu in SMOOTHNESS:
        return _stationary(SMOOTHNESS[kernel.nu], lengthscale, units)
    if name == "RQKernel":
        return _stationary("rq", lengthscale, units, (math.log(float(kernel.alpha.detach())),))
    raise KernelError(f"Kernel {name} of GPyTorch has no equal here; {_CHOICES}.")


_CHOICES = "give a key such as 'se-ard' or 'se + periodic'; `gpexplorer.kernels.available()` lists them"
