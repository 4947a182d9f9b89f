"""Whether rows follow each other in time or belong to groups, so that a random draw would hold out the wrong rows.

A random draw holds out rows between other rows. It says what to expect in gaps, not after the last row, and not for a
new patient. An order matters where the targets depend on their neighbours in it, and groups where rows of one group are
more alike than rows of two: both are measured on what a linear regression leaves of the targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import Ridge
from torch import Tensor

from ..data import Split
from ..data.files.row_names import COUNTS
from ..data.given_folds import Pair
from ..data.quoting import count, listing, quote
from ..errors import SettingError
from ..problem import Dataset, MixedRows, RowGroups

Array = NDArray[np.float64]

UNITS = {"year": 372.0, "month": 31.0, "day": 1.0}  # in days, which only have to be in order
DATE_NAME = re.compile(r"(?:^|[^a-z])(date|datetime|timestamp)(?:$|[^a-z])")
TIME_NAME = re.compile(
    r"(?:^|[^a-z])(time|days?|weeks?|months?|years?|yr|hours?|minutes?|seconds?|secs?|quarter|t|elapsed|epoch|unixtime"
    r"|zeit|jahr|monat|woche|tag|stunde|sekunde|temps|mois|jour|heure|tiempo|mes|dia|hora|tempo|giorno|mese|anno)"
    r"(?:$|[^a-z])"
)
ID_NAME = re.compile(
    r"(?:^|[^a-z])(id|patient|subject|participant|person|customer|client|user|animal|household|case|plot|batch)"
    r"(?:$|[^a-z])|[a-z]_?id$"
)
PLAIN_NAME = re.compile(r"x\d*")  # a column of an array, whose name says nothing
RISING = 0.98  # share of the steps of the file in which a column of time does not fall, or does not rise
EVEN = 0.8  # standard deviation over mean of the steps of a column that rises steadily, by whole numbers
FEWEST_TIMES, FEWEST_GROUPS = 30, 6
DEPENDENT, DEPENDENT_ERRORS = 0.15, 4.0  # least correlation of neighbours, and in standard errors
ALIKE = 0.1  # least share of the variance that lies between groups
FEWEST_PANEL, LEAST_PANEL_ROWS, PANEL_TIMES = 10, 4, 3.0  # groups, rows of one, and times over the rows of one
LARGEST_GROUP = 0.4  # of the rows
SINGLE_ROWS = "Each row is a group of its own, so single rows were held out: name a column that several rows share."
FEWEST_IN_GROUP = 3  # rows of a label in a panel, on the mean
ONE_EACH, IN_ORDER = 0.99, 0.95  # shares of the rows of a panel: the only one of label and time, later than the last
LABELS_AT_MOST = 0.3  # correlation between the mean targets of one label and the next, by its number
BLOCK = 0.1  # share of the rows that a fold forward in time holds out
FOLDS = ((1000, 4), (3000, 2))  # rows up to which there are so many of these folds; with more rows there is one
SERIES_FOLDS = 4  # of a series without other inputs, of which models need some rows only: two blocks decide by chance
MOST_HELD_OUT = 2000


@dataclass(frozen=True)
class Plan:
    """Which rows are held out.

    Attributes
    ----------
    kind : {"random", "time", "groups"}
    column : str
        The column of the order or of the groups; "" if there is none.
    pairs : tuple of Pair
        Folds forward in time, or those that were given.
    sentence : str
        What was found, with its numbers, and the option that acts.
    """

    kind: str = "random"
    column: str = ""
    pairs: tuple[Pair, ...] = ()
    sentence: str = ""

    @property
    def between(self) -> str:
        """What the error on a random draw of rows is about."""
        return "between your rows" if self.kind == "time" else "for further rows of your groups"

    @property
    def beyond(self) -> str:
        """What the error on these held-out rows is about."""
        return "after the last row" if self.kind == "time" else "for new groups"


def numbers_of(rows: Dataset) -> Array:
    """The inputs that are numbers [n, q]; q is 0 if there are none."""
    X = rows.X.numbers if isinstance(rows.X, MixedRows) else rows.X
    return X.double().cpu().numpy() if isinstance(X, Tensor) else np.empty((len(rows), 0))


def times_of(rows: Dataset, column: str) -> Array:
    """The values [n] of the column of times."""
    return numbers_of(rows)[:, rows.names.index(column)]


def are_whole(values: Array) -> bool:
    """Whether all values are whole numbers."""
    return bool((values == np.round(values)).all())


def _words_of(name: str) -> str:
    """A name in small letters, with PatientNo as patient_no."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


def is_date(rows: Dataset, name: str) -> bool:
    """Whether an input is a column of dates, or its name says so."""
    sources = rows.reader.sources if rows.reader is not None else ()
    is_read_so = name in sources and rows.reader is not None and rows.reader.column(name).kind == "date"
    return is_read_so or DATE_NAME.search(_words_of(name)) is not None


def is_named_time(rows: Dataset, name: str) -> bool:
    """Whether an input is a date, or its name says that it is a time, such as "week"."""
    return is_date(rows, name) or TIME_NAME.search(_words_of(name)) is not None


def time_column(rows: Dataset, asked: bool = False) -> int | None:
    """The position of the input that is the time of the rows: a date, or a column that rises or falls in the file.

    That has to be named as a time, or steady. Where a time is asked for, it may also be one with another name, or
    another order of the rows.
    """
    X, choices = numbers_of(rows), list[tuple[int, int]]()
    for j, name in enumerate(rows.names[: X.shape[1]]):
        steps, different = np.diff(X[:, j]), len(np.unique(X[:, j]))
        if different < FEWEST_TIMES:
            continue
        steps = steps if (steps >= 0.0).mean() >= (steps <= 0.0).mean() else -steps
        is_ordered, is_named = bool((steps >= 0.0).mean() >= RISING), is_named_time(rows, name)
        evenly = are_whole(steps) and bool((steps > 0.0).all()) and steps.std() < EVEN * steps.mean()
        has_no_name = PLAIN_NAME.fullmatch(name.lower()) is not None
        if is_date(rows, name):
            choices.append((0, j))
        elif is_ordered and is_named:
            choices.append((1, j))
        elif evenly and not has_no_name:
            choices.append((2, j))
        elif asked and different >= ONE_EACH * len(X) and (is_named or (is_ordered and not has_no_name)):
            choices.append((3, j))
    return min(choices)[1] if choices else None


def clock_beside_inputs(rows: Dataset) -> tuple[Array, str, str] | None:
    """A time [n] that is no input, what it comes from, and how it becomes one; None if there is none.

    It comes from a year and a month in columns of their own, or from a column that only counts the rows.
    """
    X, parts = numbers_of(rows), dict[str, int]()
    for j, name in enumerate(rows.names[: X.shape[1]]):
        if (part := _words_of(name)) in UNITS and are_whole(X[:, j]):
            parts[part] = j
    if {"year", "month"} <= set(parts):
        time = sum(days * X[:, parts[part]] for part, days in UNITS.items() if part in parts)
        named = listing([rows.names[j] for j in parts.values()])
        return np.asarray(time), named, 'make them one column of dates: then folds="time" holds out the last ones'
    for column in rows.reader.columns if rows.reader else ():
        if column.left_out == COUNTS:
            way = "holds out the last ones once"
            kind = f'kinds={{"{column.name}": "number"}}'
            return np.arange(float(len(rows))), quote(column.name), f'folds="time" {way} {kind} makes it an input'
    return None


def is_series(rows: Dataset, name: str) -> bool:
    """Whether all inputs come from the time of the rows, which is the input of this name."""
    if not name or rows.reader is None or isinstance(rows.X, MixedRows):
        return bool(name) and rows.names == (name,)
    return set(rows.reader.sources) == {rows.reader.inputs[rows.names.index(name)].source}


def linear_residuals(X: Array, y: Array) -> Array:
    """What a linear regression on standardised inputs leaves of the targets."""
    Z = (X - X.mean(0)) / np.maximum(X.std(0), np.finfo(float).tiny)
    return np.asarray(y - Ridge(1.0).fit(Z, y).predict(Z))


def correlation_of_neighbours(time: Array, residuals: Array) -> tuple[float, int]:
    """The correlation of mean residuals at one time and the next, and the number of times."""
    times, place = np.unique(time, return_inverse=True)
    means = np.bincount(place, residuals) / np.bincount(place)
    centred = means - means.mean()
    total = float(centred @ centred)
    return (float(centred[1:] @ centred[:-1]) / total if total > 0.0 else 0.0), len(times)


def share_between_groups(number: NDArray[np.int64], residuals: Array) -> tuple[float, float]:
    """The share of the variance that lies between groups, and in how many standard errors that exceeds chance."""
    sizes = np.bincount(number)
    n, k = len(residuals), len(sizes)
    means = np.bincount(number, residuals) / sizes
    within = float(np.square(residuals - means[number]).sum()) / max(n - k, 1)
    between = float((sizes * np.square(means - residuals.mean())).sum()) / max(k - 1, 1)
    size = (n - float(np.square(sizes).sum()) / n) / max(k - 1, 1)
    variance = max((between - within) / size, 0.0)
    ratio = between / max(within, 1e-12 * between, np.finfo(float).tiny)
    errors = (ratio - 1.0) / np.sqrt(2.0 / max(k - 1, 1) + 2.0 / max(n - k, 1))
    return variance / max(variance + within, np.finfo(float).tiny), errors


def group_columns(rows: Dataset) -> list[str]:
    """Columns whose names say that they tell whose a row is, those included that are no inputs."""
    broken = {name for name, values in zip(rows.names, numbers_of(rows).T, strict=False) if not are_whole(values)}
    left_out = [column.name for column in rows.reader.columns if column.left_out] if rows.reader else []
    candidates = [*(name for name in rows.names if name not in broken), *left_out]
    named = [name for name in candidates if ID_NAME.search(_words_of(name))]
    return [*named, *(name for name in panel_columns(rows) if name not in named)]


def panel_columns(rows: Dataset) -> list[str]:
    """Columns of labels in a panel: each label has one row at each of several times, in rising order in the file.

    Of many short series, new ones are predicted; few long ones are continued. So a column with fewer labels than times
    is not among them, nor one whose neighbouring numbers have alike targets: it measures something.
    """
    X, n = numbers_of(rows), len(rows)
    if not X.shape[1]:
        return []
    names = rows.names[: X.shape[1]]
    sources = [column.source for column in rows.reader.inputs][: len(names)] if rows.reader else list(names)
    residuals, result = linear_residuals(X, rows.y.double().cpu().numpy()), list[str]()
    whole = [j for j in range(X.shape[1]) if are_whole(X[:, j])]
    times = {j: np.unique(X[:, j], return_inverse=True)[1] for j in whole}
    for source in dict.fromkeys(sources):
        own = [j for j, name in enumerate(sources) if name == source]
        is_number = rows.reader is None or rows.reader.column(source).is_number
        if PLAIN_NAME.fullmatch(source.lower()) or (is_number and not set(own) <= set(whole)):
            continue
        if rows.reader is not None and any(rows.reader.inputs[j].role == "mean" for j in own):
            continue  # several means stand for one word; see `is_panel`
        _, label = np.unique(X[:, own], axis=0, return_inverse=True)
        sizes = np.bincount(label)
        if not FEWEST_GROUPS <= len(sizes) <= n / FEWEST_IN_GROUP or sizes.max() >= LARGEST_GROUP * n:
            continue
        if is_number and correlation_of_neighbours(label.astype(float), residuals)[0] > LABELS_AT_MOST:
            continue
        if any(_is_panel(label, times[j]) for j in whole if j not in own):
            result.append(source)
    return result


def _is_panel(label: NDArray[np.int64], time: NDArray[np.int64]) -> bool:
    """Whether labels have one row at each time, times rise in the file, and there are at least as many labels."""
    count_of_times = int(time.max()) + 1
    if not FEWEST_IN_GROUP <= count_of_times <= label.max() + 1:
        return False
    order = np.argsort(label, kind="stable")
    steps = np.diff(time[order])[np.diff(label[order]) == 0]
    pairs = len(np.unique(label * count_of_times + time))
    return bool((steps > 0).mean() >= IN_ORDER) and pairs >= ONE_EACH * len(label)


def repeated_columns(rows: Dataset) -> list[str]:
    """Columns of whole numbers or words with several values of several rows each, whatever their names say."""
    n, sizes = len(rows), dict[str, Sequence[int]]()
    for name, values in zip(rows.names, numbers_of(rows).T, strict=False):
        if are_whole(values):
            sizes[name] = np.unique(values, return_counts=True)[1].tolist()
    words = [column for column in rows.reader.columns if column.kind == "words"] if rows.reader else []
    sizes |= {column.name: column.levels.counts for column in words}
    return [
        name
        for name, own in sizes.items()
        if FEWEST_PANEL <= len(own) <= n / LEAST_PANEL_ROWS and max(own) < LARGEST_GROUP * n
    ]


def is_panel(rows: Dataset, column: str = "") -> bool:
    """Whether the groups of these rows look like subjects that were measured again and again.

    Then there is an input, such as a time, that hardly ever has a value twice in a group though it has few values in
    all, no more than there are groups. Either it rises in every group, or other inputs are constant in every group
    though they differ between groups, such as the breed of an animal or the continent of a country. A place or a kind,
    such as a zip code, has no such column. With the name of an input, its values are the groups; one that is made from
    words may be a subject, which only the words say.
    """
    X = numbers_of(rows)
    if column and column not in rows.names[: X.shape[1]]:
        return True
    if column:
        place = rows.names.index(column)
        X, values = np.delete(X, place, 1), X[:, place]
    elif rows.groups is not None and X.shape[1]:
        values = rows.groups.number.cpu().numpy()
    else:
        return False
    _, number = np.unique(values, return_inverse=True)
    k, size = int(number.max()) + 1, float(np.median(np.bincount(number)))
    constant, times = 0, 0
    for values in X.T:
        distinct, code = np.unique(values, return_inverse=True)
        pairs = len(np.unique(number.astype(np.int64) * len(distinct) + code))
        constant += 1 < len(distinct) < k and pairs == k
        is_short = FEWEST_GROUPS <= len(distinct) <= min(PANEL_TIMES * size, k)  # few long series are continued
        times += pairs >= RISING * len(number) and is_short
        if are_whole(values) and FEWEST_GROUPS <= k and not column and _is_panel(number.astype(np.int64), code):
            return True
    return constant > 0 and times > 0


def plan_of_groups(rows: Dataset, column: str, asked: bool) -> Plan | None:
    """Whole groups, if rows of one group are alike; None if it does not matter which rows are held out."""
    assert rows.groups is not None
    _, number = np.unique(rows.groups.number.cpu().numpy(), return_inverse=True)
    sizes, n, X = np.bincount(number), len(number), numbers_of(rows)
    named = quote(column) if column else "The groups"
    if asked:
        said = f"Whole groups of {quote(column)} were held out." if column else ""
        return Plan("groups", column, (), SINGLE_ROWS if sizes.max() == 1 else said)
    several = len(sizes) >= FEWEST_GROUPS and n >= 2 * len(sizes) and sizes.max() < LARGEST_GROUP * n
    if not X.shape[1] or not several:
        return None
    share, errors = share_between_groups(number, linear_residuals(X, rows.y.double().cpu().numpy()))
    if share < ALIKE or errors < DEPENDENT_ERRORS:
        return None
    return Plan("groups", column, (), (
        f"{named} has {count(len(sizes), 'value')} with {np.median(sizes):.3g} rows each and looks like groups: "
        f"{100 * share:.0f} % of the variance that a linear regression leaves lies between them. Whole groups were "
        f'held out, and it is no input; folds="random" holds out single rows.'
    ))  # fmt: skip


def plan_in_time(rows: Dataset, asked: bool, before: Any = None) -> Plan | None:
    """Folds forward in time, if neighbours in time depend on each other; None if there is no such order."""
    is_asked = asked or before is not None
    X, column = numbers_of(rows), time_column(rows, is_asked)
    if is_asked and column is None and X.shape[1] == 1:
        column = 0
    if column is None:
        if asked:
            option = 'folds="time"' if before is None else f"before={quote(before)}"
            raise SettingError(
                f"{option} needs a column of dates, or one that rises steadily from row to row: name it with dates=, "
                "or sort the rows."
            )
        return None
    name, time = rows.names[column], X[:, column]
    y = rows.y.double().cpu().numpy()
    correlation, times = correlation_of_neighbours(time, linear_residuals(X, y))
    if not asked and not _is_dependent(correlation, times):
        return None
    pairs = forward_pairs(time, is_series(rows, name)) if before is None else [pair_before(time, before, name)]
    return Plan("time", name, tuple(pairs), (
        f"The rows are in order of time ({quote(name)}): what a linear regression leaves of {quote(rows.target)} is "
        f"correlated by {correlation:.2f} from one time to the next, so an error between rows says nothing about the "
        f"future. The last {_held_out(pairs)} were held out in turn, each after the rows that were fitted; "
        f'folds="random" holds out rows between others, and before= sets where the future begins.'
    ))  # fmt: skip


def _is_dependent(correlation: float, times: int) -> bool:
    return correlation >= DEPENDENT and correlation * np.sqrt(times) >= DEPENDENT_ERRORS


def plan_at_random(rows: Dataset) -> Plan:
    """A random draw of rows; where these may be asked for what comes after them, the sentence says so."""
    X, column = numbers_of(rows), time_column(rows)
    if rows.groups is not None or not X.shape[1]:
        return Plan()
    if column is None and X.shape[1] == 1 and len(np.unique(X)) >= FEWEST_TIMES:
        column = 0 if (np.diff(X[:, 0]) >= 0.0).mean() >= RISING else None
    if column is not None:
        verb = "rise" if np.diff(X[:, column]).mean() >= 0.0 else "fall"
        return Plan(sentence=(
            f"The rows {verb} with {quote(rows.names[column])}, but those that were held out lie between others: the "
            'error is that of gaps. If you ask for what comes after the last row, folds="time" holds out the last ones.'
        ))  # fmt: skip
    y, clock = rows.y.double().cpu().numpy(), clock_beside_inputs(rows)
    column = time_column(rows, asked=True)
    if column is not None:
        clock = X[:, column], quote(rows.names[column]), 'folds="time" holds out the last ones'
    if clock is None or max((np.diff(y) >= 0.0).mean(), (np.diff(y) <= 0.0).mean()) >= RISING:  # sorted by the target
        return Plan()
    time, named, way = clock
    correlation, times = correlation_of_neighbours(time, linear_residuals(X, y))
    if times < FEWEST_TIMES or not _is_dependent(correlation, times):
        return Plan()
    return Plan(sentence=(
        f"In the order of {named}, what a linear regression leaves of {quote(rows.target)} is correlated by "
        f"{correlation:.2f} from one row to the next, but the rows that were held out lie between others: the error is "
        f"that of gaps. If this is the order of time and you ask for what comes after the last row, {way}."
    ))  # fmt: skip


def _held_out(pairs: list[Pair]) -> str:
    sizes = sum(len(pair.test) for pair in pairs)
    return count(sizes, "row") if len(pairs) == 1 else f"{sizes:,} rows in {len(pairs)} blocks"


def origins(time: Array, count: int) -> list[Pair]:
    """Pairs for forecasts from so many moments, the latest first, each of which holds out two blocks or what is left.

    They say more about far horizons than `forward_pairs`, whose models learn from each pair again.
    """
    n = len(time)
    moments = np.sort(time)[[n - max(round(BLOCK * n), 3) * k for k in range(1, count + 1)]]
    return _pairs(time, moments, [np.inf, np.inf, *moments])


def forward_pairs(time: Array, is_series: bool = False) -> list[Pair]:
    """Blocks of the last rows, the latest first, each with all rows before it; rows of one time are not divided."""
    order, n = np.argsort(time, kind="stable"), len(time)
    folds = SERIES_FOLDS if is_series else next((folds for most, folds in FOLDS if n < most), 1)
    share = BLOCK if folds > 1 else 1.5 * BLOCK
    size = min(max(round(share * n), 3), MOST_HELD_OUT)
    ends = [n - k * size for k in range(folds, -1, -1)]
    moments = [time[order[min(end, n - 1)]] for end in ends[:-1]]
    return _pairs(time, moments, [*moments[1:], np.inf])[::-1]


def _pairs(time: Array, moments: Iterable[float], ends: Iterable[float]) -> list[Pair]:
    """The rows before each moment, with those from it to the end that belongs to it; without pairs that lack rows."""
    pairs = [
        Pair(np.flatnonzero(time < moment), np.flatnonzero((time >= moment) & (time < end)))
        for moment, end in zip(moments, ends, strict=False)
    ]
    return [pair for pair in pairs if len(pair.train) and len(pair.test)]


def pair_before(time: Array, before: Any, name: str) -> Pair:
    """The rows before a moment, to fit, and those from it on, to hold out."""
    ends = [f"{end:g}" for end in (time.min(), time.max())]
    try:
        moment = float(before)
    except (TypeError, ValueError):
        try:
            moment = float((np.datetime64(str(before), "s") - np.datetime64(0, "s")).astype(float)) / 86400.0
            ends = [str(np.datetime64(0, "D") + int(end)) for end in (time.min(), time.max())]
        except ValueError:
            raise SettingError(f"before is {quote(before)}; give a number, or a date such as 2020-01-31.") from None
    train, test = np.flatnonzero(time < moment), np.flatnonzero(time >= moment)
    if len(train) < 2 or not len(test):
        raise SettingError(
            f"before is {quote(before)}, but {quote(name)} goes from {ends[0]} to {ends[1]}: two rows at "
            "least have to be before it, and one after it."
        )
    return Pair(train, test)


def in_blocks(part: Split, column: str, first: int, blocks: int = 2) -> Split:
    """The part with its held-out rows in so many blocks of time, numbered from `first`; errors within one are alike."""
    values = times_of(part.test, column)
    inner = np.quantile(values, np.arange(1, blocks) / blocks)
    number = torch.from_numpy(first + np.searchsorted(inner, values).astype(np.int64))
    return replace(part, test=replace(part.test, groups=RowGroups(number, are_folds=False)))
