"""The candidates of a recommendation: methods with kernels and sizes that the rows, the time and the memory allow.

Sizes follow two rules. A method whose step costs O(n m^2) gets the number of inducing points m for which thirty steps
fit into its share of the time; an exact model gets the number of rows for which thirty factorisations, n^3 operations
each, fit into it. Both come from the speed of this machine, so that a faster machine is given larger models. The full
GP that is solved by blocks also learns its hyperparameters on that number of rows, and then uses all rows.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..data import Split
from ..kernels import make
from ..kernels.composites import quoted_name
from ..kernels.theta.restrictions import kernel_parameters
from ..linalg.periodogram import peaks
from ..linalg.randomness import generator
from ..linalg.seasons import is_curved, periods
from ..methods.base import registry
from ..problem import Dataset, MixedRows, RowNoise
from ..runs.opening import LEARNED_START, SEVERAL_STARTS
from ..runs.run import Run
from ..runs.spec import TRANSFORMS, Spec
from ..runs.studies.machine_speed import points_for, rows_for
from .held_out import FOLDS
from .relevance_pursuit import pursuit
from .row_order import is_series, numbers_of
from .row_questions import far_rows

EXACT_UP_TO = 3000  # training rows: beyond them the exact model is fitted to some of the rows
MOST_OF_GROUPS = 1000  # rows of a GP that is learned by holding out groups
DESCENT_UP_TO = 30_000  # training rows of the full GP that is solved by blocks: a step needs O(n) entries per row
LEARNING_SHARES = 12.0  # shares of the time in which thirty evaluations of the likelihood of all rows have to fit
SUBSET_SHARE = 0.5  # of a share, for the rows on which the full GP that is solved by blocks learns its hyperparameters
LEAST_SUBSET = 500  # of these rows, at least: the default of its methods
NETWORK_FROM = 400  # training rows: with fewer, a network is fitted to too few rows to set some aside
NEAR_INPUTS = 3  # inputs up to which each row may depend on its nearest rows only, where the exact GP takes too long
SEASON_SECONDS = 6e-6  # shares of the time per row and period from which states have periodic parts at once
GRID_INPUTS = 40  # inputs of a grid of eigenfunctions
ANOVA_INPUTS = 2, 40  # fewest and most inputs of a kernel that sums over them and their interactions
SEASON_INPUTS = 3  # inputs in which a period is looked for, if none of them is a time
APART = 1.05  # a period over a shorter one, from which they are two
MOST_WORDS = 30  # different texts of a column that is compared word by word
LEAST_PER_WORD, MOST_WORD_COLUMNS = 2.0, 2  # rows of a word, on the mean, from which it has a function of its own
PURSUIT_SECONDS, PURSUIT_SHARES = 0.006, 8.0  # to choose rows, per row and kernel, and what it may take of all
PURSUIT = ", relevance pursuit"  # the end of the name of a candidate that gives rows a noise of their own
NEIGHBOURS = "neighbours"  # the group of candidates whose rows depend on near ones only
GROUPS = "groups"  # the group of candidates that learn theta by holding out groups
FEW_ROWS = 60  # training rows, below which the noise and the lengthscales have priors
LEARNED_FROM = 1000  # training rows, from which an evaluation of their likelihood is dear beside those of 200
CURVE = re.compile(r"(linear \+ )?linear(\[[^\]]*\])? \* linear(\[[^\]]*\])?")  # a quadratic trend
EXACT = "exact"  # the group whose learned theta is the initial theta of other candidates with the same kernel


@dataclass(frozen=True)
class Candidate:
    """One method with its kernel and settings.

    Parameters
    ----------
    name : str
        What people read, such as "cholqr, matern52-ard, m = 256" or "ml, se-ard, log".
    group : str
        Candidates of one group profit from more rows in the same way; halving keeps the best of each group.
    method, kernel : str
        Keys.
    settings : dict
        The settings that differ from their defaults.
    all_rows : bool, default False
        Whether it is tried on all rows from the first stage on, because the cost of its step does not depend on their
        number. It then continues from stage to stage and is not begun again.
    target_transform : str
        A transform of the target, as `Spec` takes it.
    input_transform : str
        A transform of the inputs, as `Spec` takes it.
    pursues : bool, default False
        Whether rows that look far off get a noise of their own; see `relevance_pursuit`.
    most_rows : int, default 0
        It is fitted to so many of the rows, drawn at random; 0 for all of them.
    learned_start : bool, default False
        Whether learning begins where a descent on some rows has arrived, because the search may have time for few
        evaluations. A lengthscale per input of many inputs would be fitted to too few rows.
    has_priors : bool, default False
        Whether the noise and the lengthscales have priors; see `priors_for_few_rows`.
    """

    name: str
    group: str
    method: str
    kernel: str
    settings: dict[str, Any] = field(default_factory=dict)
    all_rows: bool = False
    target_transform: str = ""
    input_transform: str = ""
    pursues: bool = False
    most_rows: int = 0
    learned_start: bool = False
    has_priors: bool = False

    def prepared(self, split: Split) -> Split:
        """The rows as the run of this candidate takes them."""
        if 0 < self.most_rows < len(split.train):
            rows = torch.randperm(len(split.train), generator=generator(0, "rows of a candidate"))[: self.most_rows]
            split = replace(split, train=split.train.rows(rows), key=f"{split.key}/drawn-{self.most_rows}")
        if not self.pursues:
            return split
        train = replace(split.train, noise=RowNoise(pursuit(split, self.kernel).ratio))
        return replace(split, train=train, key=f"{split.key}/pursued-{self.kernel}")

    def spec(self, n: int, seed: int, options: Mapping[str, Any] = MappingProxyType({})) -> Spec:
        """The spec for n training rows, with options of the kernel, such as where learning begins."""
        settings = {
            name: min(value, n) if name in ("num_inducing", "num_rows") and isinstance(value, int) else value
            for name, value in self.settings.items()
        }
        transforms = {name: getattr(self, name) for name in TRANSFORMS}
        return Spec(self.method, settings, kernel={"name": self.kernel, **options}, seed=seed, **transforms)

    def opened(self, split: Split, seed: int, logs: Sequence[float] | None = None, anew: bool = False) -> Run:
        """A run on these rows, from hyperparameters that were learned on others if there are some.

        Parameters
        ----------
        logs : sequence of float, optional
            Logarithms of the hyperparameters in the units of the file: other rows are standardised in another way, and
            a period of a year is another number for them.
        anew : bool, default False
            Whether it learns from the start of its kernel, even if it has a `learned_start`.
        """
        rows, options = self.prepared(split), dict[str, Any]()
        if logs is not None or self.has_priors:
            kernel = make(self.kernel, rows.train.d, rows.train.columns)
            scaled = rows.scaled(kernel.inputs != "counts", self.target_transform, self.input_transform).train
        if logs is not None:
            options["theta"] = [logs[k] - unit for k, unit in enumerate(log_units(kernel, scaled))]
        else:
            options["start"] = LEARNED_START if self.learned_start and not anew else SEVERAL_STARTS
        if self.has_priors:
            options["priors"] = priors_for_few_rows(kernel, scaled)
        return self.spec(len(split.train), seed, options).open(data=rows)

    @property
    def model(self) -> tuple[str, str]:
        """The kernel and the transform of the target: candidates that share both can share hyperparameters."""
        return self.kernel, self.target_transform + PURSUIT * self.pursues

    def transformed(self, target_transform: str) -> Candidate:
        """The same for a transformed target, whose trend no longer bends."""
        kernel = CURVE.sub("linear", self.kernel)
        name = f"{self.name.replace(self.kernel, kernel)}, {target_transform}"
        return replace(self, name=name, kernel=kernel, target_transform=target_transform)


def log_units(kernel: Any, rows: Dataset) -> list[float]:
    """The logarithms of the units of theta [p] on these scaled rows."""
    return [math.log(parameter.factor) for parameter in kernel_parameters(kernel, rows)]


def priors_for_few_rows(kernel: Any, rows: Dataset) -> dict[str, str]:
    """Priors by which few rows cannot be explained without noise, nor by functions that change from row to row.

    The likelihood of a dozen rows is often highest at the least noise, where a 95 % band holds less than half of new
    rows. The logarithm of the noise has its mode at 0.3 sd of the target, that of a lengthscale at sqrt(d) sd of its
    input, each with a standard deviation of 1.

    Parameters
    ----------
    rows : Dataset
        Scaled rows, which know their units.

    Returns
    -------
    dict of str to str
        By name, in the units of the file, as `Spec` takes them.
    """
    modes = {"noise": 0.3, "lengthscale": math.sqrt(rows.d)}
    return {
        parameter.name: f"lognormal({math.log(modes[parameter.what] * parameter.factor) + 1.0:.6g}, 1)"
        for parameter in kernel_parameters(kernel, rows)
        if parameter.what in modes
    }


def pursuits(rows: Dataset, seconds: float) -> list[Candidate]:
    """Candidates that give rows a noise of their own, if some look far off; none or one if there is not the time.

    Where the other targets are all equal, as for a rare event, there is no noise beside that of these rows.
    """
    if not isinstance(rows.X, Tensor) or len(rows) > EXACT_UP_TO:
        return []
    y = rows.y.double().cpu().numpy()
    far = far_rows(numbers_of(rows), y)
    if not len(far) or not np.ptp(np.delete(y, far)):
        return []
    kernels = ("matern32-ard", "se-ard")[: int(PURSUIT_SHARES * seconds / (PURSUIT_SECONDS * len(rows)))]
    return [Candidate(f"ml, {kernel}{PURSUIT}", EXACT, "ml", kernel, pursues=True) for kernel in kernels]


def candidates(split: Split, seconds: float, time_name: str = "") -> list[Candidate]:
    """The candidates for these rows, the most promising ones first.

    Parameters
    ----------
    split : Split
        The rows. Their inputs may be numbers, texts such as SMILES, or both.
    seconds : float
        The share of the time that one candidate may have.
    time_name : str
        The input that is the time of the rows; "" if they are in no such order.

    Returns
    -------
    list of Candidate
        At least three.
    """
    if len(split.train) < FEW_ROWS:
        return [replace(own, has_priors=own.method == "ml") for own in _by_promise(split, seconds, time_name)]
    return _by_promise(split, seconds, time_name)


def _by_promise(split: Split, seconds: float, time_name: str) -> list[Candidate]:
    """The candidates by the kind and the number of the inputs and of the rows, without priors."""
    n = len(split.train)
    if isinstance(split.train.X, list):
        return list(_of_objects(split, seconds))
    if isinstance(split.train.X, MixedRows):
        return list(_of_mixed_rows(split, seconds))
    others = list(_of_numbers(n, split.train.d, seconds))
    only_time = is_series(split.train, time_name)
    size = exact_gp if only_time else full_gp  # far ahead, more rows of a series say little
    kernels = series_kernels(split.train, time_name)
    series = [replace(size(kernel, n, seconds), learned_start=True) for kernel in kernels]
    near = near_rows(n, split.train.d, seconds, max((kernel.count("periodic") for kernel in kernels), default=0))
    early = len(series) if only_time else 2
    first = [*of_groups(split.train, seconds), *near[:1], *pursuits(split.train, seconds), *series[:early]]
    if only_time and near and "periodic" not in near[0].kernel and any("periodic" in kernel for kernel in kernels):
        first = [*series, *first[: -len(series)]]  # near rows say nothing about a trend and a season far ahead
    usual = 1 if others[0].method == "ml" else 2
    words = of_words(split.train, seconds)
    return [*first, *others[:1], *near[1:], *others[1:usual], *words, *series[early:], *others[usual:]]


def of_groups(rows: Dataset, seconds: float) -> list[Candidate]:
    """Candidates whose hyperparameters predict whole groups that are held out, if the rows have groups.

    The likelihood of all rows learns how to interpolate within groups: from it, lengthscales and noise are too small
    for new ones.
    """
    if rows.groups is None:
        return []
    groups = rows.groups.distinct
    fitted = groups - math.ceil(groups / FOLDS)  # groups, where the others are held out
    if fitted < 2:
        return []
    settings = {"folds": fitted} if fitted < registry["gpcv-admm"].param["folds"].default else {}
    size = min(rows_for(len(rows), seconds), MOST_OF_GROUPS)
    size = 0 if size >= len(rows) else size
    kernels = ("matern32-ard", "se-ard")
    of_size = f", {size} rows" if size else ""
    return [Candidate(f"gpcv-admm, {k}{of_size}", GROUPS, "gpcv-admm", k, settings, most_rows=size) for k in kernels]


def of_words(rows: Dataset, seconds: float) -> list[Candidate]:
    """Candidates with a function of the other inputs for each word of a column, if many words stand by their means.

    How alike these functions are is learned. A mean per word, which the other candidates have, moves one function up
    and down only. A group that is held out has a word of its own, of which nothing is known.
    """
    if rows.reader is None or rows.groups is not None or rows.as_new is None:
        return []
    by_size = []
    for place, column in enumerate(rows.reader.inputs):
        if column.role != "mean" or rows.d == 1:
            continue
        if LEAST_PER_WORD * len(rows.as_new[:, place].unique()) <= len(rows):
            name = quoted_name(column.name)
            kernel = f"matern32-ard[all but {name}] * same[{name}]"
            own = full_gp(kernel, len(rows), seconds)
            named = replace(own, name=own.name.replace(kernel, f"matern32-ard for each {column.source}"))
            explained = torch.corrcoef(torch.stack([rows.X[:, place], rows.y]))[0, 1].abs()
            by_size.append((-float(explained), named))
    return [named for _, named in sorted(by_size, key=lambda pair: pair[0])[:MOST_WORD_COLUMNS]]


def near_rows(n: int, d: int, seconds: float, seasons: int = 0) -> list[Candidate]:
    """Candidates of the neighbours family, for few inputs and too many rows for an exact GP by its matrix."""
    if d > NEAR_INPUTS or exact_gp("matern32-ard", n, seconds).method == "ml":
        return []
    pairs = [("vecchia", "matern32-ard"), ("vecchia", "matern12-ard")]
    if d == 1:  # where states are exact
        season = [("states", "matern32" + count * " + periodic") for count in range(seasons, 0, -1)]
        too_long = max(0, seasons - int(seconds / (SEASON_SECONDS * n)))
        pairs = [*season[too_long:], ("states", "matern32"), ("states", "matern12"), *pairs[:1], *season[:too_long]]
    return [Candidate(f"{key}, {kernel}", NEIGHBOURS, key, kernel, all_rows=True) for key, kernel in pairs]


def series_kernels(rows: Dataset, time_name: str) -> list[str]:
    """Kernels for a trend, a season and what is left, if the rows are a series or their periodogram has peaks.

    A trend alone, or a season alone, says nothing about the future. Each of these has a part that goes on.
    """
    X, y = rows.X.double().cpu().numpy(), rows.y.double().cpu().numpy()
    names = [time_name] if time_name else list(rows.names) if rows.d <= SEASON_INPUTS else []
    waves = {name: peaks(X[:, rows.names.index(name)], y) for name in names}
    name = max(waves, key=lambda own: waves[own][0].share if waves[own] else 0.0, default="")
    if not name or not (waves[name] or time_name):
        return []
    on = "" if rows.d == 1 else f"[{quoted_name(name)}]"
    level = "se-ard" if rows.d > 1 else "se"
    x, trend = X[:, rows.names.index(name)], "linear"
    if is_curved(x, y):  # a level alone would bend it, but falls back to the mean after the last row
        only_time = is_series(rows, time_name)
        trend = f"linear{on} * linear{on}" if only_time else f"linear + linear{on} * linear{on}"
        level = f"se{on}" if only_time else level
    if not waves[name]:  # of what has no season, a random walk may look curved
        return list(dict.fromkeys(f"{part} + matern12{on}" for part in (trend, "linear", level)))
    walk = [f"{part} + lp{on} + matern12{on}" for part in dict.fromkeys((trend, "linear"))]
    season = [f"{trend} + periodic{on} + {level}", *walk, f"{level} + periodic{on}"]
    if trend != "linear":  # how it goes on is uncertain: first with a random walk beside it, and with a line
        season = [*walk, *season[:1], *season[-1:]]
    longer, shorter = sorted(periods(x, y, 2) or (1.0, 1.0), reverse=True)
    several = [f"{trend} + periodic{on} + periodic{on} + {level}"] if longer > APART * shorter else []
    return [*season, *several]


def exact_gp(kernel: str, n: int, seconds: float) -> Candidate:
    """An exact GP, on all n rows if the time suffices for some evaluations of its likelihood, otherwise on some."""
    if n <= EXACT_UP_TO and rows_for(n, LEARNING_SHARES * seconds) == n:
        return Candidate(f"ml, {kernel}", EXACT, "ml", kernel, learned_start=n >= LEARNED_FROM)
    rows = rows_for(n, seconds)
    return Candidate(f"subset-of-data, {kernel}, {rows} rows", EXACT, "subset-of-data", kernel, {"num_rows": rows})


def full_gp(kernel: str, n: int, seconds: float) -> Candidate:
    """A GP on as many rows as possible; its learned theta is the initial theta of others with this kernel."""
    exact = exact_gp(kernel, n, seconds)
    if exact.method == "ml" or n > DESCENT_UP_TO:
        return exact
    size = {"subset": max(LEAST_SUBSET, rows_for(n, SUBSET_SHARE * seconds))}
    return Candidate(f"gbcd, {kernel}", EXACT, "gbcd", kernel, size, all_rows=True)


def _of_numbers(n: int, d: int, seconds: float) -> Iterator[Candidate]:
    points = points_for(n, seconds)
    is_exact_possible = exact_gp("matern32-ard", n, seconds).method == "ml"
    network = Candidate("scgd, network", "learned features", "scgd", "se-ard", all_rows=True)
    if not is_exact_possible:
        yield network  # it learns most in the first seconds, and its steps are short
    yield full_gp("matern32-ard", n, seconds)
    if is_exact_possible and ANOVA_INPUTS[0] <= d <= ANOVA_INPUTS[1]:
        yield exact_gp("anova-matern52", n, seconds)  # inputs may act one by one, which other kernels do not know
    if is_exact_possible:
        yield full_gp("se-ard", n, seconds)
    if is_exact_possible and n >= NETWORK_FROM:
        yield network
    if is_exact_possible:  # few hyperparameters and other errors, which an average of models profits from
        yield exact_gp("linear", n, seconds)
        yield exact_gp("matern32", n, seconds)
    yield _inducing("sgpr", "matern32-ard", min(points, n // 2))
    if not is_exact_possible:
        yield full_gp("se-ard", n, seconds)
    yield Candidate("cholqr, se-ard", "inducing points", "cholqr", "se-ard")
    if d <= GRID_INPUTS:
        yield Candidate("grief, se-ard", "eigenfunctions", "grief", "se-ard")
    yield full_gp("matern52-ard", n, seconds)
    if points < n:  # with as many points as rows they are exact GPs at a higher cost
        yield _inducing("cholqr", "matern52-ard", points)
        yield _inducing("sgpr", "se-ard", points)


def _of_objects(split: Split, seconds: float) -> Iterator[Candidate]:
    rows = rows_for(len(split.train), seconds)
    keys = ("molecules", "spectrum") if _are_molecules(split.train.X) else ("spectrum", "mismatch")
    for key in keys:
        yield Candidate(f"cholqr, {key}", "inducing points", "cholqr", key)
        yield _exact(key, rows, len(split.train))


def _of_mixed_rows(split: Split, seconds: float) -> Iterator[Candidate]:
    """Sums, products and both of a kernel of the numbers and one for each column of text."""
    rows, columns = rows_for(len(split.train), seconds), split.train.columns
    assert columns is not None
    texts_by_name = zip(columns.texts, split.train.X.texts, strict=True)
    texts = [f"{_key_for(cells)}[{quoted_name(name)}]" for name, cells in texts_by_name]
    for numbers in ("se-ard", "matern32-ard") if columns.numbers else ("",):
        parts = [numbers, *texts] if numbers else texts
        for sign in "+*" if len(parts) > 1 else "+":
            kernel = sign.join(parts)
            yield _exact(kernel, rows, len(split.train))
            yield Candidate(f"cholqr, {kernel}", "inducing points", "cholqr", kernel)


def _exact(kernel: str, rows: int, n: int) -> Candidate:
    """The exact GP of all n rows, or of a subset of them."""
    method, settings = ("ml", {}) if rows == n else ("subset-of-data", {"num_rows": rows})
    return Candidate(f"{method}, {kernel}", EXACT, method, kernel, settings)


def _key_for(cells: Sequence[str]) -> str:
    """The kernel for a column of text: of molecules, of few different words, or of strings."""
    if _are_molecules(cells):
        return "molecules"
    return "category" if len(set(cells)) <= MOST_WORDS else "spectrum"


def _inducing(method: str, kernel: str, points: int) -> Candidate:
    return Candidate(f"{method}, {kernel}, m = {points}", "inducing points", method, kernel, {"num_inducing": points})


def _are_molecules(texts: Sequence[str]) -> bool:
    """Whether the first texts are SMILES, as RDKit reads them."""
    try:
        from rdkit import Chem, rdBase
    except ImportError:
        return False
    with rdBase.BlockLogs():
        return all(Chem.MolFromSmiles(text) is not None for text in texts[:50])
