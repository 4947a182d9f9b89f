"""Parameters of an estimator, which are checked when they are used: scikit-learn sets them without a check.

A kernel is a key, a kernel of this package, or one of scikit-learn or GPyTorch. Kernels of other packages are
translated where there is an equal, and refused in a sentence otherwise. Their hyperparameters are in the units of the
file and become the initial theta of standardised inputs and targets:

    sd = sqrt(variance) / y_sd,   lengthscale_q = l_q / x_sd_q,   one lengthscale for all: l / geometric mean of x_sd
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from types import NoneType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .. import kernels
from ..errors import KernelError, SettingError, is_one_of, number, quoted
from ..kernels.base import Covariance
from ..methods.base import Method
from ..problem import Dataset
from ..runs.studies.machine_speed import points_for_budget

SEEDS = 2**31 - 1
EPOCHS, EPOCHS_WITH_SECONDS = 3, 1  # of "auto": epochs of swaps and learning before the points move
POLISH, POLISH_WITH_SECONDS = 100, 1000  # of "auto": evaluations that move the points


def seed_of(random_state: int | np.random.RandomState | None) -> int:
    """Return the seed that a random state stands for; None is 0."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(SEEDS))
    return int(number("random_state", 0 if random_state is None else random_state, whole=True, low=0, high=SEEDS))


def mapping_of(name: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a parameter that maps names to values as a dict; SettingError if it is something else."""
    if not isinstance(given, (Mapping, NoneType)):
        raise SettingError(f"{name} is {quoted(given)}; give names with their values, or None.")
    return dict(given or {})


def callbacks_of(given: Sequence[Callable[[Any], Any]] | None) -> list[Callable[[Any], Any]]:
    """Return the parameter `callbacks` as a list of functions; SettingError if it is something else."""
    if not isinstance(given, (Sequence, NoneType)) or not all(callable(each) for each in given or ()):
        raise SettingError(f"callbacks is {quoted(given)}; give a list of functions of a record, or None.")
    return list(given or ())


def sized_settings(
    settings: Mapping[str, Any],
    num_inducing: int | str | None,
    method: type[Method] | None,
    train: Dataset,
    kernel: str | dict[str, Any],
    budget: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the settings with the number of inducing points, and with what else follows from it.

    Parameters
    ----------
    settings : mapping
        Those that a person gave, which are kept.
    num_inducing : int, "auto" or None
        As for `Estimator`.
    method : type or None
        The method; None if its key is unknown.
    train : Dataset
        Training rows.
    kernel : str or dict
        As in `Spec`.
    budget : mapping
        As for `Estimator`.

    Notes
    -----
    With "auto", cholqr takes a few epochs of swaps and then moves the points by gradient. With 384 points and 40
    seconds of a processor on four fifths of the training rows, the NLPD of the others was 0.628, 0.411 and 1.033 on
    calhousing, elevators and protein; with swaps until the end it was 0.656, 0.403 and 1.063. Without a limit and with
    128 points, it was 0.269, -1.370, 0.374 and 0.594 on concrete, energy, airfoil and housing; with swaps until the end
    it was 0.285, -1.367, 0.389 and 0.613.
    """
    completed, n = dict(settings), len(train)
    if method is not None and "num_inducing" in method.param and num_inducing is not None:
        # with a gap, the method chooses their number
        by_budget = is_one_of(num_inducing, ("auto",)) and "gap" not in completed
        completed.setdefault("num_inducing", points_for_budget(n, budget) if by_budget else num_inducing)
    points = completed.get("num_inducing")
    if isinstance(points, (int, np.integer)) and points is not True:
        completed["num_inducing"] = points = min(int(points), n)
        can_move = method is not None and method.key == "cholqr" and points < n and _has_gradient(kernel, train)
        if is_one_of(num_inducing, ("auto",)) and can_move and "gap" not in completed:
            timed = "seconds" in budget
            completed.setdefault("polish", POLISH_WITH_SECONDS if timed else POLISH)
            if completed["polish"]:
                completed.setdefault("max_epochs", EPOCHS_WITH_SECONDS if timed else EPOCHS)
    return completed


def _has_gradient(kernel: str | dict[str, Any], train: Dataset) -> bool:
    """Whether inducing points of this kernel may lie between the rows."""
    if not isinstance(train.X, Tensor):
        return False
    name = kernel if isinstance(kernel, str) else kernel.get("name", "")
    try:
        return kernels.make(name, train.d).inputs == "real"
    except KernelError:
        return False  # the spec says what is wrong with it


SMOOTHNESS = {0.5: "matern12", 1.5: "matern32", 2.5: "matern52", math.inf: "se"}
Floats = NDArray[np.float64]


class Units(NamedTuple):
    """The units in which hyperparameters were given."""

    x_sd: Floats  # [d]
    y_sd: float


class Term(NamedTuple):
    """A product of kernels: its text, and its own log-hyperparameters, of which the first is a standard deviation."""

    text: str
    theta: list[float]


class Part(NamedTuple):
    """A translated kernel: a sum of products, a constant, and noise."""

    terms: tuple[Term, ...] = ()
    constant: float = 0.0
    noise: float = 0.0  # variance

    @property
    def is_constant(self) -> bool:
        """Whether it is a constant alone, as a factor may be."""
        return not self.terms and not self.noise


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
    if not part.terms:
        raise KernelError(f"Kernel {kernel} is a constant or noise alone; add a kernel that depends on the inputs.")
    noise = math.log(math.sqrt(part.noise)) if part.noise else math.log(0.3)
    text, theta = " + ".join(term.text for term in part.terms), [x for term in part.terms for x in term.theta]
    return {"name": text, "theta": [*theta, noise]}


def _stationary(base: str, lengthscale: Any, units: Units, extra: tuple[float, ...] = ()) -> Part:
    """A stationary kernel with variance 1 in the units of the file."""
    scales = np.atleast_1d(np.asarray(lengthscale, dtype=np.float64)).ravel()
    d = len(units.x_sd)
    if len(scales) not in (1, d):
        raise KernelError(f"The kernel has {len(scales)} lengthscales, but the data have {d} inputs.")
    ard = len(scales) > 1
    sds = units.x_sd if ard else np.exp(np.log(units.x_sd).mean(keepdims=True))
    logs = np.log(scales / sds).tolist()
    return Part((Term(f"{base}-ard" if ard else base, [-math.log(units.y_sd), *logs, *extra]),))


def _alike(name: str, kernel: Any, lengthscale: Any, units: Units) -> Part | None:
    """The stationary kernel that both packages have under this name; None if it is another one."""
    if name == "RBF" or (name == "Matern" and kernel.nu in SMOOTHNESS):
        return _stationary("se" if name == "RBF" else SMOOTHNESS[kernel.nu], lengthscale, units)
    if name in ("RationalQuadratic", "RQ"):
        return _stationary("rq", lengthscale, units, (math.log(float(kernel.alpha)),))
    return None


def _sum(first: Part, second: Part) -> Part:
    total = Part(first.terms + second.terms, first.constant + second.constant, first.noise + second.noise)
    if total.constant and not total.is_constant:
        raise KernelError("A constant that is added to a kernel has no equal; targets are centred here anyway.")
    return total


def _scaled(part: Part, factor: float) -> Part:
    """A constant times a kernel: every product of the sum takes it into its own standard deviation."""
    if not factor > 0.0:
        raise KernelError(f"A kernel is multiplied by the constant {factor:g}; give a positive one.")
    log_sd = 0.5 * math.log(factor)
    terms = tuple(Term(text, [theta[0] + log_sd, *theta[1:]]) for text, theta in part.terms)
    return Part(terms, part.constant * factor, part.noise * factor)


def _product(first: Part, second: Part, units: Units) -> Part:
    if first.is_constant or second.is_constant:
        return _scaled(second, first.constant) if first.is_constant else _scaled(first, second.constant)
    if first.noise or second.noise:
        raise KernelError("A product with a noise kernel has no equal; add the noise kernel to the product.")
    if len(first.terms) > 1 or len(second.terms) > 1:
        raise KernelError("A product with a sum has no equal here; write it as a sum of products.")
    [left], [right] = first.terms, second.terms
    unit = [right.theta[0] + math.log(units.y_sd), *right.theta[1:]]  # only one factor has units of y
    return Part((Term(f"{left.text} * {right.text}", [*left.theta, *unit]),))


def _sklearn(kernel: Any, units: Units) -> Part:
    """Translate a kernel of scikit-learn."""
    name = type(kernel).__name__
    if name == "Sum":
        return _sum(_sklearn(kernel.k1, units), _sklearn(kernel.k2, units))
    if name == "Product":
        return _product(_sklearn(kernel.k1, units), _sklearn(kernel.k2, units), units)
    if name == "ConstantKernel":
        return Part(constant=float(kernel.constant_value))
    if name == "WhiteKernel":
        return Part(noise=float(kernel.noise_level) / units.y_sd**2)
    if (same := _alike(name, kernel, getattr(kernel, "length_scale", None), units)) is not None:
        return same
    if name == "ExpSineSquared" and len(units.x_sd) == 1:
        period = math.log(kernel.periodicity / units.x_sd[0])
        return Part((Term("periodic", [-math.log(units.y_sd), math.log(kernel.length_scale), period]),))
    raise KernelError(f"Kernel {kernel} of scikit-learn has no equal here for {len(units.x_sd)} inputs; {_CHOICES}.")


def _gpytorch(kernel: Any, units: Units) -> Part:
    """Translate a kernel of GPyTorch."""
    name = type(kernel).__name__
    if getattr(kernel, "active_dims", None) is not None:
        raise KernelError(f"A {name} on some inputs only has no equal here; {_CHOICES}.")
    if name in ("AdditiveKernel", "ProductKernel"):
        joined = _sum if name == "AdditiveKernel" else partial(_product, units=units)
        return reduce(joined, (_gpytorch(part, units) for part in kernel.kernels))
    if name == "ScaleKernel":
        return _scaled(_gpytorch(kernel.base_kernel, units), float(kernel.outputscale.detach()))
    lengthscale = None if getattr(kernel, "lengthscale", None) is None else kernel.lengthscale.detach().cpu().numpy()
    if (same := _alike(name.removesuffix("Kernel"), kernel, lengthscale, units)) is not None:
        return same
    raise KernelError(f"Kernel {name} of GPyTorch has no equal here; {_CHOICES}.")


_CHOICES = "give a key such as 'se-ard' or 'se + periodic'; `gpexplorer.kernels.available()` lists them"
