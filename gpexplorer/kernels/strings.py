"""Kernels on strings: how often two share each run of k letters, exactly or but for a letter.

    k(s, t) = sd^2 phi_s'phi_t / (|phi_s| |phi_t|)
    spectrum   phi_s = counts of every substring of length k                         Leslie, Eskin and Noble (2002)
    mismatch   phi_s = counts of every string of length k over an alphabet of A letters that differs from a substring
               of s in at most one place                                             Leslie et al. (2004)

Two substrings that differ in h places have 1 + k (A - 1), A, 2, 0 neighbours in common for h = 0, 1, 2, more. With W_g
the number of ways to strike out g places so that what is left agrees, that is

    (k - 1)^2 W_0 + (A - 2 (k - 1)) W_1 + 2 W_2

so a mismatch kernel needs 1 + k + k (k - 1) / 2 patterns a substring, however large its alphabet.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
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
ALPHABET = 20  # letters that a mismatch may put in: the amino acids
STRUCK = "\0"
KEPT = 50_000  # strings whose features are kept
WEIGHTS = ((LENGTH - 1.0) ** 2, ALPHABET - 2.0 * (LENGTH - 1), 2.0)  # of W_0, W_1, W_2

Features = dict[str, float]


class Substrings(Covariance):
    """theta = [log sd, log noise sd]; X is a sequence of strings. One pass over the letters and a sparse product."""

    inputs = "strings"

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """The standard deviation."""
        return ("sd",)

    @staticmethod
    @abstractmethod
    def features(text: str) -> Features:
        """phi of one string, by its nonzero entries."""

    def check(self, X: Any) -> None:
        """Anything but strings is refused."""
        odd = next((i for i, s in enumerate(X) if not isinstance(s, str)), None)
        if odd is not None:
            raise KernelError(f"Kernel {self.key!r} needs strings, but row {odd} is a {type(X[odd]).__name__}.")

    def __call__(self, theta: Float[Tensor, " p"], X: Sequence[str], Z: Sequence[str]) -> Float[Tensor, "n m"]:
        """Covariance [n, m]."""
        numbers: dict[str, int] = {}
        left, right = unit_rows(X, self.features, numbers), unit_rows(Z, self.features, numbers)
        left.resize(left.shape[0], len(numbers))
        similar = torch.from_numpy((left @ right.T).toarray()).to(theta)
        return torch.exp(2.0 * theta[0]) * similar

    def diag(self, theta: Float[Tensor, " p"], X: Sequence[str]) -> Float[Tensor, " n"]:
        """The variance, n times; 0 for a string shorter than a substring."""
        long = torch.tensor([float(len(s) >= LENGTH) for s in X]).to(theta)
        return torch.exp(2.0 * theta[0]) * long

    def initial_values(self, train: Dataset) -> list[float]:
        """The target's sd."""
        return [math.log(target_sd(train))]


class Spectrum(Substrings):
    """Substrings shared exactly."""

    key, title = "spectrum", "spectrum of substrings"
    formula = r"\sigma_f^2 \frac{\phi_s^\top\phi_t}{|\phi_s||\phi_t|}"

    @staticmethod
    @lru_cache(KEPT)
    def features(text: str) -> Features:
        return {part: float(count) for part, count in _substrings(text).items()}


class Mismatch(Substrings):
    """Substrings shared but for a letter."""

    key, title = "mismatch", "spectrum with one mismatch"
    formula = r"\sigma_f^2 \frac{\phi_s^\top\phi_t}{|\phi_s||\phi_t|},\quad |u - \text{part of } s| \le 1"

    @staticmethod
    @lru_cache(KEPT)
    def features(text: str) -> Features:
        found: Counter[str] = Counter()
        for part, count in _substrings(text).items():
            for pattern in _struck(part):
                found[pattern] += count
        return {pattern: count * math.sqrt(WEIGHTS[pattern.count(STRUCK)]) for pattern, count in found.items()}


def _substrings(text: str) -> Counter[str]:
    text = text.replace(STRUCK, " ")
    return Counter(text[i : i + LENGTH] for i in range(len(text) - LENGTH + 1))


def _struck(part: str) -> list[str]:
    """The substring with none, one and two of its letters struck out."""
    places = [gone for g in range(3) for gone in combinations(range(LENGTH), g)]
    return ["".join(STRUCK if i in gone else letter for i, letter in enumerate(part)) for gone in places]


def unit_rows(texts: Sequence[str], features: Callable[[str], Features], numbers: dict[str, int]) -> sparse.csr_array:
    """Features at length one [n, features met so far]; `numbers` grows by the new ones."""
    columns, values, ends = [], [], [0]
    for text in texts:
        found = features(text)
        length = math.sqrt(sum(value * value for value in found.values())) or 1.0
        columns += [numbers.setdefault(part, len(numbers)) for part in found]
        values += [value / length for value in found.values()]
        ends.append(len(columns))
    held = (np.array(values, dtype=float), np.array(columns, dtype=np.int64), np.array(ends, dtype=np.int64))
    return sparse.csr_array(held, shape=(len(texts), len(numbers)))
