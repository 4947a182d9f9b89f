"""Data sets that are drawn from a formula, so that the noiseless function is known. GENERATORS has one entry for each.

    y = f(x) + noise * e,  e ~ N(0, 1)

Inputs, function values and errors come from one `torch.Generator` with the given seed; the global random state does not
change.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor

from ...errors import DataError, is_finite
from ...problem import Dataset, MixedRows
from ..quoting import listing, quote

_MAX_GP_ROWS = 4_000  # limit of n for a draw from a GP, which needs an eigendecomposition [n, n] in O(n^3)
LARGEST_SEED = 2**63 - 1
_GAP = (2.6, 3.5)  # the interval without inputs in snelson-like
Truth = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Recipe:
    """A generator of data sets.

    Parameters
    ----------
    title, formula : str
        What the page shows.
    n, d, noise : int, int, float
        Defaults: rows, inputs, and the standard deviation of the noise.
    inputs : callable
        inputs(rng, n, d) draws X [n, d].
    truth : callable or None
        truth(X) computes f [n]; None for a draw from a Gaussian process.
    d_bounds : tuple of int
        Smallest and largest number of inputs.
    words : tuple of str
        What the whole numbers in the last column stand for; it is then a column of text.
    names : tuple of str
        Names of the columns; x1, x2 and so on if empty.
    kernel : str
        The kernel that its rows need; empty if any kernel of numbers will do.
    """

    title: str
    formula: str
    n: int
    d: int
    noise: float
    inputs: Callable[[Generator, int, int], Tensor]
    truth: Truth | None
    d_bounds: tuple[int, int]
    words: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    kernel: str = ""


def _uniform(low: float, high: float) -> Callable[[Generator, int, int], Tensor]:
    def draw(rng: Generator, n: int, d: int) -> Tensor:
        return low + (high - low) * torch.rand(n, d, generator=rng, dtype=torch.float64)

    return draw


def _around_gap(rng: Generator, n: int, d: int) -> Tensor:
    """Draw inputs that are uniform on [0, 6] without the gap."""
    width = _GAP[1] - _GAP[0]
    x = _uniform(0.0, 6.0 - width)(rng, n, d)
    return torch.where(x < _GAP[0], x, x + width)


def _wiggles(X: Tensor) -> Tensor:
    x = X[:, 0]
    return torch.sin(3 * x) + 0.1 * x * torch.sin(7 * x)


def _doses(rng: Generator, n: int, d: int) -> Tensor:
    """Draw a dose that is uniform on [0, 6], and one of four groups."""
    return torch.cat([_uniform(0.0, 6.0)(rng, n, 1), torch.randint(4, (n, 1), generator=rng).double()], 1)


def _response(X: Tensor) -> Tensor:
    return (1 + 0.5 * X[:, 1]) * torch.sin(X[:, 0] + 0.4 * X[:, 1])


def _friedman(X: Tensor) -> Tensor:
    return 10 * torch.sin(math.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + 10 * X[:, 3] + 5 * X[:, 4]


def _waves(X: Tensor) -> Tensor:
    return math.sqrt(2 / X.shape[1]) * torch.sin(2 * math.pi * X).sum(1)


GENERATORS: Mapping[str, Recipe] = {
    "snelson-like": Recipe(
        "One input, wiggles and a gap",
        f"f(x) = sin 3x + (x/10) sin 7x, x uniform on [0, 6] without {list(_GAP)}; in the manner of Snelson's toy set",
        200, 1, 0.25, _around_gap, _wiggles, (1, 1),
    ),
    "sin-product": Recipe(
        "A product of sines",
        "f(x) = sin x1 sin x2 ..., x uniform on [-pi, pi]^d; noise variance 0.1 (Evans and Nair 2018, figure 1)",
        400, 2, math.sqrt(0.1), _uniform(-math.pi, math.pi), lambda X: torch.sin(X).prod(1), (1, 10),
    ),
    "friedman1": Recipe(
        "Friedman's first function",
        "f(x) = 10 sin(pi x1 x2) + 20 (x3 - 1/2)^2 + 10 x4 + 5 x5, x uniform on [0, 1]^d; the inputs from x6 on "
        "have no effect (Friedman 1991)",
        1_000, 10, 1.0, _uniform(0.0, 1.0), _friedman, (5, 1_000),
    ),
    "hypercube": Recipe(
        "Waves on a hypercube of any dimension",
        "f(x) = sqrt(2/d) sum_i sin(2 pi x_i), variance 1, x uniform on [0, 1]^d",
        1_000, 5, 0.1, _uniform(0.0, 1.0), _waves, (1, 10_000),
    ),
    "doses": Recipe(
        "Response to a dose, in four groups",
        "f = (1 + k/2) sin(dose + 0.4 k) in group k = 0 to 3; dose uniform on [0, 6]; the group is a word",
        300, 2, 0.2, _doses, _response, (2, 2), ("control", "low", "middle", "high"), ("dose", "group"),
        "se*category",
    ),
    "gp-draw": Recipe(
        "A draw from a Gaussian process",
        "f ~ GP(0, k), x uniform on [-sqrt 3, sqrt 3]^d (sd 1); k is any kernel key with theta, or with its start",
        500, 1, 0.1, _uniform(-math.sqrt(3), math.sqrt(3)), None, (1, 1_000),
    ),
}  # fmt: skip


def generate(name: str, options: Mapping[str, Any]) -> Dataset:
    """Draw a data set.

    Parameters
    ----------
    name : str
        A key of GENERATORS.
    options : mapping
        n, d, noise, seed; for a draw from a Gaussian process also kernel and theta.

    Returns
    -------
    Dataset
        All rows, in float64. O(n d); a draw from a Gaussian process costs O(n^3).
    """
    recipe = GENERATORS[name]
    values = complete(name, options)
    n, d = values["n"], values["d"]
    rng = torch.Generator().manual_seed(values["seed"])
    X = recipe.inputs(rng, n, d)
    f = recipe.truth(X) if recipe.truth else _gp_draw(X, rng, values["kernel"], values["theta"])
    y = f + values["noise"] * torch.randn(n, generator=rng, dtype=torch.float64)
    names = recipe.names or (tuple(f"x{i + 1}" for i in range(d)) if d > 1 else ("x",))
    if recipe.words:
        words = tuple(recipe.words[k] for k in X[:, -1].int().tolist())
        return Dataset(MixedRows(X[:, :-1], (words,)), y, names, "y")
    return Dataset(X, y, names, "y")


def truth(source: str | Mapping[str, Any]) -> Truth | None:
    """Return the noiseless f [n] of numbers X [n, d] of a generator, in the units of the data, or None.

    None if it has no formula, or if its rows hold words as well.
    """
    name = source if isinstance(source, str) else str(source.get("name"))
    return GENERATORS[name].truth if name in GENERATORS and not GENERATORS[name].words else None


def complete(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a generator with its defaults; DataError if one of them is wrong."""
    recipe = GENERATORS[name]
    defaults: dict[str, Any] = {"n": recipe.n, "d": recipe.d, "noise": recipe.noise, "seed": 0}
    defaults |= {"kernel": "se-ard", "theta": None} if recipe.truth is None else {}
    values = completed(name, options, defaults)
    _check_theta(name, values.get("theta"))
    check_whole(name, "n", values["n"], 3, most_rows(name))
    check_whole(name, "d", values["d"], *recipe.d_bounds)
    check_whole(name, "seed", values["seed"], 0, LARGEST_SEED)
    if values["n"] * values["d"] > 10**9:
        raise DataError(f"{name}: n={values['n']:,} rows of d={values['d']:,} inputs need over 8 GB: lower n or d.")
    noise = values["noise"]
    if isinstance(noise, bool) or not isinstance(noise, int | float) or not is_finite(noise) or noise < 0:
        raise DataError(f"{name}: noise={quote(noise)} is not a standard deviation: give a number of at least 0.")
    return values


def most_rows(name: str) -> int:
    """Return the largest number of rows that a generator draws."""
    return _MAX_GP_ROWS if GENERATORS[name].truth is None else 10_000_000


def rows_without_values(name: str, options: Mapping[str, Any]) -> Dataset:
    """Return rows that a split divides as it divides those of `generate`, without the cost of their targets.

    Only a single input is drawn, because a division in time reads it. No split reads several inputs, and these are 0.
    """
    values = complete(name, options)
    zero = torch.zeros(1, dtype=torch.float64)
    X, n = zero.expand(values["n"], values["d"]), values["n"]
    if values["d"] == 1:
        X = GENERATORS[name].inputs(torch.Generator().manual_seed(values["seed"]), n, 1)
    return Dataset(X, zero.expand(n))


def completed(name: str, options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return these options with the defaults of the others; DataError for an option that has none."""
    unknown = [key for key in options if key not in defaults]
    if unknown:
        raise DataError(f"{name} has no option {listing(unknown)}; it has {listing(defaults)}.")
    return {**defaults, **options}


def check_whole(name: str, option: str, value: object, low: int, high: int) -> None:
    """Raise DataError unless the value of an option is a whole number in this range."""
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise DataError(f"{name}: {option}={quote(value)} must be a whole number from {low:,} to {high:,}.")


def _check_theta(name: str, theta: object) -> None:
    if theta is None:
        return
    entries = theta if isinstance(theta, Sequence) and not isinstance(theta, str) else [None]
    if not all(isinstance(t, int | float) and not isinstance(t, bool) and abs(t) <= 100 for t in entries):
        raise DataError(f"{name}: theta={quote(theta)} must be a list of log-hyperparameters, each from -100 to 100.")


def _gp_draw(X: Tensor, rng: Generator, key: str, theta: Sequence[float] | None) -> Tensor:
    """Draw f = V sqrt(max(e, 0)) z with K = V diag(e) V', which needs no jitter even if K is singular to rounding."""
    from ... import kernels

    kernel = kernels.make(key, X.shape[1])
    z = torch.randn(len(X), generator=rng, dtype=X.dtype)
    theta_tensor = kernel.start(Dataset(X, z)) if theta is None else torch.as_tensor(theta, dtype=X.dtype)
    if theta is not None and theta_tensor.shape != (len(kernel.names),):
        raise DataError(
            f"gp-draw: theta has {theta_tensor.numel():,} entries, but {key} needs {listing(kernel.names)}."
        )
    e, V = torch.linalg.eigh(kernel(theta_tensor, X, X))  # [n], [n, n]
    return V @ (e.clamp_min(0).sqrt() * z)
