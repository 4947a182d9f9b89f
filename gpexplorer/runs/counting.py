"""A kernel that counts the entries it computes: the one measure of work that no machine changes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from ..problem import Dataset, Kernel

# What a kernel may offer beside its values, each computing every entry once: theta_gradient(theta, X, Z, G [n, m]),
# theta_gradient_bilinear(theta, X, Z, (u [n], z [m])), theta_gradient_diag(theta, X, g [n]) and
# fill(theta, X, Z, out [n, m]),
# slope(theta, r2 [n, m]); and by_input(theta), 1-D covariances to be called later.
ARRAYS = ("theta_gradient", "theta_gradient_bilinear", "theta_gradient_diag", "fill")
SLOPES, FACTORS = "slope", "by_input"


class Counter:
    """Kernel entries computed so far."""

    def __init__(self, entries: int = 0) -> None:
        self.entries = entries


class Counted:
    """The same kernel, with every entry it computes added to `counter`; all else is passed through.

    A part taken from a composite kernel counts as well, so a method cannot compute unseen.
    """

    def __init__(self, kernel: Kernel, counter: Counter) -> None:
        self._kernel, self._counter = kernel, counter
        self.key = kernel.key

    @property
    def names(self) -> tuple[str, ...]:
        """The names of theta's entries."""
        return self._kernel.names

    def __call__(self, theta: Tensor, X: Any, Z: Any) -> Tensor:
        """Covariance [n, m]: n m entries."""
        self._counter.entries += len(X) * len(Z)
        return self._kernel(theta, X, Z)

    def diag(self, theta: Tensor, X: Any) -> Tensor:
        """Prior variances [n]: n entries."""
        self._counter.entries += len(X)
        return self._kernel.diag(theta, X)

    def start(self, train: Dataset) -> Tensor:
        """The kernel's own start."""
        return self._kernel.start(train)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # half-built, as in copying: there is no kernel to ask yet
            raise AttributeError(name)
        found = getattr(self._kernel, name)
        if name in ARRAYS:
            return lambda theta, *rest: self._metered(partial(found, theta), rest[:-1])(*rest)
        if name == SLOPES:
            return lambda theta, r2: self._metered(partial(found, theta), [range(size) for size in r2.shape])(r2)
        if name == FACTORS:
            return lambda theta: [self._factor(k) for k in factors] if (factors := found(theta)) else None
        return self._wrapped(found)

    def _factor(self, k: Callable[[Any, Any], Tensor]) -> Callable[[Any, Any], Tensor]:
        return lambda x, z: self._metered(k, (x, z))(x, z)

    def _metered(self, work: Callable[..., Any], rows: Sequence[Any]) -> Callable[..., Any]:
        """The work, once its entries (the rows of X, times those of Z if there is one) are counted."""
        self._counter.entries += math.prod(map(len, rows))
        return work

    def _wrapped(self, value: Any) -> Any:
        if isinstance(value, Kernel):
            return Counted(value, self._counter)
        if isinstance(value, tuple) and any(isinstance(part, Kernel) for part in value):
            return tuple(map(self._wrapped, value))
        return value
