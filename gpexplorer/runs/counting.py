"""What a run measures beside the method's own numbers: kernel entries, seconds, and the jitter that factors needed.

The count of kernel entries is the one measure of work that does not depend on the machine. `Counted` wraps the
problem's kernel for it. `device_time` reads the clock after the device has finished. `recording_jitter` notes the
largest jitter of every Cholesky factor that is computed inside a step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from ..linalg.cholesky import record_jitter
from ..linalg.interruption import go_on
from ..methods.base import Steps
from ..problem import Dataset, Kernel

# What a kernel may offer beside its values. Each of these computes every entry once:
#   theta_gradient(theta, X, Z, G [n, m]), theta_gradient_bilinear(theta, X, Z, (u [n], z [m])),
#   theta_gradient_diag(theta, X, g [n]), fill(theta, X, Z, out [n, m]), profile_derivative(theta, r2 [n, m]).
# by_input(theta) and terms(theta) give one-dimensional covariances, which compute entries when they are called later.
ARRAYS = ("theta_gradient", "theta_gradient_bilinear", "theta_gradient_diag", "fill")
DERIVATIVE, FACTORS = "profile_derivative", ("by_input", "terms")


class Counter:
    """The number of kernel entries computed so far.

    Parameters
    ----------
    entries : int
        The count to begin with, for a run that continues an earlier one.
    """

    def __init__(self, entries: int = 0) -> None:
        self.entries = entries

    def add(self, entries: int) -> None:
        """Count more entries, which are computed next; raise Interrupted if they are no longer wanted."""
        go_on()
        self.entries += entries


class PieceCounter(Counter):
    """Counts for the piece of work that its thread does at present; see `counted_piece`.

    A kernel that is sent to another process has this counter there, because the run's own is out of reach.
    """

    def add(self, entries: int) -> None:
        """Count more entries of this thread's piece of work."""
        _piece.entries = getattr(_piece, "entries", 0) + entries


_piece = threading.local()


def counted_piece(function: Callable[..., Any], *arguments: Any) -> tuple[Any, int]:
    """Do a piece of work that was sent here; return its result and the kernel entries that it computed."""
    _piece.entries = 0
    return function(*arguments), _piece.entries


class Counted:
    """A kernel that behaves like another one and adds every entry it computes to a counter.

    A part taken from a composite kernel counts as well, so a method cannot compute entries that are not counted.

    Parameters
    ----------
    kernel : Kernel
        The kernel that computes the entries. Attributes that compute no entries are passed through.
    counter : Counter
        Receives the number of entries, before they are computed.
    """

    def __init__(self, kernel: Kernel, counter: Counter) -> None:
        self._kernel, self.counter = kernel, counter
        self.key = kernel.key

    def __reduce__(self) -> tuple[Any, ...]:
        """A kernel that is sent elsewhere counts for the piece of work that it is sent with."""
        return Counted, (self._kernel, PieceCounter())

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the entries of theta."""
        return self._kernel.names

    def __call__(self, theta: Tensor, X: Any, Z: Any) -> Tensor:
        """Covariance matrix [n, m], which is counted as n m entries."""
        self.counter.add(len(X) * len(Z))
        return self._kernel(theta, X, Z)

    def diag(self, theta: Tensor, X: Any) -> Tensor:
        """Prior variances [n], which are counted as n entries."""
        self.counter.add(len(X))
        return self._kernel.diag(theta, X)

    def start(self, train: Dataset) -> Tensor:
        """The initial theta [p] that the kernel proposes for these rows."""
        return self._kernel.start(train)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # a copy that is not complete yet has no kernel to pass the attribute through from
            raise AttributeError(name)
        attribute = getattr(self._kernel, name)
        if name in ARRAYS:
            return lambda theta, *rest: self._metered(partial(attribute, theta), rest[:-1])(*rest)
        if name == DERIVATIVE:
            return lambda theta, r2: self._metered(partial(attribute, theta), [range(size) for size in r2.shape])(r2)
        if name in FACTORS:
            return lambda theta: self._factors(attribute(theta))
        return self._wrapped(attribute)

    def _factors(self, k: Any) -> Any:
        """One-dimensional covariances, in lists of any depth, that count when they are called; None stays None."""
        if isinstance(k, list):
            return [self._factors(part) for part in k]
        return k and (lambda x, z: self._metered(k, (x, z))(x, z))

    def _metered(self, work: Callable[..., Any], rows: Sequence[Any]) -> Callable[..., Any]:
        """Count the entries (rows of X, times rows of Z if there is a Z) and return the function that computes them."""
        self.counter.add(math.prod(map(len, rows)))
        return work

    def _wrapped(self, value: Any) -> Any:
        """The same value, with kernels inside it counted as well."""
        if isinstance(value, Kernel):
            return Counted(value, self.counter)
        if isinstance(value, tuple) and any(isinstance(part, Kernel) for part in value):
            return tuple(map(self._wrapped, value))
        return value


def device_time(clock: Callable[[], float], y: Tensor) -> float:
    """Read the clock once the device that holds `y` is idle, because a GPU returns before it has computed."""
    if y.device.type == "cuda":
        torch.cuda.synchronize(y.device)
    return clock()


def recording_jitter(steps: Steps, largest: dict[str, float]) -> Steps:
    """Yield the same steps, and record the jitter that their Cholesky factors needed.

    Parameters
    ----------
    steps : Steps
        The generator of a method. It is closed when this generator is closed.
    largest : dict of str to float
        Receives the largest jitter of each matrix, by the matrix's name. Factors that are computed in other
        processes, such as the workers of a cluster, are not seen.
    """
    try:
        while True:
            with record_jitter(largest):
                try:
                    step = next(steps)
                except StopIteration as end:
                    return end.value
            yield step
    finally:
        steps.close()


def jitter_sentence(jitters: dict[str, float]) -> str:
    """The jitter of each matrix as a sentence with a way out, or an empty text if no jitter was needed."""
    if not jitters:
        return ""
    amounts = ", ".join(f"{jitter:.1e} on {name}" for name, jitter in sorted(jitters.items()))
    return f"Jitter was needed: {amounts}. Raise the noise or drop duplicate rows if that matters."
