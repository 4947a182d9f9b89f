"""The reader of a table: how every column was read in training. It is part of the model, and reads new rows alike.

Formats are decided once, from all rows of the table. What training does not show is not guessed later: a cell that
cannot be read in the format of its column is named, a new word is averaged over the words of training, and a gap is
filled as gaps of training were.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import UnionType
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from ...display import html_rows, text_table
from ...errors import DataError, is_finite
from ..quoting import count, listing, quote
from .cells import Floats, Mask, as_they_are, texts_of
from .column_cells import Cells, ColumnReader
from .column_names import named_as
from .date_format import LOCAL
from .input_columns import RESIDUALS, InputColumn, possible_weights
from .row_notes import note_on_constant, notes_on_cells

VERSION = 1
NO_GAPS = "all rows that were learned from have"  # those with a gap may have been left out
NEW_VALUE = "value not seen"  # remark on a cell of a column that has one value in training
WITH_UNIT, WITHOUT_UNIT = "unit not in training", "without the unit of training"  # remarks on cells
DRAWS = 24  # combinations of values, where several columns of a row are not known
WARNED = (NEW_VALUE, WITH_UNIT, WITHOUT_UNIT)  # remarks of which a caller who gets numbers alone is warned
LATER = (  # fields that files of earlier versions lack
    "missing", "limits", "scaled", "small_letters", "unit_in_all", "gap_words", "zone", "offsets", "whole_days",
    "without_points", "whole",
)  # fmt: skip
LARGEST_TEXT = 4_000_000  # characters of a reader in a file


class RowsRead(NamedTuple):
    """New rows, as a model reads them.

    Attributes
    ----------
    X : array [n, q]
        The inputs that are numbers; what is not known has a value in the middle.
    texts : tuple of tuples of n str
        The columns of text, for kernels on texts.
    why : tuple of n str
        What is to be said of each row: "" where every cell was read, or "filled: x", for example.
    answered : array of bool [n]
        False where a row cannot be predicted.
    unknown : dict from str to array of bool [n]
        The columns with cells over whose values the prediction is to be averaged.
    notes : tuple of str
        What is to be said of the whole table, such as that its columns were taken by position.
    beyond : array of bool [n] or None
        Rows with another value in a column of which the model has learned from one value alone; None if there are none.
    """

    X: Floats
    texts: tuple[tuple[str, ...], ...]
    why: tuple[str, ...]
    answered: Mask
    unknown: dict[str, Mask]
    notes: tuple[str, ...] = ()
    beyond: Mask | None = None


class Variant(NamedTuple):
    """One of the values that the cells of a row may have.

    Attributes
    ----------
    values : dict from int to (float, bool)
        The inputs that change, by position: their value, and whether it is added to the value that they have.
    """

    values: dict[int, tuple[float, bool]]

    def of(self, X: Floats) -> Floats:
        """The inputs [n, q] with these values."""
        X = X.copy()
        for position, (value, is_added) in self.values.items():
            X[:, position] = X[:, position] + value if is_added else value
        return X


@dataclass(frozen=True)
class TableReader:
    """How a table is read.

    Parameters
    ----------
    columns : tuple of ColumnReader
        Every column of the table but the target, those that are left out as well.
    target : ColumnReader
        The column that is predicted.
    inputs : tuple of InputColumn
        The inputs of the model that are numbers, in their order.
    texts : tuple of str
        Columns of text that are inputs as they are.
    """

    columns: tuple[ColumnReader, ...]
    target: ColumnReader
    inputs: tuple[InputColumn, ...]
    texts: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all inputs of the model."""
        return (*(column.name for column in self.inputs), *self.texts)

    @property
    def sources(self) -> tuple[str, ...]:
        """The columns that a new table must have."""
        return tuple(dict.fromkeys((*(column.source for column in self.inputs), *self.texts)))

    @property
    def decimal_marks(self) -> dict[str, str]:
        """The mark before the decimals in each column of numbers."""
        return {column.name: column.numbers.decimal for column in self.columns if column.kind == "number"}

    def column(self, name: str) -> ColumnReader:
        """The reader of one column."""
        return next(column for column in self.columns if column.name == name)

    def contradicted_by(self, table: pa.Table, name: str) -> frozenset[str]:
        """The columns that have cells in another format than those of training; raises what `read` does."""
        table, _ = self._named(table, name)
        return frozenset(one for one in self.number_sources if self.column(one).contradicted_by(table[one]))

    def read(self, table: pa.Table, name: str = "the table", contradicted: Collection[str] = ()) -> RowsRead:
        """Read new rows.

        Parameters
        ----------
        table : Table
            Any number of rows, with the columns of training in any order; others are ignored. For their names see
            `column_names`.
        name : str
            The table, for messages.
        contradicted : collection of str
            Columns that other rows of the same file contradict (see `contradicted_by`).

        Raises
        ------
        DataError
            If a column is missing.
        """
        table, notes = self._named(table, name)
        cells = {s: self.column(s).cells(table[s], s in contradicted) for s in self.number_sources}
        matrix = self.matrix(cells, table.num_rows)
        for source, own in cells.items():
            notes += notes_on_cells(self.column(source), table[source], own, source in contradicted)
        others = (column for column in self.columns if column.name not in self.sources)
        notes += tuple(note for column in others if (note := note_on_constant(column, table)))
        texts = tuple(self.column(source).levels.spelled(as_they_are(table[source])) for source in self.texts)
        return self._explained(matrix, texts, cells, table)._replace(notes=notes)

    def _named(self, table: pa.Table, name: str) -> tuple[pa.Table, tuple[str, ...]]:
        return named_as([self.column(source) for source in self.sources], table, name)

    def matrix(self, cells: Mapping[str, Cells], n: int) -> Floats:
        """The inputs [n, q] that are numbers, from the cells of their columns, as they are in new rows."""
        columns = [column.of_cells(cells[column.source], self.column(column.source)) for column in self.inputs]
        X = np.column_stack(columns) if columns else np.zeros((n, 0))
        self._fill_from_others(X, cells)
        return X

    def _fill_from_others(self, X: Floats, cells: Mapping[str, Cells]) -> None:
        """Give gaps, and then words that are not known, the value that the other inputs of their row suggest, in place.

        What fills a gap sees the medians of other gaps, as in training.
        """
        medians = X.copy()
        for position, column in enumerate(self.inputs):
            if column.role == "value" and column.given and (gap := cells[column.source].gap).any():
                X[gap, position] = column.from_others(medians[gap][:, self._fillers(column)])
        for position, column in enumerate(self.inputs):
            if column.role == "mean" and column.values:
                read = cells[column.source]
                unknown = read.unseen | (read.gap & (self.column(column.source).on_gap != "level"))
                X[unknown, position] = column.from_others(X[unknown][:, self._fillers(column)])

    def _fillers(self, column: InputColumn) -> list[int]:
        return [position for position, other in enumerate(self.inputs) if other.can_fill(column)]

    @property
    def number_sources(self) -> tuple[str, ...]:
        """The columns from which inputs that are numbers are made."""
        return tuple(dict.fromkeys(column.source for column in self.inputs))

    def _explained(
        self, X: Floats, texts: tuple[tuple[str, ...], ...], cells: dict[str, Cells], table: pa.Table
    ) -> RowsRead:
        """The rows, with what is to be said of each."""
        n = table.num_rows
        remarks: list[list[str]] = [[] for _ in range(n)]
        answered, beyond, unknown = np.ones(n, dtype=bool), np.zeros(n, dtype=bool), dict[str, Mask]()
        for source, read in cells.items():
            policy = self.column(source).on_gap
            infinite = np.isinf(read.values)
            lost = read.unreadable | infinite | (read.gap & (policy == "refuse"))
            answered &= ~lost
            unknown[source] = self.column(source).unknown(read) & ~lost
            is_new = self.column(source).differs(read) & ~lost & ~read.unseen
            beyond |= is_new
            flagged = np.flatnonzero(read.gap | read.unseen | read.unreadable | infinite | read.with_unit | is_new)
            originals = texts_of(table[source].take(pa.array(flagged))) if len(flagged) else None
            for k, row in enumerate(flagged.tolist()):
                assert originals is not None
                text = quote(originals.original[originals.place[k]])
                remark = f"{NEW_VALUE}: {source} {text}"
                remarks[row].append(remark if is_new[row] else _remark(self.column(source), read, row, text))
        for source, column in zip(self.texts, texts, strict=True):
            empty = np.array([text == "" for text in column], dtype=bool)
            answered &= ~empty
            for row in np.flatnonzero(empty).tolist():
                remarks[row].append(f"no value: {source}")
        unknown = {source: mask for source, mask in unknown.items() if mask.any()}
        why = tuple("; ".join(parts) for parts in remarks)
        return RowsRead(X, texts, why, answered, unknown, beyond=beyond if beyond.any() else None)

    def inputs_of(self, table: pa.Table, name: str = "The table") -> RowsRead:
        """Read new rows, each of which must have an answer. What a person should know of them is a warning.

        Raises
        ------
        DataError
            If a row has none: its number and the reason.
        """
        read = self.read(table, name)
        lost = np.flatnonzero(~read.answered)
        if len(lost):
            row = int(lost[0])
            raise DataError(
                f"{name}: {count(len(lost), 'row')} of {len(read.answered):,} cannot be predicted, the first of them "
                f"row {row + 1} ({read.why[row]}): correct these cells, or leave the rows out."
                + "".join(f" {note.strip()}" for note in read.notes)
            )
        odd = [row for row, why in enumerate(read.why) if any(remark in why for remark in WARNED)]
        units = f"{name}, row {odd[0] + 1} and {len(odd) - 1:,} more: {read.why[odd[0]]}." if odd else ""
        for note in filter(None, (*read.notes, units)):
            warnings.warn(note, stacklevel=2)
        return read

    def variants(self, sources: Sequence[str]) -> tuple[Floats, list[Variant]]:
        """The values over which a row is averaged whose cells in these columns are not known.

        Returns
        -------
        weights : array [k]
        variants : list of k Variant
        """
        of_source = {source: possible_weights(self.column(source)) for source in sources}
        if len(sources) == 1 and len(of_source[sources[0]]) <= 2 * DRAWS:
            weights, picks = of_source[sources[0]], [(k,) for k in range(len(of_source[sources[0]]))]
        else:  # strata of equal probability, in a random order per column
            weights, rng = np.full(DRAWS, 1.0 / DRAWS), np.random.default_rng(0)
            strata = (np.arange(DRAWS) + 0.5) / DRAWS
            columns = [
                np.searchsorted(np.cumsum(of_source[s]), rng.permutation(strata)).clip(0, len(of_source[s]) - 1)
                for s in sources
            ]
            picks = list(zip(*(column.tolist() for column in columns), strict=True))
        tables = {
            position: (sources.index(column.source), column.alternatives(self.column(column.source)))
            for position, column in enumerate(self.inputs)
            if column.source in sources
        }
        return weights, [
            Variant(
                {
                    position: (float(values[pick[place]]), self.inputs[position].role == "mean")
                    for position, (place, values) in tables.items()
                }
            )
            for pick in picks
        ]

    @property
    def decisions(self) -> dict[str, str]:
        """The kinds and formats that cells alone would not tell again, as the option `kinds` of `load` takes them."""
        used = (*(self.column(source) for source in self.number_sources), self.target)
        return {
            column.name: column.decision
            for column in used
            if column.kind in ("date", "words", "time of day") or (column.kind == "number" and column.numbers.is_told)
        }

    def rows_of_table(self) -> list[dict[str, Any]]:
        """One line per column, for a table on the screen."""
        inputs = {source: [c.name for c in self.inputs if c.source == source] for source in self.number_sources}
        lines = []
        for column in (*self.columns, self.target):
            made = inputs.get(column.name, [column.name] if column.name in self.texts else [])
            use = f"left out: {column.left_out}" if column.left_out else _brief(made)
            use = "target" if column is self.target else use
            is_number = column.kind in ("number", "time of day", "yes/no")
            lines.append({
                "column": column.name, "kind": column.kind, "format or words": column.shown_format(),
                "median": f"{column.median:.4g}" if is_number and column.rows else "",
                "range": f"{column.low:.4g} to {column.high:.4g}" if is_number and column.rows else "",
                "gaps": f"{column.gaps:.1%}" if column.gaps else "", "a gap": self._policy(column) if made else "",
                "use": use,
            })  # fmt: skip
        return lines

    def _policy(self, column: ColumnReader) -> str:
        is_filled = any(one.source == column.name and one.role == "value" and one.given for one in self.inputs)
        return "from the other columns" if is_filled and column.on_gap == "fill" else _POLICIES[column.on_gap]

    def __repr__(self) -> str:
        return text_table(self._cells())

    def _repr_html_(self) -> str:
        return html_rows(self._cells())

    def _cells(self) -> list[list[str]]:
        lines = self.rows_of_table()
        return [list(lines[0]), *([str(value) for value in line.values()] for line in lines)]

    def to_json(self) -> str:
        """The reader as text, for a saved model; `reader_from` reads it."""
        return json.dumps({
            "version": VERSION, "target": _described(self.target), "columns": [_described(c) for c in self.columns],
            "inputs": [column._asdict() for column in self.inputs], "texts": list(self.texts),
        })  # fmt: skip


_POLICIES = {
    "fill": "the median", "level": "a word of its own", "average": "averaged over the values of training",
    "refuse": "no prediction",
}  # fmt: skip


def _brief(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} inputs" if names else "not used"


def _remark(column: ColumnReader, read: Cells, row: int, text: str) -> str:
    source, policy = column.name, column.on_gap
    if read.unseen[row]:
        return f"word not seen: {source} {text}"
    if read.gap[row]:
        remarks = {"refuse": f"no value: {source}, which {NO_GAPS}", "level": f"no value: {source}"}
        return remarks.get(policy, f"filled: {source}")
    is_read = read.with_unit[row] and np.isfinite(read.values[row])
    remark = WITHOUT_UNIT if column.numbers.unit else WITH_UNIT
    return f"{remark if is_read else 'unreadable'}: {source} {text}"


def _described(column: ColumnReader) -> dict[str, Any]:
    parts = {name: getattr(column, name)._asdict() for name in ("numbers", "dates", "levels")}
    return {name: value for name, value in vars(column).items() if name != "examples"} | parts


def reader_from(text: str, fitted: bool = True) -> TableReader:
    """Read what `TableReader.to_json` wrote; nothing in it is trusted.

    Parameters
    ----------
    text : str
    fitted : bool, default True
        Whether it has learned from the targets. Columns of means have no values before.

    Raises
    ------
    DataError
        If the text is no such reader, or comes from a later version.
    """
    if not isinstance(text, str) or len(text) > LARGEST_TEXT:
        raise DataError("The reader of the table is no text, or too long.")
    try:
        fields = json.loads(text)
        if fields["version"] != VERSION:
            raise DataError(
                f"The reader of the table has version {quote(fields['version'])}, which this gpexplorer cannot read; "
                "install a newer one."
            )
        columns = tuple(_made(ColumnReader, column) for column in fields["columns"])
        inputs = tuple(_made(InputColumn, column) for column in fields["inputs"])
        target, texts = _made(ColumnReader, fields["target"]), _checked(tuple[str, ...], fields["texts"])
        reader = TableReader(columns, target, inputs, texts)
        _check(reader, fitted)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(f"The reader of the table cannot be read: {quote(error, 80)}.") from None
    return reader


def _check(reader: TableReader, fitted: bool) -> None:
    """Raise ValueError where parts of a reader contradict each other, or do not belong to one that is fitted or not."""
    by_name = {column.name: column for column in reader.columns}
    for names, counts, _ in (column.levels for column in (*reader.columns, reader.target)):
        if len(names) != len(counts) or min(counts, default=0) < 0 or len(set(names)) != len(names):
            raise ValueError("words and their counts do not fit")
    for column in reader.inputs:
        source = by_name[column.source]
        if column.role == "level" and column.detail not in source.levels.names:
            raise ValueError("a level is no word of its column")
        if column.role == "mean" and len(column.values) != (len(source.levels.names) + 1 if fitted else 0):
            raise ValueError("a column of means has not one number per word")
        if column.role == "value" and column.given and len(column.values) != 2:
            raise ValueError("a column whose gaps are filled has no range")
        if column.role == "mean" and len(column.residuals) != (RESIDUALS if fitted else 0):
            raise ValueError("a column of means has no residuals")
        if column.role == "part":
            column.of_days(np.zeros(1))
        if column.role != "missing" and (column.role in ("level", "mean")) != (source.kind == "words"):
            raise ValueError("an input is not of the kind of its column")
    if any(column.dates.zone == LOCAL and len(column.dates.offsets) != 2 for column in reader.columns):
        raise ValueError("a local time has no offsets")
    if any(text not in by_name for text in reader.texts):
        raise ValueError("a column of text is missing")


@cache
def _fields_of(kind: Any) -> dict[str, Any]:
    """The fields of a class that are in a file, with their types."""
    return {name: hint for name, hint in get_type_hints(kind, include_extras=True).items() if name != "examples"}


def _made(kind: Any, fields: Mapping[str, Any]) -> Any:
    """An object of a class with typed fields, from what JSON holds of them."""
    present = {name: hint for name, hint in _fields_of(kind).items() if name in fields or name not in LATER}
    return kind(**{name: _checked(hint, fields[name]) for name, hint in present.items()})


def _checked(hint: Any, value: Any) -> Any:
    """A value of this type; TypeError or ValueError if it is none. A text may be annotated with its choices."""
    if get_origin(hint) is Annotated:
        hint, choices = hint.__origin__, hint.__metadata__[0]
        if value not in choices:
            raise ValueError(f"{quote(value)} is none of {listing(choices)}")
    if get_origin(hint) is UnionType:  # with None
        kinds = [kind for kind in get_args(hint) if (get_origin(kind) is tuple) == isinstance(value, list)]
        return None if value is None else _checked(kinds[0], value)
    if hint not in (str, bool, int, float) and get_origin(hint) is not tuple:
        return _made(hint, value)
    is_tuple = get_origin(hint) is tuple
    if type(value) not in ((list,) if is_tuple else (float, int) if hint is float else (hint,)):
        raise TypeError(f"{quote(value)} is not of the kind of its field")
    if hint is float and not is_finite(value):
        raise ValueError("a number is not finite")
    return tuple(_checked(get_args(hint)[0], part) for part in value) if is_tuple else hint(value)


def with_policies(column: ColumnReader, missing: str | None) -> ColumnReader:
    """The column with what becomes of a gap, by the option `missing` of `load` and by the gaps of training."""
    are_words, leaves_out = column.kind == "words", missing in ("refuse", "drop")
    if column.gaps and not leaves_out:
        return replace(column, on_gap="level" if are_words else "fill")
    return replace(column, on_gap="refuse" if leaves_out or (are_words and missing is None) else "average")
