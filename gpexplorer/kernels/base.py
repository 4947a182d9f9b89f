"""What every kernel shares: a layout of theta, gradients by contraction, and the operators + and *.

theta = [own log-hyperparameters ..., log noise sd]. A kernel reads its own `size` first entries and nothing else, so
a composite hands each part a slice, and the noise at the end belongs to the model rather than to any covariance.
"""

from __future__ import annotations

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
from ..problem import Dataset

NOISE_START = 0.3  # of the target's standard deviation
registry: dict[str, type[Covariance]] = {}


class Covariance(ABC):
    """A covariance function with named log-hyperparameters. A subclass with a `key` is registered under it."""

    key: str = ""
    title: ClassVar[str] = ""
    formula: ClassVar[str] = ""  # KaTeX
    inputs: str = "real"  # "real" | "counts" | "strings": what X must be; only real inputs are standardised

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        key = cls.__dict__.get("key")
        if not key:
            return
        if key in registry:
            raise TypeError(f"kernel key {key!r} is taken by {registry[key].__qualname__}")
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
    def __call__(self, theta: Float[Tensor, " p"], X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the rows of X and Z."""

    def fill(self, theta: Float[Tensor, " p"], X: Any, Z: Any, out: Float[Tensor, "n m"]) -> None:
        """Covariance into `out`, which may be a part of a larger matrix; not differentiable."""
        out.copy_(self(theta, X, Z))

    @abstractmethod
    def diag(self, theta: Float[Tensor, " p"], X: Any) -> Float[Tensor, " n"]:
        """k(x, x) [n]."""

    @abstractmethod
    def initial_values(self, train: Dataset) -> list[float]:
        """First values of the own log-hyperparameters, from the data. O(n d), no randomness."""

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each entry of theta, the last being "noise"."""
        return (*self.parameter_names, "noise")

    @property
    def size(self) -> int:
        """Number of own hyperparameters: theta has one more."""
        return len(self.parameter_names)

    def start(self, train: Dataset) -> Float[Tensor, " p"]:
        """A sensible first theta [p] for this data."""
        self.check(train.X)
        noise = math.log(NOISE_START * target_sd(train))
        return torch.tensor([*self.initial_values(train), noise], dtype=train.y.dtype, device=train.y.device)

    def check(self, X: Any) -> None:
        """Refuse inputs this kernel is not defined for, with a KernelError."""
        if not isinstance(X, Tensor):
            raise KernelError(
                f"Kernel {self.key!r} needs numeric columns, but the inputs are {type(X[0]).__name__} objects; "
                "choose a kernel for them, such as spectrum for strings."
            )
        if X.ndim != 2 or X.shape[1] != self.d:
            raise KernelError(f"Kernel {self.key!r} was made for d = {self.d} inputs, but X is {tuple(X.shape)}.")

    def theta_gradient(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, G: Float[Tensor, "n m"]
    ) -> Float[Tensor, " p"]:
        """Gradient [p] of sum_ij G_ij k(theta, X, Z)_ij in theta, by autograd over row blocks."""
        total = torch.zeros_like(theta)
        for rows in row_blocks(len(X), 4 * G.element_size() * max(len(Z), 1)):
            total += gradient_of(theta, partial(self._weighted, X[rows], Z, G[rows]))
        return total

    def _weighted(self, X: Any, Z: Any, G: Tensor, at: Tensor) -> Tensor:
        return (self(at, X, Z) * G).sum()

    def theta_gradient_from_matrix(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, sides: tuple[Tensor, Tensor], K: Float[Tensor, "n m"]
    ) -> Float[Tensor, " p"] | None:
        """Gradient [p] of u'K z in theta from K = k(theta, X, Z) alone, sides = (u [n], z [m]).

        None where the gradient needs more than the covariances; `theta_gradient_bilinear` then computes the rest.
        """
        return None

    def theta_gradient_bilinear(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, sides: tuple[Tensor, Tensor]
    ) -> Float[Tensor, " p"]:
        """Gradient [p] of u'k(theta, X, Z) z in theta, sides = (u [n], z [m]); no n x m matrix is held."""
        (u, z), total = sides, torch.zeros_like(theta)
        for rows in row_blocks(len(X), 4 * theta.element_size() * max(len(Z), 1)):
            total += self.theta_gradient(theta, X[rows], Z, torch.outer(u[rows], z))
        return total

    def theta_gradient_diag(self, theta: Float[Tensor, " p"], X: Any, g: Float[Tensor, " n"]) -> Float[Tensor, " p"]:
        """Gradient [p] of sum_i g_i k(theta, x_i, x_i) in theta."""
        return gradient_of(theta, lambda at: self.diag(at, X) @ g)

    def by_input(self, theta: Float[Tensor, " p"]) -> list[Callable[[Tensor, Tensor], Tensor]] | None:
        """1-D covariance functions whose product over inputs is this kernel; None where it does not factor."""
        return None

    def __add__(self, other: Covariance) -> Covariance:
        from .composites import Sum

        return Sum(self, other)

    def __mul__(self, other: Covariance) -> Covariance:
        from .composites import Product

        return Product(self, other)

    def __repr__(self) -> str:
        return f"<kernel {self.key}, d={self.d}, theta: {', '.join(self.names)}>"


def gradient_of(theta: Tensor, value: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient [p] of a value in theta, by autograd; zero where it depends on none."""
    with torch.enable_grad():
        at = theta.detach().clone().requires_grad_(True)
        total = value(at)
        if not total.requires_grad:
            return torch.zeros_like(theta)
        (slope,) = torch.autograd.grad(total, at, allow_unused=True)
    return torch.zeros_like(theta) if slope is None else slope


def target_sd(train: Dataset) -> float:
    """Standard deviation of the targets, 1 where they do not vary."""
    sd = float(train.y.std(correction=0)) if len(train) > 1 else 0.0
    return sd if sd > 0.0 and math.isfinite(sd) else 1.0


def input_sds(train: Dataset) -> list[float]:
    """Standard deviation of each input column, 1 where it is constant."""
    return [sd if sd > 0.0 else 1.0 for sd in train.X.std(0, correction=0).tolist()]
