"""The base class of kernels: the layout of theta, gradients with respect to theta, and the operators + and *.

    theta = [the kernel's own log-hyperparameters ..., log noise standard deviation]

A kernel reads its first `size` entries of theta and nothing else. A sum or a product gives each part a slice, and the
noise at the end belongs to the model rather than to any covariance.
"""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..linalg.blocks import row_blocks
from ..linalg.randomness import cosines
from ..linalg.replayed_descent import Restrictions
from ..problem import Columns, Dataset, described_rows

INITIAL_NOISE = 0.3  # initial noise, as a share of the standard deviation of the targets
INPUT_KINDS = ("real", "counts", "strings")
NEEDED = ("parameter_names", "__call__", "diag", "initial_values")  # what every kernel defines

Theta = Float[Tensor, " p"]  # theta, or a gradient with respect to it
Sides = tuple[Tensor, Tensor]  # u [n] or [n, k] and z [m] or [m, k]: a matrix u z' that is not formed
OneInput = Callable[[Tensor, Tensor], Tensor]  # columns x [n] and z [m] to covariances [n, m]
registry: dict[str, type[Covariance]] = {}
operators: dict[str, Callable[[Covariance, Covariance], Covariance]] = {}  # "+" and "*"; `composites` fills it


class Covariance(ABC):
    """A covariance function k(theta, x, x') with named log-hyperparameters.

    Parameters
    ----------
    d : int
        Number of input columns; 1 for objects such as strings.

    Attributes
    ----------
    key : str
        The name by which `kernels.make` finds the class. A subclass with a key registers itself.
    title, formula : str
        What the page shows; the formula is in KaTeX.
    inputs : {"real", "counts", "strings", "mixed"}
        What the rows of X must be. Counts are not standardised. Mixed rows are those of a kernel on named columns.
    stationary : bool
        Whether k depends on x and x' only through x - x', which a test then checks.
    compares : bool
        Whether k depends on numbers only through which of them are equal.
    columns : Columns or None
        The columns of the rows, where the kernel or a part of it was made for named columns.
    restrictions : Restrictions or None
        What learning has to keep of theta; see `restricted`.

    Notes
    -----
    A subclass defines `parameter_names`, `__call__`, `diag` and `initial_values`. Gradients come from autograd unless
    the subclass has a closed form. The methods of this class compute in blocks of rows, so that no temporary is larger
    than `linalg.blocks.BLOCK_BYTES`.
    """

    key: str = ""
    title: ClassVar[str] = ""
    formula: ClassVar[str] = ""
    inputs: str = "real"
    stationary: bool = False
    compares: bool = False
    columns: Columns | None = None
    restrictions: Restrictions | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register a class that has a key of its own; refuse one that lacks what the rest of the package needs."""
        super().__init_subclass__(**kwargs)
        key = cls.__dict__.get("key")
        if not key:
            return
        if key in registry:
            raise TypeError(f"kernel key {key!r} is taken by {registry[key].__qualname__}; choose another key")
        missing = [name for name in NEEDED if getattr(getattr(cls, name), "__isabstractmethod__", False)]
        if missing:
            raise TypeError(
                f"kernel {key!r} ({cls.__qualname__}) does not define {', '.join(missing)}; define it as "
                "`kernels.base.Covariance` describes it, or leave out the key if the class is abstract"
            )
        if not isinstance(key, str) or not cls.title:
            raise TypeError(f"kernel {key!r} ({cls.__qualname__}) has no title; add title = 'the name people read'")
        if cls.inputs not in INPUT_KINDS:
            raise TypeError(f"kernel {key!r} has inputs = {cls.inputs!r}; choose one of {', '.join(INPUT_KINDS)}")
        registry[key] = cls

    def __init__(self, d: int) -> None:
        if d < 1:
            raise KernelError(f"Kernel {self.key!r} needs d >= 1 inputs, but got d = {d}.")
        self.d = d

    @property
    @abstractmethod
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the kernel's own hyperparameters, without the noise."""

    @abstractmethod
    def __call__(self, theta: Theta, X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""

    @abstractmethod
    def diag(self, theta: Theta, X: Any) -> Float[Tensor, " n"]:
        """Prior variance k(x, x) [n] of each row; it may be one number in memory, so who changes it makes a copy."""

    def log_prior_sd(self, theta: Theta, X: Any) -> Float[Tensor, ""]:
        """Log of the root mean prior variance of these rows, which is not counted among the kernel entries of a run."""
        return 0.5 * self.diag(theta, X).mean().log()

    @abstractmethod
    def initial_values(self, train: Dataset) -> list[float]:
        """Initial values of the kernel's own log-hyperparameters, from the data. O(n d), without randomness."""

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each entry of theta, the last being "noise"."""
        return (*self.parameter_names, "noise")

    @property
    def size(self) -> int:
        """Number of the kernel's own hyperparameters; theta has one entry more."""
        return len(self.parameter_names)

    def start(self, train: Dataset) -> Theta:
        """Initial theta [p] for this data, in its precision and on its device."""
        self.check(train.X)
        noise = math.log(INITIAL_NOISE * target_sd(train))
        return torch.tensor([*self.initial_values(train), noise], dtype=train.y.dtype, device=train.y.device)

    def check(self, X: Any) -> None:
        """Raise KernelError if the kernel is not defined for these inputs."""
        if not isinstance(X, Tensor):
            raise KernelError(
                f"Kernel {self.key!r} needs numeric columns, but the inputs are {described_rows(X)}; "
                "choose a kernel for them, such as spectrum for strings."
            )
        if X.ndim != 2 or X.shape[1] != self.d:
            raise KernelError(f"Kernel {self.key!r} was made for d = {self.d} inputs, but X is {tuple(X.shape)}.")

    def restricted(self, restrictions: Restrictions) -> Covariance:
        """Return the same kernel, of whose theta some entries are fixed, bounded, tied or have a prior."""
        other = copy.copy(self)
        other.restrictions = restrictions
        return other

    def fill(self, theta: Theta, X: Any, Z: Any, out: Float[Tensor, "n m"]) -> None:
        """Write the covariance into `out`, which may be part of a larger matrix. The result is not differentiable."""
        out.copy_(self(theta, X, Z))

    def theta_gradient(self, theta: Theta, X: Any, Z: Any, G: Float[Tensor, "n m"]) -> Theta:
        """Gradient [p] of sum_ij G_ij k(theta, X, Z)_ij with respect to theta.

        Parameters
        ----------
        theta : Tensor [p]
            Log-hyperparameters.
        X, Z : Tensor [n, d], [m, d], or sequences
            Inputs.
        G : Tensor [n, m]
            Weight of each covariance, usually the derivative of an objective with respect to it.
        """
        total = torch.zeros_like(theta)
        for rows in row_blocks(len(X), 4 * G.element_size() * max(len(Z), 1), G):
            total += gradient_of(theta, partial(self._weighted_sum, X[rows], Z, G[rows]))
        return total

    def _weighted_sum(self, X: Any, Z: Any, G: Tensor, theta: Tensor) -> Tensor:
        return (self(theta, X, Z) * G).sum()

    def theta_gradient_from_matrix(
        self, theta: Theta, X: Any, Z: Any, sides: Sides, K: Float[Tensor, "n m"]
    ) -> Theta | None:
        """Gradient [p] of u'K z with respect to theta, where K = k(theta, X, Z) is given; sides = (u [n], z [m]).

        If the sides are matrices [n, k] and [m, k], the gradient is the sum of those of their columns. None if the
        gradient needs more than the covariances; `theta_gradient_bilinear` then computes the rest.
        """
        return None

    def theta_gradient_bilinear(self, theta: Theta, X: Any, Z: Any, sides: Sides) -> Theta:
        """Gradient [p] of u'k(theta, X, Z) z with respect to theta, sides = (u [n], z [m]).

        If the sides are matrices [n, k] and [m, k], the gradient is the sum of those of their columns. Covariances are
        computed in blocks of rows, so no n x m matrix is kept.
        """
        (u, z), total = sides, torch.zeros_like(theta)
        for rows in row_blocks(len(X), 4 * theta.element_size() * max(len(Z), 1), theta):
            G = torch.outer(u[rows], z) if u.ndim == 1 else u[rows] @ z.T  # [block, m]
            total += self.theta_gradient(theta, X[rows], Z, G)
        return total

    def theta_gradient_diag(self, theta: Theta, X: Any, g: Float[Tensor, " n"]) -> Theta:
        """Gradient [p] of sum_i g_i k(theta, x_i, x_i) with respect to theta."""
        return gradient_of(theta, lambda leaf: self.diag(leaf, X) @ g)

    def frequencies(self, theta: Theta, count: int, draw: torch.Generator) -> Float[Tensor, "count d"] | None:
        """Draw frequencies from the spectral density of a stationary kernel; None if there is no formula."""
        return None

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor] | None:
        """Draw features phi_i with E phi_i(x) phi_i(z) = k(x, z), from which functions of the prior are made.

        Parameters
        ----------
        theta : Tensor [p]
            Log-hyperparameters.
        count : int
            Number of features.
        draw : torch.Generator
            Where the random numbers come from.

        Returns
        -------
        callable or None
            Takes rows [t, d] and gives features [t, count] in float64, each of mean 0. None if the kernel has none.
        """
        Omega = self.frequencies(theta.double().cpu(), count, draw)
        return None if Omega is None else cosines(Omega, math.exp(float(theta[0])), draw)

    def by_input(self, theta: Theta) -> list[Callable[[Tensor, Tensor], Tensor]] | None:
        """One covariance function per input whose product is this kernel, or None if it does not factor.

        Each function maps columns x [n] and z [m] to a matrix [n, m].
        """
        return None

    def terms(self, theta: Theta) -> list[list[Callable[[Tensor, Tensor], Tensor]]] | None:
        """The kernel as a sum of products over inputs, each as in `by_input`; None if it is no such sum.

        Any kernel of a single input is such a sum of one product of one factor.
        """
        factors = self.by_input(theta)
        if factors is None and self.d == 1:
            factors = [lambda x, z: self(theta, x[:, None], z[:, None])]
        return None if factors is None else [factors]

    def __add__(self, other: Covariance) -> Covariance:
        return operators["+"](self, other)

    def __mul__(self, other: Covariance) -> Covariance:
        return operators["*"](self, other)

    def __repr__(self) -> str:
        return f"<kernel {self.key}, d={self.d}, theta: {', '.join(self.names)}>"


def require_texts(key: str, X: Any, what: str, way_out: str = "") -> None:
    """Raise KernelError, which names the kernel and what it needs, if a row is no text."""
    wrong = next((i for i, text in enumerate(X) if not isinstance(text, str)), None)
    if wrong is not None:
        raise KernelError(f"Kernel {key!r} needs {what}, but row {wrong} is a {type(X[wrong]).__name__}{way_out}.")


def gradient_of(theta: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient [p] of value(theta) by autograd; zero if the value does not depend on theta."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf = theta.detach().clone().requires_grad_(True)
        total = value(leaf)
        if not total.requires_grad:
            return torch.zeros_like(theta)
        (gradient,) = torch.autograd.grad(total, leaf, allow_unused=True)
    return torch.zeros_like(theta) if gradient is None else gradient


def constant(x: Tensor, z: Tensor) -> Tensor:
    """The covariance function of one input that is 1 everywhere."""
    return x.new_ones(len(x), len(z))


def target_sd(train: Dataset) -> float:
    """Standard deviation of the targets, or 1 if they do not vary."""
    sd = float(train.y.std(correction=0)) if len(train) > 1 else 0.0
    return sd if sd > 0.0 and math.isfinite(sd) else 1.0


def input_sds(train: Dataset) -> list[float]:
    """Standard deviation of each input column, or 1 if it is constant."""
    return [sd if sd > 0.0 else 1.0 for sd in train.X.std(0, correction=0).tolist()]
