"""The spectrum kernel on strings: how often two share each run of k letters.

    k(s, t) = sd^2 phi_s'phi_t / (|phi_s| |phi_t|),   phi_s = counts of every substring of length k

Leslie, Eskin and Noble (2002). Counts are hashed to no table: substrings are numbered as they are met in s and t.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy import sparse
from torch import Tensor

from ..errors import KernelError
from ..problem import Dataset
from .base import Covariance, target_sd

LENGTH = 3  # letters


class Spectrum(Covariance):
    """theta = [log sd, log noise sd]; X is a sequence of strings. One pass over the letters and a sparse product."""

    key, title, inputs = "spectrum", "spectrum of substrings", "strings"
    formula = r"\sigma_f^2 \frac{\phi_s^\top\phi_t}{|\phi_s||\phi_t|}"

    @property
    def own_names(self) -> tuple[str, ...]:
        """The standard deviation."""
        return ("sd",)

    def check(self, X: Any) -> None:
        """Anything but strings is refused."""
        odd = next((i for i, s in enumerate(X) if not isinstance(s, str)), None)
        if odd is not None:
            raise KernelError(f"Kernel {self.key!r} needs strings, but row {odd} is a {type(X[odd]).__name__}.")

    def __call__(self, theta: Float[Tensor, " p"], X: Sequence[str], Z: Sequence[str]) -> Float[Tensor, "n m"]:
        """Covariance [n, m]."""
        numbers: dict[str, int] = {}
        left, right = spectra(X, numbers), spectra(Z, numbers)
        left.resize(left.shape[0], len(numbers))
        similar = torch.from_numpy((left @ right.T).toarray()).to(theta)
        return torch.exp(2.0 * theta[0]) * similar

    def diag(self, theta: Float[Tensor, " p"], X: Sequence[str]) -> Float[Tensor, " n"]:
        """The variance, n times; 0 for a string shorter than a substring."""
        long = torch.tensor([float(len(s) >= LENGTH) for s in X]).to(theta)
        return torch.exp(2.0 * theta[0]) * long

    def start_own(self, train: Dataset) -> list[float]:
        """The target's sd."""
        return [math.log(target_sd(train))]


def spectra(texts: Sequence[str], numbers: dict[str, int]) -> sparse.csr_array:
    """Unit rows of substring counts [n, substrings met so far]; `numbers` grows by the new ones."""
    columns, values, ends = [], [], [0]
    for text in texts:
        counts = Counter(text[i : i + LENGTH] for i in range(len(text) - LENGTH + 1))
        length = math.sqrt(sum(c * c for c in counts.values())) or 1.0
        columns += [numbers.setdefault(part, len(numbers)) for part in counts]
        values += [c / length for c in counts.values()]
        ends.append(len(columns))
    held = (np.array(values, dtype=float), np.array(columns, dtype=np.int64), np.array(ends, dtype=np.int64))
    return sparse.csr_array(held, shape=(len(texts), len(numbers)))
