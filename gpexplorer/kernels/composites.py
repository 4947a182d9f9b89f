"""Sums and products of kernels, and the grammar of their names: "se-ard * periodic + linear[width]"."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..linalg.blocks import row_blocks
from ..problem import Dataset
from .base import Covariance, OneInput, Sides, Theta, operators, target_sd
from .distances import FILL_BYTES
from .on_columns import names_in
from .periodic import with_several_periods

MAX_TERMS = 64  # products over inputs in which a kernel may be expanded
MAX_DEPTH = 20  # nested parentheses in the text of a kernel
TOKEN = r"""[A-Za-z0-9_-]+|[+*()]|\[(?:[^]"]|"[^"]*")*\]|\S"""  # a key, a sign, column names in brackets, or a mistake


class Composite(Covariance):
    """Base class of two combined kernels: theta = [first's own, second's own, log noise sd].

    Parameters
    ----------
    first, second : Covariance
        Kernels for the same number of inputs; either may be a composite itself.
    """

    sign = ""

    def __init__(self, first: Covariance, second: Covariance) -> None:
        if first.d != second.d:
            raise KernelError(
                f"Cannot combine kernels for d = {first.d} and d = {second.d} inputs; make both for one d."
            )
        super().__init__(first.d)
        self.parts = (first, second)
        self.inputs = next((part.inputs for part in self.parts if part.inputs != "real"), "real")
        self.columns = next((part.columns for part in self.parts if part.columns is not None), None)
        self.stationary = all(part.stationary for part in self.parts)
        self.key = self.sign.join(self._text(part) for part in self.parts)

    def _text(self, part: Covariance) -> str:
        return f"({part.key})" if self.sign == "*" and isinstance(part, Sum) else part.key

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of each part behind its key, numbered if both parts have the same key."""
        first, second = self.parts
        tags = (f"{first.key} 1", f"{second.key} 2") if first.key == second.key else (first.key, second.key)
        return tuple(
            f"{tag}: {name}" for part, tag in zip(self.parts, tags, strict=True) for name in part.parameter_names
        )

    def check(self, X: Any) -> None:
        """Raise KernelError unless both parts accept the inputs."""
        for part in self.parts:
            part.check(X)

    def _split(self, theta: Tensor) -> list[tuple[Covariance, Tensor]]:
        """Each part with the theta that begins with its own entries."""
        first, second = self.parts
        return [(first, theta), (second, theta[first.size :])]

    def _joined(self, theta: Tensor, gradients: list[Tensor]) -> Tensor:
        """The gradient [p] in theta, made of the parts' gradients; 0 for the noise."""
        own_gradients = [gradient[: part.size] for part, gradient in zip(self.parts, gradients, strict=True)]
        return torch.cat([*own_gradients, theta.new_zeros(len(theta) - self.size)])

    def __call__(self, theta: Theta, X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """The two covariance matrices [n, m], combined."""
        return self.combine(*(part(own, X, Z) for part, own in self._split(theta)))

    def diag(self, theta: Theta, X: Any) -> Float[Tensor, " n"]:
        """The two diagonals [n], combined."""
        return self.combine(*(part.diag(own, X) for part, own in self._split(theta)))

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor] | None:
        """Features of both parts, combined: they are independent of each other and have mean 0."""
        parts = [part.random_features(own, count, draw) for part, own in self._split(theta)]
        first, second = parts
        if first is None or second is None:
            return None
        return lambda X: self.combine(first(X), second(X))

    @abstractmethod
    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum, or the product, of two matrices or diagonals."""


class Sum(Composite):
    """k1 + k2: the prior of a sum of two independent functions."""

    sign = "+"

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second

    def fill(self, theta: Theta, X: Any, Z: Any, out: Float[Tensor, "n m"]) -> None:
        """Write the first part into `out`, then add the second part block by block."""
        (first, theta_1), (second, theta_2) = self._split(theta)
        first.fill(theta_1, X, Z, out)
        for rows in row_blocks(len(X), out.element_size() * max(len(Z), 1), out, FILL_BYTES):
            block = torch.empty_like(out[rows])
            second.fill(theta_2, X[rows], Z, block)
            out[rows] += block

    def theta_gradient(self, theta: Theta, X: Any, Z: Any, G: Tensor) -> Theta:
        """Gradients of the parts, each by its own closed form."""
        return self._joined(theta, [part.theta_gradient(own, X, Z, G) for part, own in self._split(theta)])

    def theta_gradient_bilinear(self, theta: Theta, X: Any, Z: Any, sides: Sides) -> Theta:
        """Gradients of the parts, each by its own closed form."""
        return self._joined(theta, [part.theta_gradient_bilinear(own, X, Z, sides) for part, own in self._split(theta)])

    def theta_gradient_diag(self, theta: Theta, X: Any, g: Tensor) -> Theta:
        """Gradients of the parts, each by its own closed form."""
        return self._joined(theta, [part.theta_gradient_diag(own, X, g) for part, own in self._split(theta)])

    def terms(self, theta: Theta) -> list[list[OneInput]] | None:
        """The products of both parts, or None if either part is no sum of products."""
        first, second = (part.terms(own) for part, own in self._split(theta))
        return None if first is None or second is None else first + second

    def initial_values(self, train: Dataset) -> list[float]:
        """The values of each part for half of the variance of the targets."""
        half = Dataset(train.X, train.y / (2.0**0.5), train.names, train.target, train.scale)
        values = [value for part in self.parts for value in part.initial_values(half)]
        return with_several_periods(values, self.parameter_names, train)


class Product(Composite):
    """k1 * k2: covariance where both parts are large."""

    sign = "*"

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        return first * second

    def theta_gradient_from_matrix(self, theta: Theta, X: Any, Z: Any, sides: Sides, K: Tensor) -> Theta | None:
        """Gradient [p] of u'K z: log k is the sum of two logarithms, so each part needs only the common K.

        None unless both parts have such a formula.
        """
        gradients = [part.theta_gradient_from_matrix(own, X, Z, sides, K) for part, own in self._split(theta)]
        available = [gradient for gradient in gradients if gradient is not None]
        return self._joined(theta, available) if len(available) == len(gradients) else None

    def initial_values(self, train: Dataset) -> list[float]:
        """The values of each part; the first part carries the variance of the targets, the second has variance 1."""
        unit = Dataset(train.X, train.y / target_sd(train), train.names, train.target, train.scale)
        return [*self.parts[0].initial_values(train), *self.parts[1].initial_values(unit)]

    def by_input(self, theta: Theta) -> list[OneInput] | None:
        """Products of the factors of both parts, or None if either part does not factor."""
        first, second = (part.by_input(own) for part, own in self._split(theta))
        if first is None or second is None:
            return None

        return _factor_products(first, second)

    def terms(self, theta: Theta) -> list[list[OneInput]] | None:
        """Every product of a term of the first part and a term of the second, or None if there are too many."""
        first, second = (part.terms(own) for part, own in self._split(theta))
        if first is None or second is None or len(first) * len(second) > MAX_TERMS:
            return None
        return [_factor_products(f, g) for f in first for g in second]


def _factor_products(first: list[OneInput], second: list[OneInput]) -> list[OneInput]:
    """The factor of each input of the product of two products."""

    def product(f: OneInput, g: OneInput) -> OneInput:
        return lambda x, z: f(x, z) * g(x, z)

    return [product(f, g) for f, g in zip(first, second, strict=True)]


operators["+"], operators["*"] = Sum, Product


def parse(text: str, atom: Callable[[str, tuple[str, ...] | None], Covariance]) -> Covariance:
    """Read a kernel from text, by recursive descent.

    Parameters
    ----------
    text : str
        A sum of products of kernel keys, with or without parentheses; column names in brackets may follow a key.
    atom : callable
        Makes the kernel of one key; its second argument is the names in brackets, or None.

    Returns
    -------
    Covariance
        Such as Sum(Product(se-ard, periodic), linear) for "se-ard * periodic + linear".

    Raises
    ------
    KernelError
        If the text is not such a sum.
    """
    tokens, position = re.findall(TOKEN, text), 0

    def peek() -> str:
        return tokens[position] if position < len(tokens) else ""

    def advance() -> str:
        nonlocal position
        position += 1
        return tokens[position - 1] if position <= len(tokens) else ""

    def factor(depth: int) -> Covariance:
        token = advance()
        if token == "(" and depth < MAX_DEPTH:
            inside = total(depth + 1)
            if advance() != ")":
                raise KernelError(f"Kernel {text!r} has an opening parenthesis that is never closed.")
            return inside
        if not re.fullmatch(r"[A-Za-z0-9_-]+", token):
            instead = f"{token!r} was found" if token else "the text ends"
            raise KernelError(f"Kernel {text!r} cannot be read: a kernel key was expected, but {instead}.")
        return atom(token, names_in(advance()) if peek().startswith("[") else None)

    def term(depth: int) -> Covariance:
        value = factor(depth)
        while peek() == "*":
            advance()
            value = value * factor(depth)
        return value

    def total(depth: int) -> Covariance:
        value = term(depth)
        while peek() == "+":
            advance()
            value = value + term(depth)
        return value

    kernel = total(0)
    if peek():
        raise KernelError(f"Kernel {text!r} cannot be read: {peek()!r} was not expected; join keys by + and *.")
    return kernel
