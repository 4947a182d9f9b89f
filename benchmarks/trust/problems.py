"""The problems of `benchmarks trust`: public sets that are on this machine, and eight synthetic ones that are hard.

Each synthetic set except the one with outliers is a draw from the model that the methods assume: y = f(x) + e with
f ~ GP(0, k), k the SE kernel with one lengthscale per input, and e ~ N(0, s2). On these a calibrated method covers
95 % of new targets with its 95 % bands.

    symbols: n training rows, t test rows, d inputs, sf2 signal variance, s2 noise variance, ell lengthscales
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from gpexplorer import data
from gpexplorer.data import Split
from gpexplorer.errors import SettingError, closest
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.linalg.randomness import generator
from gpexplorer.problem import Dataset

from .dense_objectives import squared_exponential

PUBLIC = (
    "concrete", "stock", "energy", "housing", "airfoil", "servo", "forest", "breastcancer", "elevators", "kin40k",
    "protein", "pumadyn32nm", "calhousing", "yacht", "wine", "autompg",
)  # fmt: skip
TEST_ROWS = 300


@dataclass(frozen=True)
class TrustProblem:
    """One data set of the table.

    Attributes
    ----------
    name : str
        Its name in the table.
    from_model : bool
        Whether it is a draw from the model, so that coverage can be held against 95 %.
    about : str
        What is hard about it, or where it comes from.
    split : callable
        Takes the seed and the largest number of training rows, and gives training and test rows.
    """

    name: str
    from_model: bool
    about: str
    split: Callable[[int, int], Split]


def public_sets(names: str = "") -> list[str]:
    """The public sets with these names, joined by commas; without names, all sets of `PUBLIC` on this machine.

    Raises
    ------
    SettingError
        If a set is not on this machine.
    """
    is_cached = data.available()["cached"]
    if not names:
        return [name for name in PUBLIC if name in is_cached.index and is_cached[name]]
    chosen = [name.strip() for name in names.split(",")]
    for name in chosen:
        if name not in is_cached.index or not is_cached[name]:
            raise SettingError(
                f"The data set {name!r} is not on this machine; fetch it with `gpexplorer data fetch {name}`."
            )
    return chosen


def problems(names: Iterable[str] = ()) -> list[TrustProblem]:
    """The problems of these names; without names, all synthetic ones and the public sets on this machine."""
    available = data.available()
    everything = {problem.name: problem for problem in [*SYNTHETIC, *map(_public, public_sets())]}
    chosen = list(names) or list(everything)
    for name in chosen:
        if name not in everything and name in available.index:
            everything[name] = _public(name)
        if name not in everything:
            raise SettingError(f"There is no set {name!r} to measure trust on{closest(name, everything)}")
    return [everything[name] for name in chosen]


def _public(name: str) -> TrustProblem:
    def split(seed: int, rows: int) -> Split:
        loaded = data.load(name, split=seed)
        train = _some_rows(loaded.train, rows, seed)
        return Split(train, _some_rows(loaded.test, TEST_ROWS, seed), name, key=f"{name}/{seed}/{rows}")

    return TrustProblem(name, False, "public set", split)


def _some_rows(rows: Dataset, most: int, seed: int) -> Dataset:
    return rows.rows(torch.randperm(len(rows), generator=generator(seed, "trust rows"))[:most])


def draw(X: Tensor, log_ell: Tensor, s2: float, seed: int, sf2: float = 1.0) -> Tensor:
    """Targets [n] drawn from the model at inputs X [n, d], by the Cholesky factor of K + 1e-10 sf2 I: n^3 / 3 flops."""
    theta = torch.cat([X.new_tensor([0.5 * torch.log(torch.tensor(sf2))]), log_ell, X.new_zeros(1)])
    K = squared_exponential(theta, X, X)  # [n, n]
    K.diagonal().add_(1e-10 * sf2)
    L = cholesky(K, "K of the draw").L
    normal = torch.randn(2, len(X), generator=generator(seed, "trust draw"), dtype=X.dtype)  # [2, n]
    return L @ normal[0] + s2**0.5 * normal[1]


def _uniform(n: int, d: int, seed: int) -> Tensor:
    return torch.rand(n, d, generator=generator(seed, "trust inputs"), dtype=torch.float64)


def _synthetic(
    name: str, about: str, make: Callable[[int, int], tuple[Tensor, Tensor]], most: int = 10**6, from_model: bool = True
) -> TrustProblem:
    """A problem from a function of (n, seed) that gives X [n, d] and y [n]; the last TEST_ROWS rows are for testing."""

    def split(seed: int, rows: int) -> Split:
        n = min(rows, most)
        X, y = make(n + TEST_ROWS, seed)
        names = tuple(f"x{i + 1}" for i in range(X.shape[1]))
        train, test = Dataset(X[:n], y[:n], names), Dataset(X[n:], y[n:], names)
        return Split(train, test, name, key=f"trust-{name.replace(' ', '-')}-{seed}-{n}")

    return TrustProblem(name, from_model, about, split)


def _from_prior(d: int, ell: float, s2: float) -> Callable[[int, int], tuple[Tensor, Tensor]]:
    def make(n: int, seed: int) -> tuple[Tensor, Tensor]:
        X = _uniform(n, d, seed)
        return X, draw(X, torch.full((d,), ell, dtype=X.dtype).log(), s2, seed)

    return make


def _tiny_lengthscale(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Clusters of rows far apart: the lengthscale of input 1 is about 1e-4 of its range, and rows still correlate."""
    X = 2.0 * _uniform(n, 2, seed)
    clusters = max(n // 25, 2)
    place = torch.randint(clusters, (n,), generator=generator(seed, "trust clusters")).to(X)
    X[:, 0] += place * (1e4 / clusters)
    return X, draw(X, torch.zeros(2, dtype=X.dtype), 0.05, seed)


def _duplicates(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """About three observations of each of n / 3 places."""
    X = _uniform(max(n // 3, 2), 2, seed)
    X = X[torch.randint(len(X), (n,), generator=generator(seed, "trust duplicates"))]
    return X, draw(X, torch.full((2,), 0.3, dtype=X.dtype).log(), 0.1, seed)


def _irrelevant_inputs(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """30 inputs, of which the first three matter."""
    X = _uniform(n, 30, seed)
    return X, draw(X[:, :3].contiguous(), torch.full((3,), 0.5, dtype=X.dtype).log(), 0.05, seed)


def _outliers(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """5 % of the rows have noise with 20 times the standard deviation."""
    X, y = _from_prior(2, 0.3, 0.01)(n, seed)
    rng = generator(seed, "trust outliers")
    outlier = torch.rand(n, generator=rng, dtype=X.dtype) < 0.05
    return X, y + 2.0 * outlier * torch.randn(n, generator=rng, dtype=X.dtype)


SYNTHETIC = (
    _synthetic("model draw", "d = 3, ell = 0.5, sf2 / s2 = 10", _from_prior(3, 0.5, 0.1)),
    _synthetic("high signal", "d = 3, ell = 0.7, sf2 / s2 = 1e5", _from_prior(3, 0.7, 1e-5)),
    _synthetic("tiny lengthscale", "clusters of rows; ell is 1e-4 of the range of input 1", _tiny_lengthscale),
    _synthetic("heavy noise", "d = 3, ell = 0.5, sf2 / s2 = 0.1", _from_prior(3, 0.5, 10.0)),
    _synthetic("few rows", "30 training rows, d = 3, ell = 0.5, sf2 / s2 = 10", _from_prior(3, 0.5, 0.1), most=30),
    _synthetic("duplicates", "three observations of each place, sf2 / s2 = 10", _duplicates),
    _synthetic("30 inputs", "3 of 30 inputs matter, sf2 / s2 = 20", _irrelevant_inputs),
    _synthetic("outliers", "5 % of the rows with 20 times the noise", _outliers, from_model=False),
)
