"""Rows that are no rows of their own: totals, means and other statistics of the others."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from .quoting import count, joined, listing, quote
from .reader.cells import is_missing, is_text
from .table_checks import MIN_ROWS, Floats

SUBTOTAL = r"(?i)^\W*(grand |sub-? ?)(totals?|sums?)\b|^\W*(zwischensumme|sous-total)\b"
OF_PART = re.compile(r"^(sub-?)?(totals?|sums?|summe)\b[\s:-]*|[\s:-]*\b(sub-?)?(totals?|sums?|summe)$")
ROUNDED = 1e-4  # relative error of a total that was rounded, or of rounded numbers
TOTAL = re.compile(r"(?i)^\W*(grand |sub)?(totals?|sums?|mean|averages?|gesamt|summe|insgesamt|total g.n.ral|suma)\b.*")

STATISTICS = {  # what a row says that it is, and the numbers that it then has of the values of the others
    r"(grand )?(total|sum)s?|(gesamt)?summe|gesamt|insgesamt|somme|suma": np.sum,
    r"(mean|average|avg|moyenne|media|promedio)s?|mittel(wert)?|durchschnitt": np.mean,
    r"min(imum)?": np.min,
    r"max(imum)?": np.max,
    r"median[ea]?|m\u00e9diane|50 ?%": np.median,
    r"25 ?%|q1|1st qu": partial(np.quantile, q=0.25),
    r"75 ?%|q3|3rd qu": partial(np.quantile, q=0.75),
    r"(st\.?|standard) ?d(ev(iation)?)?|stdev|sd|standardabweichung": lambda values: [values.std(), values.std(ddof=1)],
    r"var(iance|ianz)?": lambda values: [values.var(), values.var(ddof=1)],
    r"count|number|n|anzahl|nombre": np.size,
}
MOST_STATISTICS = 12  # rows of them at one end of a table
FIRST_NAMES = ("min", "max")  # of people as well


class Rows(NamedTuple):
    """The rows of a table without statistics of them: which [n] of the table stay, and a note on the others."""

    stays: NDArray[np.bool_]
    notes: tuple[str, ...]


def without_statistics(table: pa.Table, numbers: Mapping[str, Floats]) -> Rows | None:
    """The rows without those at either end that have sums, means, or other statistics of them; None if there are none.

    Parameters
    ----------
    table : Table
        All columns.
    numbers : mapping of str to array [n]
        The columns of numbers, NaN where there is none.
    """
    stays = np.ones(table.num_rows, dtype=bool)
    with_numbers = np.flatnonzero(np.any([np.isfinite(values) for values in numbers.values()], axis=0))
    n = int(with_numbers.max(initial=-1)) + 1  # rows below it are remarks
    table, numbers = table.slice(0, n), {title: values[:n] for title, values in numbers.items()}
    if note := note_on_sums(table, numbers):
        stays[n - 1] = False
        return Rows(stays, note)
    for title in table.column_names:
        for is_top in (False, True):
            names = _statistics_at_end(table[title], is_top)
            for size in range(min(len(names), n - MIN_ROWS), 0, -1):
                own = names[:size] if is_top else names[-size:]
                is_name = size == 1 and own[0].strip().casefold() in FIRST_NAMES
                if is_name or not _are_statistics(own, is_top, numbers):
                    continue
                rows = range(1, size + 1) if is_top else range(n - size + 1, n + 1)
                verbs = ("is a statistic", "was", "it") if size == 1 else ("are statistics", "were", "them")
                note = (
                    f"{count(size, 'row')} ({joined(f'{row:,}' for row in rows)}), with {listing(own)} in "
                    f"{quote(title)}, {verbs[0]} of the others and {verbs[1]} left out"
                    f"{f'; rows are counted without {verbs[2]}' if is_top else ''}.",
                )
                stays[rows[0] - 1 : rows[-1]] = False
                return Rows(stays, note)
    return None


def _statistic(name: object) -> Any:
    """The function of which a cell has the name; None if it has none."""
    word = str(name).strip(" .:*=-").casefold() if isinstance(name, str) else ""
    return next((function for names, function in STATISTICS.items() if re.fullmatch(names, word)), None)


def _statistics_at_end(column: pa.ChunkedArray, is_top: bool) -> list[str]:
    """The names of statistics from one end of a column on, in the order of the table; none that are there twice."""
    names = list[str]()
    for row in range(min(MOST_STATISTICS, len(column))):
        name = column[row if is_top else len(column) - 1 - row].as_py()
        if _statistic(name) is None:
            break
        names.append(name)
    is_once = not names or pc.sum(pc.is_in(column, pa.array(names, column.type))).as_py() == len(names)
    return (names if is_top else names[::-1]) if is_once else []


def _are_statistics(names: list[str], is_top: bool, numbers: Mapping[str, Floats]) -> bool:
    """Whether rows at one end of a table have the statistics of the others that these names say, and nothing else."""
    size, says_so = len(names), np.zeros(len(names), dtype=bool)
    for values in numbers.values():
        own, others = (values[:size], values[size:]) if is_top else (values[-size:], values[:-size])
        others = others[np.isfinite(others)]
        if not len(others) or (np.diff(values) == 1.0).all():  # the number of the row
            continue
        for row in np.flatnonzero(np.isfinite(own)).tolist():
            statistic = _statistic(names[row])
            says_so[row] |= (is_so := _is_rounded(own[row], statistic(others)))
            if not is_so and not (statistic is np.sum and _is_rounded(own[row], others.mean())):
                return False
    return bool(says_so.all())


def _is_rounded(value: float, expected: Any) -> bool:
    """Whether a number is one of these, as far as its decimals go."""
    decimals = len(f"{value:.15g}".partition(".")[2])
    tolerance = np.maximum(ROUNDED * np.abs(expected), 0.5 * 10.0**-decimals if decimals else 0.0)
    return bool((np.abs(value - np.asarray(expected)) <= tolerance).any())


def note_on_total(table: pa.Table) -> tuple[str, ...]:
    """A note if a cell of the last row says that the row has a total of the others; no other row may say so."""
    for title in table.column_names if table.num_rows > 1 else ():
        word = table[title][-1].as_py()
        if isinstance(word, str) and TOTAL.match(word) and table[title].to_pylist().count(word) == 1:
            return (
                f"Row {table.num_rows:,} has {quote(word)} in {quote(title)}: if it is a total of the others, "
                "remove that row.",
            )
    return ()


def note_on_sums(table: pa.Table, numbers: Mapping[str, Floats]) -> tuple[str, ...]:
    """A note if the last row is a total: it has no name, or one such as Total, and sums or means of the rows above.

    Parameters
    ----------
    table : Table
        All columns.
    numbers : mapping of str to array [n]
        The columns of numbers, NaN where there is none.
    """
    n = table.num_rows
    names = [title for title in table.column_names if n > MIN_ROWS and _has_no_name(table[title])]
    last = [title for title in table.column_names if names and title in numbers and np.isfinite(numbers[title][-1])]
    sums = [title for title in last if _is_sum(numbers[title])]
    others = [numbers[title][np.isfinite(numbers[title])] for title in last if title not in sums]
    if not sums or not all(len(values) > 1 and _is_close(values[-1], values[:-1].mean()) for values in others):
        return ()
    where = f"in {listing(sums, 5)} and no name in {quote(names[0])}"
    return (f"Row {n:,} has the sum of the rows above it {where}: it was left out as a total.",)


def _has_no_name(column: pa.ChunkedArray) -> bool:
    """Whether the last cell is a gap or a word such as Total, and the first cell and the one before it are not."""
    first, before, last = ("" if (cell := column[row].as_py()) is None else str(cell).strip() for row in (0, -2, -1))
    return bool((is_missing(last) or TOTAL.match(last)) and not (is_missing(first) or is_missing(before)))


def _is_sum(values: Floats) -> bool:
    """Whether the last number is the sum of those above it and larger than each of them."""
    above = values[:-1][np.isfinite(values[:-1])]
    return _is_close(values[-1], above.sum()) and bool(abs(values[-1]) > np.abs(above).max(initial=0.0))


def _is_close(total: float, expected: Any) -> bool:
    return bool(abs(total - expected) <= ROUNDED * abs(expected))


def _note_on_ends(table: pa.Table) -> tuple[str, ...]:
    """A note if the first row, or several of the last ones, have names of statistics that their numbers are not."""
    for title in table.column_names if table.num_rows > MIN_ROWS else ():
        first, last = (_statistics_at_end(table[title], is_top) for is_top in (True, False))
        if first[:1] and first[0].strip().casefold() not in FIRST_NAMES:
            return (
                f"Row 1 has {quote(first[0])} in {quote(title)}: if it is a statistic of the others, remove that row.",
            )
        if len(last) > 1:
            return (
                f"The last {count(len(last), 'row')} have {listing(last)} in {quote(title)}: if they are statistics of "
                "the others, remove them.",
            )
    return ()


def note_on_subtotals(table: pa.Table) -> tuple[str, ...]:
    """A note on the first column of texts in which cells above the last row say that they are totals of others.

    They begin so, as "Subtotal" does, or are another cell of the column with the word before or behind it. Names of
    other statistics count at both ends of the table.
    """
    if note := _note_on_ends(table):
        return note
    for title, column in zip(table.column_names, table.slice(0, table.num_rows - 1).columns, strict=True):
        if not is_text(column.type):
            continue
        different = {text: str(text).strip().casefold() for text in pc.unique(column).to_pylist() if text is not None}
        parts = {text: OF_PART.sub("", word) for text, word in different.items()}
        known = set(different.values())
        of_parts = [text for text, part in parts.items() if part != different[text] and part in known]
        says_so = pc.or_(pc.match_substring_regex(column, SUBTOTAL), pc.is_in(column, pa.array(of_parts, column.type)))
        rows = np.flatnonzero(pc.fill_null(says_so, False).to_numpy())
        if len(rows):
            words = f"{count(len(rows), 'row')} above the last one, the first of them row {rows[0] + 1}, "
            return (
                f"{words}have words such as {quote(column[int(rows[0])])} in {quote(title)}: remove totals of others.",
            )
    return ()
