"""Kernels on strings: the more substrings of k letters two strings share, the larger their covariance.

    k(s, t) = sd^2 phi_s'phi_t / (|phi_s| |phi_t|)

    spectrum   phi_s = counts of every substring of length k                                 Leslie, Eskin, Noble (2002)
    mismatch   phi_s = counts of every string of length k over an alphabet of A letters that
               differs from a substring of s in at most one place                            Leslie et al. (2004)

The mismatch kernel is computed without listing these neighbours. Two substrings that differ in h places have
1 + k (A - 1), A, 2, 0 neighbours in common for h = 0, 1, 2, more. Let W_g be the number of ways to remove g places so
that the remaining letters agree. Then the number of common neighbours is

    (k - 1)^2 W_0 + (A - 2 (k - 1)) W_1 + 2 W_2

so the kernel needs 1 + k + k (k - 1) / 2 patterns per substring, however large the alphabet.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from ..problem import Dataset
from .base import Covariance, Theta, require_texts, target_sd

if TYPE_CHECKING:
    from scipy import sparse

LENGTH = 3  # letters of a substring, k
ALPHABET = 20  # letters of the alphabet, A: the amino acids
REMOVED = "\0"  # stands for a removed letter in a pattern
CACHED_STRINGS = 50_000  # strings whose features are cached
WEIGHTS = ((LENGTH - 1.0) ** 2, ALPHABET - 2.0 * (LENGTH - 1), 2.0)  # of W_0, W_1, W_2

Features = dict[str, float]


class Substrings(Covariance):
    """Base class of substring kernels: theta = [log sd, log noise sd]; X is a sequence of strings.

    A matrix takes one pass over the letters and one sparse product.
    """

    inputs = "strings"
    parameter_names = ("sd",)

    @staticmethod
    @abstractmethod
    def features(text: str) -> Features:
        """Nonzero entries of phi for one string."""

    def check(self, X: Any) -> None:
        """Raise KernelError if a row is not a string."""
        require_texts(self.key, X, "strings")

    def __call__(self, theta: Theta, X: Sequence[str], Z: Sequence[str]) -> Float[Tensor, "n m"]:
        """Covariance [n, m] between the strings X and Z."""
        columns: dict[str, int] = {}  # column of each feature
        Phi_X, Phi_Z = unit_rows(X, self.features, columns), unit_rows(Z, self.features, columns)
        Phi_X.resize(Phi_X.shape[0], len(columns))
        similarity = torch.from_numpy((Phi_X @ Phi_Z.T).toarray()).to(theta)  # [n, m]
        return torch.exp(2.0 * theta[0]) * similarity

    def diag(self, theta: Theta, X: Sequence[str]) -> Float[Tensor, " n"]:
        """The variance sd^2 [n], or 0 for a string shorter than a substring."""
        has_substring = torch.tensor([float(len(s) >= LENGTH) for s in X]).to(theta)
        return torch.exp(2.0 * theta[0]) * has_substring

    def initial_values(self, train: Dataset) -> list[float]:
        """The standard deviation of the targets."""
        return [math.log(target_sd(train))]


class Spectrum(Substrings):
    """Spectrum kernel: compares counts of equal substrings."""

    key, title = "spectrum", "spectrum of substrings"
    formula = r"\sigma_f^2 \frac{\phi_s^\top\phi_t}{|\phi_s||\phi_t|}"

    @staticmethod
    @lru_cache(CACHED_STRINGS)
    def features(text: str) -> Features:
        return {part: float(count) for part, count in _substrings(text).items()}


class Mismatch(Substrings):
    """Mismatch kernel: compares counts of substrings that differ in at most one letter."""

    key, title = "mismatch", "spectrum with one mismatch"
    formula = r"\sigma_f^2 \frac{\phi_s^\top\phi_t}{|\phi_s||\phi_t|},\quad |u - \text{part of } s| \le 1"

    @staticmethod
    @lru_cache(CACHED_STRINGS)
    def features(text: str) -> Features:
        patterns: Counter[str] = Counter()
        for part, count in _substrings(text).items():
            for pattern in _patterns(part):
                patterns[pattern] += count
        return {pattern: count * math.sqrt(WEIGHTS[pattern.count(REMOVED)]) for pattern, count in patterns.items()}


def _substrings(text: str) -> Counter[str]:
    text = text.replace(REMOVED, " ")
    return Counter(text[i : i + LENGTH] for i in range(len(text) - LENGTH + 1))


def _patterns(part: str) -> list[str]:
    """The substring with none, one and two of its letters removed."""
    choices = [places for g in range(3) for places in combinations(range(LENGTH), g)]
    return ["".join(REMOVED if i in places else letter for i, letter in enumerate(part)) for places in choices]


def unit_rows(texts: Sequence[str], features: Callable[[str], Features], columns: dict[str, int]) -> sparse.csr_array:
    """Feature vectors of length one, as rows [n, number of features]; new features are added to `columns`."""
    from scipy import sparse

    indices, values, ends = [], [], [0]
    for text in texts:
        entries = features(text)
        length = math.sqrt(sum(value * value for value in entries.values())) or 1.0
        indices += [columns.setdefault(part, len(columns)) for part in entries]
        values += [value / length for value in entries.values()]
        ends.append(len(indices))
    data = (np.array(values, dtype=float), np.array(indices, dtype=np.int64), np.array(ends, dtype=np.int64))
    return sparse.csr_array(data, shape=(len(texts), len(columns)))
