"""Sums and products of kernels, and the small grammar that names them: "se-ard * periodic + linear"."""

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
from .base import Covariance, target_sd
from .exponential import FILL_BYTES

OneInput = Callable[[Tensor, Tensor], Tensor]
DEEPEST = 20  # nested parentheses in a kernel's text


class Composite(Covariance):
    """Two kernels side by side: theta = [first's own, second's own, log noise sd]."""

    sign = ""

    def __init__(self, first: Covariance, second: Covariance) -> None:
        if first.d != second.d:
            raise KernelError(
                f"Cannot combine kernels for d = {first.d} and d = {second.d} inputs; make both for one d."
            )
        super().__init__(first.d)
        self.parts = (first, second)
        self.inputs = next((part.inputs for part in self.parts if part.inputs != "real"), "real")
        self.key = self.sign.join(self._text(part) for part in self.parts)

    def _text(self, part: Covariance) -> str:
        return f"({part.key})" if self.sign == "*" and isinstance(part, Sum) else part.key

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Each part's names behind its key, numbered where both parts have one key."""
        first, second = self.parts
        tags = (f"{first.key} 1", f"{second.key} 2") if first.key == second.key else (first.key, second.key)
        return tuple(
            f"{tag}: {name}" for part, tag in zip(self.parts, tags, strict=True) for name in part.parameter_names
        )

    def check(self, X: Any) -> None:
        """Both parts must accept the inputs."""
        for part in self.parts:
            part.check(X)

    def _split(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta, theta[self.parts[0].size :]

    def __call__(self, theta: Float[Tensor, " p"], X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Both matrices [n, m], combined."""
        return self.combine(*(part(at, X, Z) for part, at in zip(self.parts, self._split(theta), strict=True)))

    def diag(self, theta: Float[Tensor, " p"], X: Any) -> Float[Tensor, " n"]:
        """Both diagonals [n], combined."""
        return self.combine(*(part.diag(at, X) for part, at in zip(self.parts, self._split(theta), strict=True)))

    def _pairs(self, theta: Tensor) -> list[tuple[Covariance, Tensor]]:
        return list(zip(self.parts, self._split(theta), strict=True))

    def _place(self, theta: Tensor, slopes: list[Tensor]) -> Tensor:
        own = [slope[: part.size] for part, slope in zip(self.parts, slopes, strict=True)]
        return torch.cat([*own, theta.new_zeros(len(theta) - self.size)])

    @abstractmethod
    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        """The sum, or the product, of two matrices or diagonals."""


class Sum(Composite):
    """k1 + k2: effects that add."""

    sign = "+"

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        return first + second

    def theta_gradient(self, theta: Float[Tensor, " p"], X: Any, Z: Any, G: Tensor) -> Float[Tensor, " p"]:
        """A sum's gradient is its parts' gradients, each by its own closed form."""
        return self._place(theta, [part.theta_gradient(at, X, Z, G) for part, at in self._pairs(theta)])

    def fill(self, theta: Float[Tensor, " p"], X: Any, Z: Any, out: Float[Tensor, "n m"]) -> None:
        """The first part, and the second block by block on top of it."""
        (first, at_first), (second, at_second) = self._pairs(theta)
        first.fill(at_first, X, Z, out)
        for rows in row_blocks(len(X), out.element_size() * max(len(Z), 1), FILL_BYTES):
            block = torch.empty_like(out[rows])
            second.fill(at_second, X[rows], Z, block)
            out[rows] += block

    def theta_gradient_bilinear(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, sides: tuple[Tensor, Tensor]
    ) -> Float[Tensor, " p"]:
        """Likewise."""
        return self._place(theta, [part.theta_gradient_bilinear(at, X, Z, sides) for part, at in self._pairs(theta)])

    def theta_gradient_diag(self, theta: Float[Tensor, " p"], X: Any, g: Tensor) -> Float[Tensor, " p"]:
        """Likewise on the diagonal."""
        return self._place(theta, [part.theta_gradient_diag(at, X, g) for part, at in self._pairs(theta)])

    def initial_values(self, train: Dataset) -> list[float]:
        """Each part starts as if it shared the target's variance evenly."""
        shared = Dataset(train.X, train.y / (2.0**0.5), train.names, train.target, train.scale)
        return [value for part in self.parts for value in part.initial_values(shared)]


class Product(Composite):
    """k1 * k2: one effect modulated by another."""

    sign = "*"

    def combine(self, first: Tensor, second: Tensor) -> Tensor:
        return first * second

    def theta_gradient_from_matrix(
        self, theta: Float[Tensor, " p"], X: Any, Z: Any, sides: tuple[Tensor, Tensor], K: Tensor
    ) -> Float[Tensor, " p"] | None:
        """Each part's logarithm has a slope of its own, and K is the product of both."""
        slopes = [part.theta_gradient_from_matrix(at, X, Z, sides, K) for part, at in self._pairs(theta)]
        told = [slope for slope in slopes if slope is not None]
        return self._place(theta, told) if len(told) == len(slopes) else None

    def initial_values(self, train: Dataset) -> list[float]:
        """Only the first part carries the target's variance."""
        unit = Dataset(train.X, train.y / target_sd(train), train.names, train.target, train.scale)
        return [*self.parts[0].initial_values(train), *self.parts[1].initial_values(unit)]

    def by_input(self, theta: Float[Tensor, " p"]) -> list[OneInput] | None:
        """The product of the parts' factors, where both have them."""
        first, second = (part.by_input(at) for part, at in zip(self.parts, self._split(theta), strict=True))
        if first is None or second is None:
            return None

        def both(f: OneInput, g: OneInput) -> OneInput:
            return lambda x, z: f(x, z) * g(x, z)

        return [both(f, g) for f, g in zip(first, second, strict=True)]


def parse(text: str, atom: Callable[[str], Covariance]) -> Covariance:
    """Read `text` as a sum of products of kernel keys, parentheses allowed; `atom` makes a kernel of a key."""
    tokens = re.findall(r"[A-Za-z0-9_-]+|[+*()]|\S", text)
    place = 0

    def peek() -> str:
        return tokens[place] if place < len(tokens) else ""

    def advance() -> str:
        nonlocal place
        place += 1
        return tokens[place - 1] if place <= len(tokens) else ""

    def factor(depth: int) -> Covariance:
        token = advance()
        if token == "(" and depth < DEEPEST:
            inside = total(depth + 1)
            if advance() != ")":
                raise KernelError(f"Kernel {text!r} has an opening parenthesis that is never closed.")
            return inside
        if not re.fullmatch(r"[A-Za-z0-9_-]+", token):
            found = f"{token!r} found" if token else "the text ends"
            raise KernelError(f"Kernel {text!r} cannot be read: a kernel key was expected, but {found}.")
        return atom(token)

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
