"""The nouns every floor shares: data and problem going in, steps and outcomes coming out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor


@runtime_checkable
class Kernel(Protocol):
    """A covariance function k(theta, X, Z).

    `theta` [p] holds log-hyperparameters, an argument so that folds, chains and minibatches can each bring
    their own; its last entry is the log noise standard deviation, which the covariance itself never reads.
    """

    key: str

    @property
    def names(self) -> tuple[str, ...]:
        """One name for each entry of theta, the last being "noise"."""

    def __call__(self, theta: Tensor, X: Any, Z: Any) -> Tensor:
        """Covariance [n, m] between the rows of X [n, d] and Z [m, d]."""

    def diag(self, theta: Tensor, X: Any) -> Tensor:
        """Prior variance [n] at each row of X, without forming a matrix."""

    def start(self, train: Dataset) -> Tensor:
        """A sensible first theta [p] for this data."""


@dataclass(frozen=True)
class Scale:
    """How scaled numbers return to the units of the file: x_file = x * x_sd + x_mean, likewise y."""

    x_mean: Tensor  # [d]
    x_sd: Tensor  # [d], 1 where a column is constant
    y_mean: float
    y_sd: float


@dataclass(frozen=True, eq=False)
class Dataset:
    """Rows of inputs with one target each.

    X is a tensor [n, d], or a sequence of n objects for discrete kernels; y is a tensor [n].
    `scale` is None while the numbers are in the units of the file.
    """

    X: Any
    y: Tensor
    names: tuple[str, ...] = ()
    target: str = "y"
    scale: Scale | None = None

    def __repr__(self) -> str:
        named = ", ".join(self.names[:4]) + (", ..." if len(self.names) > 4 else "")
        return f"<Dataset of {len(self):,} rows: {self.target} from {named or f'{self.d} inputs'}>"

    def __len__(self) -> int:
        return len(self.y)

    @property
    def d(self) -> int:
        """Number of input columns (1 for a sequence of objects)."""
        return self.X.shape[1] if isinstance(self.X, Tensor) else 1

    def rows(self, index: Tensor | Sequence[int]) -> Dataset:
        """The data set made of these rows, in this order."""
        index = torch.as_tensor(index, device=self.y.device)
        return replace(self, X=take(self.X, index), y=self.y[index])

    def to(self, device: str | torch.device, dtype: torch.dtype) -> Dataset:
        """The same rows on another device or in another precision; objects stay where they are."""
        X = self.X.to(device, dtype) if isinstance(self.X, Tensor) else self.X
        return replace(self, X=X, y=self.y.to(device, dtype))


def take(X: Any, index: Tensor) -> Any:
    """Rows `index` of a tensor, or of a sequence of objects."""
    if isinstance(X, Tensor):
        return X[index]
    return [X[i] for i in index.tolist()]


@dataclass(frozen=True, eq=False)
class Problem:
    """All a method may see: training rows, a kernel, and where its hyperparameters start. Never the test set."""

    train: Dataset
    kernel: Kernel
    theta: Tensor  # [p]


class Prediction(NamedTuple):
    """Mean [n] and variance [n] of f, or of y where the caller asked for the noise to be added."""

    mean: Tensor
    var: Tensor


Posterior = Callable[[Any], Prediction]


class Step(NamedTuple):
    """What a method yields: the state it can go on from, and what it reports (which it never reads back)."""

    state: Any
    info: Any


@dataclass(frozen=True)
class Outcome:
    """Why a method stopped: a word to test, a sentence to read."""

    reason: str  # one of OUTCOMES
    message: str


OUTCOMES = ("converged", "budget", "stopped", "diverged", "failed")


@dataclass(frozen=True)
class Channel:
    """One number a step reports: how an axis or a table column calls it."""

    name: str
    label: str
    unit: str = ""
    log: bool = False
    monotone: bool = False  # never rises from one step to the next


def channel(name: str, label: str, unit: str = "", *, log: bool = False, monotone: bool = False) -> Channel:
    """Declare a channel: `name` is a field of the method's info."""
    return Channel(name, label, unit, log, monotone)


@dataclass(frozen=True)
class Cost:
    """What one step is expected to cost: floating-point operations, bytes moved, and bytes held by each array.

    `calls` is how many tensor operations Python asks for, one after another: each takes a few microseconds however
    small it is, on top of its arithmetic. Views, which compute nothing, do not count.
    """

    flops: float
    bytes: float
    arrays: Mapping[str, float] = field(default_factory=dict)
    calls: float = 0.0

    @property
    def memory(self) -> float:
        """Bytes held at once."""
        return float(sum(self.arrays.values()))

    def plus(self, flops: float = 0.0, bytes: float = 0.0, calls: float = 0.0, **arrays: float) -> Cost:
        """This and so much more."""
        held = {**self.arrays, **arrays}
        return Cost(self.flops + flops, self.bytes + bytes, held, self.calls + calls)
