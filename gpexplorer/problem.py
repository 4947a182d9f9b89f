"""Types that all layers share: rows, data and problem as input of a method, steps and outcomes as its output."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .target_transforms import TargetTransform

Index = slice | Tensor | NDArray[np.integer] | Sequence[int]
CONVERGED = 0.05  # what "converged" means: a mean errs by at most this many noise sds, an objective by so many nats
OUTCOMES = ("converged", "budget", "stopped", "diverged", "failed")


class Columns(NamedTuple):
    """The names of the columns of a table, in the order in which its rows hold them."""

    numbers: tuple[str, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class MixedRows:
    """Rows of q numbers and p texts.

    Parameters
    ----------
    numbers : Tensor [n, q]
        The columns of numbers.
    texts : tuple of p tuples of n str
        The columns of text.
    """

    numbers: Tensor
    texts: tuple[tuple[str, ...], ...]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Index) -> MixedRows:
        """These rows, in this order; a sequence of row numbers, a tensor of them, or a slice."""
        if isinstance(index, slice):
            return MixedRows(self.numbers[index], tuple(column[index] for column in self.texts))
        places = torch.as_tensor(index)
        chosen = places.tolist()
        texts = tuple(tuple(column[i] for i in chosen) for column in self.texts)
        return MixedRows(self.numbers[places.to(self.numbers.device)], texts)

    def __iter__(self) -> Iterator[tuple[float | str, ...]]:
        """Each row as its numbers and then its texts."""
        for numbers, *texts in zip(self.numbers.tolist(), *self.texts, strict=True):
            yield (*numbers, *texts)

    def __repr__(self) -> str:
        return f"<{len(self):,} rows of {self.numbers.shape[1]:,} numbers and {len(self.texts)} texts>"

    @property
    def d(self) -> int:
        """Number of columns, q + p."""
        return self.numbers.shape[1] + len(self.texts)

    def with_numbers(self, numbers: Tensor) -> MixedRows:
        """The same texts beside other numbers [n, q]."""
        return replace(self, numbers=numbers)

    def to(self, device: str | torch.device, dtype: torch.dtype) -> MixedRows:
        """The same rows with their numbers on another device or in another precision."""
        return self.with_numbers(self.numbers.to(device, dtype))

    def joined(self, other: MixedRows) -> MixedRows:
        """These rows, and the others after them."""
        texts = tuple((*own, *added) for own, added in zip(self.texts, other.texts, strict=True))
        return MixedRows(torch.cat([self.numbers, other.numbers]), texts)


@runtime_checkable
class Kernel(Protocol):
    """A covariance function k(theta, X, Z).

    `theta` [p] contains log-hyperparameters. It is an argument so that folds, chains and minibatches can each use their
    own. Its last entry is the log noise standard deviation, which the covariance does not use.
    """

    key: str

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each entry of theta, the last being "noise"."""

    def __call__(self, theta: Tensor, X: Any, Z: Any) -> Tensor:
        """Covariance [n, m] between the rows of X [n, d] and Z [m, d]."""

    def diag(self, theta: Tensor, X: Any) -> Tensor:
        """Prior variance [n] of each row of X, without forming a matrix."""

    def start(self, train: Dataset) -> Tensor:
        """Initial theta [p] for this data."""


@dataclass(frozen=True)
class Scale:
    """How standardised numbers return to the units of the file: x_file = x * x_sd + x_mean, and likewise y.

    `x_mean` and `x_sd` have shape [d]; a standard deviation is 1 where a column is constant. With a transform of the
    target, T(y_file) = y * y_sd + y_mean. Where `x_log` [d] has a number c > 0, x * x_sd + x_mean is the signed
    logarithm sign(x_file) log(1 + |x_file| / c).
    """

    x_mean: Tensor
    x_sd: Tensor
    y_mean: float
    y_sd: float
    transform: TargetTransform | None = None
    x_log: Tensor | None = None

    def scaled_inputs(self, X: Tensor) -> Tensor:
        """Inputs [t, d] from the units of the file to the scaled space, in the precision of X."""
        if self.x_log is not None:
            c = self.x_log.to(X)
            logarithms = X.sign() * torch.log1p(X.abs() / torch.where(c > 0.0, c, 1.0))
            X = torch.where(c > 0.0, logarithms, X)
        return (X - self.x_mean.to(X)) / self.x_sd.to(X)

    def inputs_in_units(self, Z: Tensor) -> Tensor:
        """Inputs [t, d] from the scaled space to the units of the file, in float64."""
        Z = Z.double()
        X = Z * self.x_sd.to(Z) + self.x_mean.to(Z)
        if self.x_log is None:
            return X
        c = self.x_log.to(Z)
        is_log = c > 0.0
        logarithms = torch.where(is_log, X, 0.0)
        return torch.where(is_log, logarithms.sign() * c * torch.expm1(logarithms.abs()), X)

    def scaled_target(self, y: Tensor) -> Tensor:
        """Targets of any shape from the units of the file to the scaled space."""
        return ((y if self.transform is None else self.transform.forward(y)) - self.y_mean) / self.y_sd

    def target_in_units(self, y: Tensor) -> Tensor:
        """Targets of any shape from the scaled space to the units of the file, in float64."""
        y = y.double() * self.y_sd + self.y_mean  # an offset may have more digits than float32
        return y if self.transform is None else self.transform.inverse(y)

    def target_unit(self, target: str) -> str:
        """The unit of what is modelled of this target, in words: "price", or "log of price"."""
        return target if self.transform is None else f"{self.transform.words} of {target}"

    def log_derivative(self, y: Tensor) -> Tensor:
        """The log derivative of `scaled_target` at targets in the units of the file."""
        constant = -math.log(self.y_sd)
        return torch.full_like(y, constant) if self.transform is None else self.transform.log_derivative(y) + constant


class RowNoise(NamedTuple):
    """The noise of each row: variance_i = ratio_i * common.

    Attributes
    ----------
    ratio : Tensor [n]
        Positive numbers.
    common : float or None
        The common variance in the units of the file, or None if it is learned.
    """

    ratio: Tensor
    common: float | None = None


class RowGroups(NamedTuple):
    """Which rows are held out together where a method or a search holds rows out.

    Attributes
    ----------
    number : Tensor [n]
        Whole numbers. Rows with the same number are held out together; rows with -1 are never held out.
    are_folds : bool
        Whether each number is one fold. Otherwise they are groups, and each fold consists of whole groups.
    """

    number: Tensor
    are_folds: bool

    @property
    def distinct(self) -> int:
        """How many groups, or folds, there are."""
        return len(self.number[self.number >= 0].unique())


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of inputs with one target each.

    Parameters
    ----------
    X : Tensor [n, d], MixedRows or sequence
        Inputs: numbers, numbers and texts side by side, or n objects for kernels on strings and molecules.
    y : Tensor [n]
        Targets.
    names : tuple of str
        Names of the input columns; of mixed rows, first those of the numbers.
    target : str
        Name of the target.
    scale : Scale, optional
        How to return to the units of the file; None if the numbers are in these units.
    noise : RowNoise, optional
        The noise of each row, if rows differ in it; see `kernels.row_scaled`.
    groups : RowGroups, optional
        Which rows are held out together; without them, rows are held out at random.
    reader : data.reader.table_reader.TableReader, optional
        How the table was read that the rows come from, so that new rows are read alike.
    as_new : Tensor [n, d], optional
        The inputs of training rows as new rows would be read, where they differ: the mean of the targets of a word is
        that of the other rows in X, so that a row's own target is no input, and of all training rows here. Where only
        equal words matter, this is the number that stands for a word; see `read_as_new`.
    unknown : mapping of str to Tensor of bool [n], optional
        Of test rows: the columns of the table with cells that training does not know, such as a new word, which rows
        these are, and X has a value in the middle; see `posteriors.table_posterior.marginals_of_part`.
    """

    X: Any
    y: Tensor
    names: tuple[str, ...] = ()
    target: str = "y"
    scale: Scale | None = None
    noise: RowNoise | None = None
    groups: RowGroups | None = None
    reader: Any = None
    as_new: Tensor | None = None
    unknown: Mapping[str, Tensor] | None = None

    def __repr__(self) -> str:
        inputs = ", ".join(self.names[:4]) + (", ..." if len(self.names) > 4 else "")
        return f"<Dataset of {len(self):,} rows: {self.target} from {inputs or f'{self.d} inputs'}>"

    def __len__(self) -> int:
        return len(self.y)

    @property
    def d(self) -> int:
        """Number of input columns (1 for a sequence of objects)."""
        if isinstance(self.X, MixedRows):
            return self.X.d
        return self.X.shape[1] if isinstance(self.X, Tensor) else 1

    @property
    def columns(self) -> Columns | None:
        """The names of the input columns, by what they hold; None for a sequence of objects."""
        if isinstance(self.X, MixedRows):
            q = self.X.numbers.shape[1]
            return Columns(self.names[:q], self.names[q:])
        return Columns(self.names) if isinstance(self.X, Tensor) else None

    def rows(self, index: Tensor | Sequence[int]) -> Dataset:
        """Return the data set made of these rows, in this order."""
        index = torch.as_tensor(index, device=self.y.device)
        noise = self.noise and self.noise._replace(ratio=self.noise.ratio[index])
        groups = self.groups and self.groups._replace(number=self.groups.number[index])
        as_new = None if self.as_new is None else self.as_new[index]
        unknown = self.unknown and {source: mask[index.cpu()] for source, mask in self.unknown.items()}
        rows = replace(self, noise=noise, groups=groups, as_new=as_new, unknown=unknown)
        return replace(rows, X=take(self.X, index), y=self.y[index])

    def read_as_new(self, names: Sequence[str]) -> Dataset:
        """Return the same rows with these inputs as they would be in new rows."""
        if self.as_new is None or not names:
            return self
        places = [self.names.index(name) for name in names]
        X = self.X.clone()
        X[:, places] = self.as_new[:, places]
        return replace(self, X=X)

    def to(self, device: str | torch.device, dtype: torch.dtype) -> Dataset:
        """Return the same rows on another device or in another precision; objects are not moved."""
        X = self.X.to(device, dtype) if isinstance(self.X, Tensor | MixedRows) else self.X
        noise = self.noise and self.noise._replace(ratio=self.noise.ratio.to(device, dtype))
        groups = self.groups and self.groups._replace(number=self.groups.number.to(device))
        return replace(self, X=X, y=self.y.to(device, dtype), noise=noise, groups=groups)


def take(X: Any, index: Tensor) -> Any:
    """Return the rows `index` of a tensor, of mixed rows, or of a sequence of objects."""
    if isinstance(X, Tensor | MixedRows):
        return X[index]
    return [X[i] for i in index.tolist()]


def joined_rows(first: Any, second: Any) -> Any:
    """The rows of two tensors, arrays, mixed rows or sequences, one after another."""
    if isinstance(first, MixedRows):
        return first.joined(second)
    if isinstance(first, np.ndarray):
        return np.vstack([first, second])
    return torch.cat([first, second]) if isinstance(first, Tensor) else [*first, *second]


def rows_like(X: Any, like: Tensor) -> Any:
    """These inputs with the device and the precision of a tensor; objects, such as texts, have neither."""
    if isinstance(X, MixedRows):
        return X.to(like.device, like.dtype)
    return X.to(like) if isinstance(X, Tensor) else X


def described_rows(X: Any) -> str:
    """What these inputs are, for a sentence: "columns of numbers", "rows of numbers and texts" or "str objects"."""
    if isinstance(X, Tensor):
        return "columns of numbers"
    return "rows of numbers and texts" if isinstance(X, MixedRows) else f"{type(X[0]).__name__} objects"


@dataclass(frozen=True, eq=False)
class Problem:
    """All that a method may use: training rows, a kernel, and initial theta [p]. It never contains the test rows."""

    train: Dataset
    kernel: Kernel
    theta: Tensor


class Prediction(NamedTuple):
    """Mean [n] and variance [n] of f, or of y if the caller asked for the noise to be added."""

    mean: Tensor
    var: Tensor


Predictor = Callable[[Any], Prediction]  # a posterior as a plain function; `posteriors` has them as objects


class Step(NamedTuple):
    """What a method yields: the state, from which it can continue, and an info, which reports numbers.

    A method never reads its info again.
    """

    state: Any
    info: Any


@dataclass(frozen=True)
class Outcome:
    """Why a method stopped: `reason` is one of OUTCOMES, for programs; `message` is a sentence, for people."""

    reason: str
    message: str


@dataclass(frozen=True)
class Channel:
    """A number that every step reports: a field of the method's Info that becomes a curve and a column of a table.

    It is declared at the field by `channel`, and named by `channels_of`.

    Parameters
    ----------
    name : str
        The field of Info.
    label, unit : str
        How an axis names it.
    log : bool, default False
        Whether its axis is logarithmic.
    monotone : bool, default False
        Whether it never rises from one step to the next. A run watches this.
    """

    name: str
    label: str
    unit: str = ""
    log: bool = False
    monotone: bool = False

    @property
    def axis(self) -> str:
        """The label, with the unit if there is one, such as "objective F [nat]"."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


def channel(label: str, unit: str = "", *, log: bool = False, monotone: bool = False) -> Channel:
    """Declare that a field of an Info is a channel; see `Channel` for the arguments.

    Examples
    --------
    >>> class Info(NamedTuple):
    ...     objective: Annotated[float, channel("objective F", "nat", monotone=True)]
    >>> channels_of(Info)
    (Channel(name='objective', label='objective F', unit='nat', log=False, monotone=True),)
    """
    return Channel("", label, unit, log, monotone)


def channels_of(info: type, only: Sequence[str] = (), **instead: Channel) -> tuple[Channel, ...]:
    """Return the channels that the fields of an Info declare, in their order.

    Parameters
    ----------
    info : type
        A named tuple.
    only : sequence of str
        The fields that a method reports, where it does not report all of its family.
    **instead : Channel
        For fields that a method reports under another label than its family.
    """
    hints = {name: get_args(hint) for name, hint in get_type_hints(info, include_extras=True).items()}
    declared = {name: each for name, hint in hints.items() for each in hint if isinstance(each, Channel)}
    return tuple(replace(each, name=name) for name, each in (declared | instead).items() if not only or name in only)


@dataclass(frozen=True)
class Cost:
    """The expected cost of one step.

    Parameters
    ----------
    flops : float
        Floating-point operations.
    bytes : float
        Bytes read and written.
    arrays : mapping from str to float
        Bytes of each array that exists at the same time.
    calls : float
        Tensor operations that Python requests one after another. Each takes a few microseconds, however small it is, in
        addition to its arithmetic. Views compute nothing and do not count.
    """

    flops: float
    bytes: float
    arrays: Mapping[str, float] = field(default_factory=dict)
    calls: float = 0.0

    @property
    def memory(self) -> float:
        """Bytes of all arrays together."""
        return float(sum(self.arrays.values()))

    def plus(self, flops: float = 0.0, bytes: float = 0.0, calls: float = 0.0, **arrays: float) -> Cost:
        """Return this cost with these amounts added; an array given here replaces one of the same name."""
        return Cost(self.flops + flops, self.bytes + bytes, {**self.arrays, **arrays}, self.calls + calls)
