"""Sums and products of kernels, and the grammar of their names: "se-ard * periodic + linear[width]".

`OnColumns` is a kernel that reads some columns of the rows only, the "active dimensions": k(x, x') =
k_inner(x_S, x'_S).

In the text of a kernel the columns stand in brackets: "se-ard[width, height] * category[colour]", or those that it does
not read: "se-ard[all but weight]". In rows of numbers and texts, a kernel without brackets reads all columns of its
kind.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from ..errors import KernelError
from ..linalg.blocks import row_blocks
from ..problem import Columns, Dataset, MixedRows, described_rows
from .base import Covariance, OneInput, Sides, Theta, constant, operators, target_sd
from .distances import FILL_BYTES
from .stationary import with_several_periods

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
    operation: ClassVar[Callable[..., Tensor]]

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
        self.compares = all(part.compares for part in self.parts)
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
        return self.operation(*(part(own, X, Z) for part, own in self._split(theta)))

    def fill(self, theta: Theta, X: Any, Z: Any, out: Float[Tensor, "n m"]) -> None:
        """Write the first part into `out`, then combine it with the second part block by block."""
        (first, theta_1), (second, theta_2) = self._split(theta)
        first.fill(theta_1, X, Z, out)
        for rows in row_blocks(len(X), out.element_size() * max(len(Z), 1), out, FILL_BYTES):
            block = torch.empty_like(out[rows])
            second.fill(theta_2, X[rows], Z, block)
            self.operation(out[rows], block, out=out[rows])

    def diag(self, theta: Theta, X: Any) -> Float[Tensor, " n"]:
        """The two diagonals [n], combined."""
        return self.operation(*(part.diag(own, X) for part, own in self._split(theta)))

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Tensor], Tensor] | None:
        """Features of both parts, combined: they are independent of each other and have mean 0."""
        first, second = (part.random_features(own, count, draw) for part, own in self._split(theta))
        if first is None or second is None:
            return None
        return lambda X: self.operation(first(X), second(X))


class Sum(Composite):
    """k1 + k2: the prior of a sum of two independent functions."""

    sign, operation = "+", staticmethod(torch.add)

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

    sign, operation = "*", staticmethod(torch.mul)

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
    tokens = ["", *reversed(re.findall(TOKEN, text))]  # the next one is the last; "" stands for the end

    def factor(depth: int) -> Covariance:
        token = tokens.pop()
        if token == "(" and depth < MAX_DEPTH:
            inside = joined("+", depth + 1)
            if tokens.pop() != ")":
                raise KernelError(f"Kernel {text!r} has an opening parenthesis that is never closed.")
            return inside
        if not re.fullmatch(r"[A-Za-z0-9_-]+", token):
            instead = f"{token!r} was found" if token else "the text ends"
            raise KernelError(f"Kernel {text!r} cannot be read: a kernel key was expected, but {instead}.")
        return atom(token, names_in(tokens.pop()) if tokens[-1].startswith("[") else None)

    def joined(sign: str, depth: int) -> Covariance:
        operand = partial(joined, "*") if sign == "+" else factor
        value = operand(depth)
        while tokens[-1] == sign:
            tokens.pop()
            value = operators[sign](value, operand(depth))
        return value

    kernel = joined("+", 0)
    if rest := tokens.pop():
        raise KernelError(f"Kernel {text!r} cannot be read: {rest!r} was not expected; join keys by + and *.")
    return kernel


ALL_BUT = "all but "
PLAIN_NAME = re.compile(rf'(?!{ALL_BUT})[^\[\]",\s](?:[^\[\]",]*[^\[\]",\s])?')  # a column name that needs no quotes
NAME = re.compile(rf'\s*(?:"([^"]+)"|({PLAIN_NAME.pattern}))\s*')
NAMES = re.compile(rf"{NAME.pattern}(?:,{NAME.pattern})*")
SHOWN = 12  # an error lists at most this many column names


class AllBut(tuple[str, ...]):
    """The names of columns that a kernel does not read."""


class OnColumns(Covariance):
    """A kernel of some columns.

    Parameters
    ----------
    make : callable
        Makes the inner kernel for a number of inputs.
    columns : Columns, optional
        The columns of the rows. Without them the kernel has a key but cannot compute.
    chosen : tuple of str or AllBut, optional
        Those that are read, or that are not; all of the inner kernel's kind if omitted.
    d : int
        Number of columns of the rows.

    Raises
    ------
    KernelError
        If a chosen column does not exist, or does not hold what the inner kernel reads.
    """

    def __init__(
        self, make: Callable[[int], Covariance], columns: Columns | None, chosen: tuple[str, ...] | None, d: int
    ) -> None:
        super().__init__(d)
        kind = make(1)
        self.reads_text, self.is_resolved = kind.inputs == "strings", columns is not None
        if columns is None:
            columns = Columns((), chosen or ()) if self.reads_text else Columns(chosen or ())
        of_its_kind = columns.texts if self.reads_text else columns.numbers
        read = of_its_kind if chosen is None else chosen
        _check_columns(kind, columns, read, chosen is None)
        leaves_out = isinstance(chosen, AllBut)
        if leaves_out and self.is_resolved:
            read = tuple(name for name in of_its_kind if name not in read)
            _check_columns(kind, columns, read, False)
        self.columns: Columns = columns
        self.chosen = read
        self.inner = make(len(read))
        self.places = tuple(of_its_kind.index(name) for name in read)
        listed = (ALL_BUT if leaves_out else "") + ", ".join(map(quoted_name, chosen or ()))
        self.key = self.inner.key if chosen is None else f"{self.inner.key}[{listed}]"
        self.inputs = "mixed" if columns.texts else self.inner.inputs
        self.stationary, self.compares = self.inner.stationary, self.inner.compares

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The names of the inner kernel."""
        return self.inner.parameter_names

    def part(self, X: Any) -> Any:
        """The columns that the inner kernel reads: a tensor [n, c], or n texts."""
        if self.reads_text:
            return X.texts[self.places[0]]
        numbers = X.numbers if isinstance(X, MixedRows) else X
        return numbers if self.places == tuple(range(numbers.shape[1])) else numbers[:, list(self.places)]

    def check(self, X: Any) -> None:
        """Raise KernelError unless the rows have the columns that the kernel was made for."""
        if not self.is_resolved:
            raise KernelError(
                f"Kernel {self.key!r} was made without the columns of the rows; give them, "
                "kernels.make(text, d, columns)."
            )
        if isinstance(X, MixedRows) != bool(self.columns.texts) or not isinstance(X, Tensor | MixedRows):
            raise KernelError(f"Kernel {self.key!r} was made for other columns than these {described_rows(X)}.")
        d = X.d if isinstance(X, MixedRows) else X.shape[1]
        if d != self.d:
            raise KernelError(f"Kernel {self.key!r} was made for d = {self.d} inputs, but X has {d}.")
        self.inner.check(self.part(X))

    def __call__(self, theta: Theta, X: Any, Z: Any) -> Float[Tensor, "n m"]:
        """Covariance [n, m] of the inner kernel."""
        return self.inner(theta, self.part(X), self.part(Z))

    def diag(self, theta: Theta, X: Any) -> Float[Tensor, " n"]:
        """Prior variance [n] of the inner kernel."""
        return self.inner.diag(theta, self.part(X))

    def fill(self, theta: Theta, X: Any, Z: Any, out: Float[Tensor, "n m"]) -> None:
        """Let the inner kernel write the covariance into `out`."""
        self.inner.fill(theta, self.part(X), self.part(Z), out)

    def theta_gradient(self, theta: Theta, X: Any, Z: Any, G: Tensor) -> Theta:
        """Gradient [p] of the inner kernel."""
        return self.inner.theta_gradient(theta, self.part(X), self.part(Z), G)

    def theta_gradient_from_matrix(self, theta: Theta, X: Any, Z: Any, sides: Sides, K: Tensor) -> Theta | None:
        """Gradient [p] of the inner kernel, or None."""
        return self.inner.theta_gradient_from_matrix(theta, self.part(X), self.part(Z), sides, K)

    def theta_gradient_bilinear(self, theta: Theta, X: Any, Z: Any, sides: Sides) -> Theta:
        """Gradient [p] of the inner kernel."""
        return self.inner.theta_gradient_bilinear(theta, self.part(X), self.part(Z), sides)

    def theta_gradient_diag(self, theta: Theta, X: Any, g: Tensor) -> Theta:
        """Gradient [p] of the inner kernel."""
        return self.inner.theta_gradient_diag(theta, self.part(X), g)

    def frequencies(self, theta: Theta, count: int, draw: torch.Generator) -> Float[Tensor, "count d"] | None:
        """Frequencies of the inner kernel, 0 in the other columns; None beside columns of text."""
        inner = None if self.columns.texts else self.inner.frequencies(theta, count, draw)
        if inner is None:
            return None
        return inner.new_zeros(count, self.d).index_copy_(1, torch.tensor(self.places, device=inner.device), inner)

    def random_features(self, theta: Theta, count: int, draw: torch.Generator) -> Callable[[Any], Tensor] | None:
        """Features of the inner kernel; None for text."""
        inner = None if self.reads_text else self.inner.random_features(theta, count, draw)
        return None if inner is None else lambda X: inner(self.part(X))

    def by_input(self, theta: Theta) -> list[OneInput] | None:
        """The factors of the inner kernel, and 1 for the other columns; None beside columns of text."""
        inner = None if self.columns.texts else self.inner.by_input(theta)
        return None if inner is None else self._at_all_columns(inner)

    def terms(self, theta: Theta) -> list[list[OneInput]] | None:
        """The products of the inner kernel, with 1 for the other columns; None beside columns of text."""
        inner = None if self.columns.texts else self.inner.terms(theta)
        return None if inner is None else [self._at_all_columns(factors) for factors in inner]

    def _at_all_columns(self, factors: list[OneInput]) -> list[OneInput]:
        """One factor per column of the rows."""
        all_factors: list[OneInput] = [constant] * self.d
        for place, factor in zip(self.places, factors, strict=True):
            all_factors[place] = factor
        return all_factors

    def initial_values(self, train: Dataset) -> list[float]:
        """Those of the inner kernel for its columns."""
        return self.inner.initial_values(Dataset(self.part(train.X), train.y, self.chosen, train.target))


def _check_columns(kind: Covariance, columns: Columns, read: tuple[str, ...], all_of_its_kind: bool) -> None:
    """Raise KernelError unless these columns exist and hold what a kernel of this kind reads."""
    is_text = kind.inputs == "strings"
    words, other = ("text", columns.numbers) if is_text else ("numbers", columns.texts)
    available = columns.texts if is_text else columns.numbers
    listing = f"the columns of {words} are {_listing(available)}" if available else f"there is no column of {words}"
    for name in read:
        if name in other:
            raise KernelError(f"Kernel {kind.key!r} reads {words}, but column {name!r} holds none; {listing}.")
        if name not in available:
            raise KernelError(f"Kernel {kind.key!r}: there is no column {name!r}; {listing}.")
    if len(set(read)) < len(read):
        raise KernelError(f"Kernel {kind.key!r} names a column twice: {_listing(read)}.")
    if not read:
        raise KernelError(f"Kernel {kind.key!r} reads {words}, but {listing}.")
    if is_text and len(read) > 1:
        way_out = f"say which, such as {kind.key}[{quoted_name(read[0])}]" if all_of_its_kind else "give it one"
        raise KernelError(f"Kernel {kind.key!r} reads one column of text, but got {_listing(read)}; {way_out}.")


def check_all_are_read(kernel: Covariance, columns: Columns) -> None:
    """Raise KernelError if no part of a kernel reads a column of text, or none reads the numbers beside them."""
    read = set(read_columns(kernel))
    unread = next((name for name in columns.texts if name not in read), None)
    if unread is not None:
        raise KernelError(
            f"No part of kernel {kernel.key!r} reads the column of text {unread!r}; add one, such as "
            f"category[{quoted_name(unread)}], or leave the column out of the inputs."
        )
    if columns.numbers and not read & set(columns.numbers):
        raise KernelError(
            f"No part of kernel {kernel.key!r} reads the columns of numbers {_listing(columns.numbers)}; add one, such "
            "as se-ard, or leave the columns out of the inputs."
        )


def atoms(kernel: Any) -> Iterator[Any]:
    """The kernels that are joined by sums and products, from left to right."""
    parts = getattr(kernel, "parts", ())
    if not parts:
        yield kernel
    for part in parts:
        yield from atoms(part)


def read_columns(kernel: Covariance) -> tuple[str, ...]:
    """The columns that a kernel reads, or the parts of it, where they were made for named columns."""
    return tuple(name for part in atoms(kernel) if isinstance(part, OnColumns) for name in part.chosen)


def compared_columns(kernel: object) -> tuple[str, ...]:
    """The named columns of numbers of which a kernel, or a part of it, asks only whether they are equal."""
    named = (part for part in atoms(kernel) if isinstance(part, OnColumns) and part.inner.compares)
    return tuple(name for part in named for name in part.chosen)


def _listing(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(map(repr, names[:SHOWN])) + more


def quoted_name(name: str) -> str:
    """A column name as it stands in brackets: with quotation marks where it has a comma, brackets or outer spaces."""
    return name if PLAIN_NAME.fullmatch(name) else f'"{name}"'


def names_in(brackets: str) -> tuple[str, ...]:
    """The column names in a text such as '[width, "height, in cm"]' or '[all but weight]'.

    Raises
    ------
    KernelError
        If it is not a list of names.
    """
    inside = brackets[1:-1].lstrip()
    kind: type[tuple[str, ...]] = AllBut if inside.startswith(ALL_BUT) else tuple
    inside = inside.removeprefix(ALL_BUT)
    if not NAMES.fullmatch(inside):
        raise KernelError(
            f"{brackets} is not a list of columns: write their names with commas between them, such as [width, "
            "height]; a name with a comma or a bracket in quotation marks."
        )
    return kind(quoted or plain for quoted, plain in NAME.findall(inside))
