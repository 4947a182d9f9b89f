"""Choice of columns: which one is the target, which ones are inputs, and why others are left out.

How each column is read is decided by `reader.column_reader`. A column is one of numbers if at least half of its
nonempty cells are numbers; a cell of text in it is then an error, with the column, the row and the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ...errors import DataError
from .. import table_checks, total_rows
from ..quoting import count, joined, quote
from ..reader.cells import as_they_are, cleaned, is_missing, texts_of
from ..reader.column_cells import Cells, ColumnReader
from ..reader.column_reader import MOST_LEVELS, column_reader
from ..reader.doubts import doubts
from ..reader.input_columns import inputs_from
from ..reader.number_format import groups_by_points
from ..reader.table_reader import TableReader, with_policies
from ..table_checks import Floats
from .choice import Choice, refuse_choice
from .delimited import DELIMITERS
from .parsed_columns import Column, Numbers, parsed
from .reading import TEXT, Raw, kind_of
from .row_names import ID_NAME, NAMES, is_row_name, keeps_time, names_copied_rows

MOST_TITLES = 6  # first rows that may be titles, units or a second header


def pick(raw: Raw, choice: Choice, keep_all: bool = False) -> Numbers:
    """Return the chosen columns as checked numbers.

    Parameters
    ----------
    raw : Raw
        A table as it was read.
    choice : Choice
        Which columns to use.
    keep_all : bool
        Whether columns are inputs even if they are constant or number the rows, as columns of an array are.

    Raises
    ------
    DataError
        One sentence about the first thing that is wrong.
    """
    table, name = raw.table, raw.name
    refuse_choice(name, table.column_names, choice)
    table_checks.refuse_few_rows(name, table.num_rows)
    needed = choice.named if choice.is_full else table.column_names
    unread = (choice.objects, choice.groups, *choice.texts, *choice.drop)
    columns = _columns({c: table[c] for c in needed if c not in unread}, choice)
    numeric = {c: column.cells.values for c, column in columns.items() if column.is_number}
    if not keep_all and (rows := total_rows.without_statistics(table, numeric)):
        others = pick(raw._replace(table=table.filter(pa.array(rows.stays)), notes=raw.notes + rows.notes), choice)
        rows.stays[rows.stays] = others.kept
        return others._replace(kept=rows.stays)
    if not keep_all:
        for title, column in columns.items():
            if column.reader.kind == "number" and names_copied_rows(table, title, column.cells.values):
                reader = replace(column.reader, left_out=f"{NAMES}; rows are there more than once")
                columns[title] = column._replace(reader=reader)
    target, inputs, omitted = roles(name, columns, choice, keep_all)
    for title in (*inputs, target):
        refuse_text(name, title, columns[title], title == target, table.num_rows)

    table_reader = _reader(table, columns, target, inputs, choice)
    cells = {column: columns[column].cells for column in inputs}
    y = columns[target].cells.values
    texts = {c: as_they_are(table[c]) for c in ((choice.objects,) if choice.objects else choice.texts)}
    groups = as_they_are(table[choice.groups]) if choice.groups else []
    survey = table_checks.Survey()
    keep = survey.add(_numbers_of_cells(table_reader, cells) | {target: y} | _gaps_of_texts(texts, groups, choice))
    _refuse_row_without_group(name, groups, choice)
    survey.refuse(name, target, choice.missing or "drop")
    if (total := total_rows.note_on_total(table)) and cells and all(column.gap[-1] for column in cells.values()):
        keep[-1] = False
        total = (f"{total[0].rpartition(': if')[0]} and no value of an input: it was left out as a total.",)
    totals = total + total_rows.note_on_subtotals(table)
    blank = table_checks.note_on_blank_rows([column.gap & keep for column in cells.values()])
    if not keep.all():  # what other rows have is not known to the model
        columns, table = _of_rows(columns, table_reader, keep), table.filter(pa.array(keep))
        inputs, also = _inputs(name, {c: columns[c] for c in (*inputs, target)}, target, choice, keep_all)
        table_reader, omitted = _reader(table, columns, target, inputs, choice), omitted + also

    notes = raw.notes + omitted + _notes_on_gaps(columns, inputs, choice) + totals
    for c in (*inputs, target):
        notes += doubts(columns[c].reader, table[c], c == target or bool(choice.asked(c)))
        notes += table_checks.notes_on_values(c, columns[c].reader.kind, table[c], columns[c].cells.values)
    notes += blank + survey.dropped
    notes += survey.notes_on(tuple(c for c in inputs if columns[c].is_full_of_numbers))
    return _numbers(table_reader, columns, choice, table)._replace(target=target, notes=notes, kept=keep)


def _of_rows(columns: dict[str, Column], reader: TableReader, keep: NDArray[np.bool_]) -> dict[str, Column]:
    """These rows of the columns alone; what was left out before stays so, for the same reason."""
    why = {column.name: column.left_out for column in reader.columns}
    kept = {c: column.of_rows(keep) for c, column in columns.items()}
    return {
        c: column._replace(reader=replace(column.reader, left_out=why.get(c) or column.reader.left_out))
        for c, column in kept.items()
    }


def _numbers(reader: TableReader, columns: dict[str, Column], choice: Choice, table: pa.Table) -> Numbers:
    """The inputs and targets of all these rows."""
    y = columns[reader.target.name].cells.values
    groups = tuple(as_they_are(table[choice.groups])) if choice.groups else ()
    texts = tuple(tuple(as_they_are(table[c])) for c in reader.texts)
    made = Numbers(np.zeros((len(y), 0)), y, reader.names, "", (), np.ones(len(y), bool), texts, groups, reader)
    if choice.objects:
        return made._replace(X=list(texts[0]), texts=())
    cells = np.column_stack([columns[c].cells.values for c in reader.number_sources] or [np.zeros((len(y), 0))])
    X = reader.matrix({c: columns[c].cells for c in reader.number_sources}, len(y))
    return made._replace(X=X, cells=None if np.array_equal(X, cells) else cells)


def _refuse_row_without_group(name: str, groups: list[str], choice: Choice) -> None:
    """Raise DataError for a row without a group, unless it was said what becomes of rows with gaps."""
    row = next((i for i, group in enumerate(groups) if is_missing(group)), None)
    if row is not None and choice.missing is None:
        raise DataError(
            f"{name} has no value of {quote(choice.groups)} in row {row + 1}, so that it is in no group: leave such "
            'rows out with missing="drop", or give the row a group.'
        )


def _columns(cells: dict[str, pa.ChunkedArray], choice: Choice) -> dict[str, Column]:
    """Every column, read. A decimal mark that other columns leave no doubt about is that of unclear columns, too.

    Without such columns, 1.234 is 1234 where 567 stands beside it.
    """
    decimal = "," if choice.decimal == "," else ""
    columns = {c: parsed(c, column, choice.asked(c), decimal) for c, column in cells.items()}
    numbers = {c: column.reader.numbers for c, column in columns.items() if column.reader.kind == "number"}
    marks = {form.decimal for form in numbers.values() if form.evidence == "sure"}
    if "." in marks or decimal:
        return columns
    for c in (c for c, form in numbers.items() if form.evidence == "either" and form.decimal == "."):
        if marks or groups_by_points(texts_of(cells[c]).distinct):
            columns[c] = parsed(c, cells[c], choice.asked(c), ",")
    return columns


def _reader(
    table: pa.Table, columns: dict[str, Column], target: str, inputs: Sequence[str], choice: Choice
) -> TableReader:
    """The reader of a table, with every input that can be made from the chosen columns."""
    readers: list[ColumnReader] = []
    for title, column in columns.items():
        if title == target:
            continue
        reader = with_policies(column.reader, choice.missing)
        if title in inputs:
            reader = _encoded(reader, title in choice.encode)
        elif not reader.left_out:
            reader = replace(reader, left_out=left_out(columns, title, choice) or "not chosen")
        readers.append(reader)
    raw_texts = (choice.objects,) if choice.objects else choice.texts
    readers += [column_reader(title, table[title], "raw text") for title in raw_texts]
    made = [column for r in readers if r.name in inputs for column in inputs_from(r, target)]
    made.sort(key=lambda column: inputs.index(column.source))
    return TableReader(tuple(readers), columns[target].reader, tuple(made), tuple(raw_texts))


def _encoded(reader: ColumnReader, is_asked: bool) -> ColumnReader:
    """The reader of a column that is an input; a column of words that was asked for has inputs of 0 and 1."""
    k = len(reader.levels.names)
    if reader.kind == "text":
        reader = replace(reader, kind="words")
    encoding = "0/1" if is_asked and k <= MOST_LEVELS else reader.encoding
    return replace(reader, left_out="", encoding=encoding)


def _numbers_of_cells(reader: TableReader, cells: dict[str, Cells]) -> dict[str, Floats]:
    """Numbers [n] of each column, with NaN where a gap is an error or leaves out its row."""
    numbers = {}
    for title, read in cells.items():
        column = reader.column(title)
        filled = np.where(np.isnan(read.values), column.median, read.values)
        numbers[title] = np.where(read.gap, np.nan, filled) if column.on_gap == "refuse" else filled
    return numbers


def _gaps_of_texts(texts: dict[str, list[str]], groups: list[str], choice: Choice) -> dict[str, Floats]:
    """NaN where a text is missing; if gaps are filled, a missing text beside numbers counts as the empty word."""
    fills = choice.missing == "fill" or (choice.missing is None and not choice.objects)
    gaps = {c: _missing_texts(cells) for c, cells in texts.items() if choice.objects or not fills}
    return gaps | ({choice.groups: _missing_texts(groups)} if choice.groups else {})


def _notes_on_gaps(columns: dict[str, Column], inputs: Sequence[str], choice: Choice) -> tuple[str, ...]:
    """Notes on gaps that were filled."""
    notes = []
    gaps = {c: int(columns[c].cells.gap.sum()) for c in inputs if choice.missing in (None, "fill")}
    filled = {c: f"{quote(c)} ({number:,})" for c, number in gaps.items() if number}
    numbers = [shown for c, shown in filled.items() if columns[c].reader.kind != "words"]
    words = [shown for c, shown in filled.items() if columns[c].reader.kind == "words"]
    if numbers:
        ways = "with the median of their column, or with what the other columns suggest where these explain it"
        notes.append(f"Missing values were filled in {ways}: {joined(numbers, noun='columns')}.")
    if words:
        notes.append(f"Missing words count as a word of their own: {', '.join(words[:12])}.")
    return tuple(notes)


def roles(
    name: str, columns: dict[str, Column], choice: Choice, keep_all: bool = False
) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Return the target, the inputs in the requested order or that of the table, and notes on what was left out."""
    target = choice.target or default_target(name, columns, choice)
    inputs, omitted = _inputs(name, columns, target, choice, keep_all)
    return target, inputs, _other_target(columns, target, choice) + omitted


def _other_target(columns: dict[str, Column], target: str, choice: Choice) -> tuple[str, ...]:
    """A note if the target was not chosen, and is another column than the last one."""
    last = next(reversed(columns))
    if choice.target is not None or last == target:
        return _note_on_target(columns, target, choice)
    if last in (choice.inputs or ()):
        return ()
    column = columns[last]
    contents = f" ({quote(column.first)})" if column.first else ""
    why = left_out(columns, last, choice) if column.is_number else f"does not contain numbers{contents}"
    why = f"{why[0].lower()}{why[1:]}" if why else "is a date"
    return (
        f"The last column, {quote(last)}, {why}, so {quote(target)} is the target: if "
        f'another column is to be predicted, give target="NAME".',
    )


def _note_on_target(columns: dict[str, Column], target: str, choice: Choice) -> tuple[str, ...]:
    """A note if the target seems to number the rows, or was not chosen while a column called target is an input."""
    column = columns.get(target)
    if column is not None and column.is_number and (why := is_row_name(target, column.cells.values)):
        return (f'The target {quote(target)} {why}: if another column is to be predicted, give target="NAME".',)
    named = [title for title in columns if title.casefold() == "target" != target.casefold()]
    if choice.target is not None or not named:
        return ()
    return (
        f"The last column, {quote(target)}, is the target, and {quote(named[0])} is an input: if it is to be "
        f'predicted, give target="{named[0]}".',
    )


def left_out(columns: dict[str, Column], title: str, choice: Choice) -> str:
    """Why a column is no input by itself: it is constant, it names the rows, or it is a copy; "" if it is one."""
    reader, values = columns[title].reader, columns[title].cells.values
    if reader.left_out or reader.kind == "empty" or not columns[title].has_any:
        return reader.left_out or "no values"
    if reader.examples and ID_NAME.match(title):  # some are numbers and some are not
        return NAMES
    if reader.kind == "text":
        return "text"
    present = values[~columns[title].cells.gap]  # NaN for an unreadable cell, which equals no other
    if reader.kind != "words" and len(present) == len(values) and (present == present[0]).all():
        rounded = " after rounding" if abs(present[0]) > table_checks.LARGEST_EXACT else ""
        return f"always {present[0]:g}{rounded}" if reader.kind == "number" else "always the same"
    if reader.kind == "number" and not keeps_time(title):
        return is_row_name(title, values)
    return ""


def _copies(columns: dict[str, Column], inputs: Sequence[str]) -> dict[str, str]:
    """Inputs whose cells are those of an earlier input, with the name of that one."""
    seen: dict[bytes, str] = {}
    copies = {}
    for title in inputs:
        column = columns[title]
        key = column.cells.values.tobytes() + str(column.reader.levels.names).encode()
        if key in seen:
            copies[title] = seen[key]
        seen.setdefault(key, title)
    return copies


def default_target(name: str, columns: dict[str, Column], choice: Choice) -> str:
    """Return the last column of numbers that is not an input and does not name the rows."""
    taken = choice.inputs or ()
    numbers = [c for c, column in columns.items() if column.is_number and c not in taken]
    if not numbers:
        way = _way_to_second_column(name, columns)
        raise DataError(f"{name} has no column of numbers that could be the target; it has {_contents(columns)}{way}.")
    last = numbers[-1]
    if is_row_name(last, columns[last].cells.values):
        others = [c for c in numbers if not is_row_name(c, columns[c].cells.values)]
        return others[-1] if others and (len(others) > 1 or len(columns) > 2) else last
    return last


def _way_to_second_column(name: str, columns: dict[str, Column]) -> str:
    """What to do about a table of one column; "" for one of several."""
    if not kind_of(name):
        return ": add one, such as its index with frame.reset_index()" if len(columns) == 1 else ""
    if kind_of(name).removesuffix(".gz") not in TEXT:
        return ": add one" if len(columns) == 1 else ""
    is_in_quotes = any(mark in title for title in columns for mark in DELIMITERS)
    division = "separate its cells by commas, semicolons, tabs or |"
    way_out = "each of its lines is in quotes as a whole, so remove these quotes" if is_in_quotes else division
    return f": {way_out}" if len(columns) == 1 else ""


def _inputs(
    name: str, columns: dict[str, Column], target: str, choice: Choice, keep_all: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The inputs in the requested order or that of the table, and notes on what was left out."""
    if choice.objects:
        return (), ()
    if choice.inputs is not None:
        inputs = tuple(c for c in dict.fromkeys(choice.inputs) if c not in choice.drop)
        for c in (c for c in inputs if not columns[c].has_any):
            refuse_text(name, c, columns[c], False, 0)
        omitted: dict[str, str] = {}
    else:
        titles = [c for c in columns if c != target]
        asked_for = (*choice.encode, *choice.dates, *dict(choice.kinds))
        omitted = {c: why for c in titles if c not in asked_for and (why := left_out(columns, c, choice))}
        omitted = {c: why for c, why in omitted.items() if not (keep_all and columns[c].is_number)}
        inputs = tuple(c for c in titles if c not in omitted)
        rescued = [c for c in omitted if columns[c].is_number]
        if not inputs and rescued and not choice.texts:  # where it is the only input, it is meant
            inputs, omitted = tuple(rescued[:1]), {c: why for c, why in omitted.items() if c != rescued[0]}
        copies = {} if keep_all else _copies(columns, inputs)
        omitted |= {c: f"the same as {quote(other)}" for c, other in copies.items()}
        inputs = tuple(c for c in inputs if c not in copies)
    if not inputs and not choice.texts:
        contents = f" (it has {_contents({c: columns[c] for c in omitted})})" if omitted else ""
        way_out = _way_to_second_column(name, columns) or ": add one, or choose another target"
        raise DataError(f"{name} has no input column of numbers beside the target {quote(target)}{contents}{way_out}.")
    shown = joined(f"{quote(c)} ({why})" for c, why in omitted.items())
    return inputs, (f"Columns that were left out: {shown}.",) if omitted else ()


def _contents(columns: dict[str, Column]) -> str:
    """Column names, each with the first text in the column, such as "price" ("$3.50")."""
    shown = (f"{quote(c)} ({quote(column.first)})" if column.first else quote(c) for c, column in columns.items())
    return joined(shown, 6)


def refuse_text(name: str, title: str, column: Column, is_target: bool, rows: int) -> None:
    """Raise DataError for a column with an unreadable cell, and for a column that is empty in every row."""
    reader = column.reader
    if is_target and reader.kind in ("words", "text", "date", "molecules") and column.has_any:
        cells = f"text ({quote(column.first)})" if column.first else reader.left_out or f"cells of kind {reader.kind}"
        raise DataError(
            f"{name}: column {quote(title)} has {cells}, where a number is needed: only numbers "
            'can be predicted: choose another column with target="...".'
        )
    if reader.kind == "text" and reader.examples:
        raise DataError(
            f"{name}: column {quote(title)} does not contain dates or numbers ({quote(column.first)}): write dates as "
            "2004-03-01, or leave the column out."
        )
    if reader.examples:
        row, value = reader.examples[0]
        more = f" (and {count(len(reader.examples) - 1, 'more cell')} like it)" if len(reader.examples) > 1 else ""
        what = "which is no date like the others" if reader.kind == "date" else "where a number is needed"
        raise DataError(
            f"{name}: column {quote(title)} has text in row {row + 1}: {quote(value)}{more}, "
            f"{what}: {_way_out(title, column, is_target, rows)}."
        )
    if not column.has_any:
        way_out = 'choose another target with target="..."' if is_target else f"leave it out with drop=[{quote(title)}]"
        raise DataError(f"{name}: column {quote(title)} is empty in every row: {way_out}.")


def _way_out(title: str, column: Column, is_target: bool, rows: int) -> str:
    """What to do about a column with a cell that is unreadable."""
    cells = column.reader.examples
    if [row for row, _ in cells] == list(range(len(cells))) and len(cells) < MOST_TITLES:
        top = "row 1 seems" if len(cells) == 1 else f"the first {len(cells):,} rows seem"
        it = "that row" if len(cells) == 1 else "them"
        return f"{top} to have titles, units or a second header: remove {it} from the file"
    if column.reader.kind == "number" and (way := column.reader.numbers.way_out(cleaned(cells[0][1]))):
        return way
    is_end = [row for row, _ in cells] == list(range(rows - len(cells), rows)) and column.reader.kind == "number"
    if len(cells) == 1 and (is_end or total_rows.TOTAL.match(cells[0][1])):
        return f"row {cells[0][0] + 1} seems to have a total or a remark: remove that row from the file"
    if is_end and len(cells) < MOST_TITLES:
        return f"the last {len(cells):,} rows seem to have totals or remarks: remove them from the file"
    if all(text in (title, "") for _, text in cells):
        return "such rows repeat the names of the columns: remove them from the file"
    if is_target:
        return "correct the cell, or leave its row out of the file"
    name = f"[{quote(title)}]"
    return f"correct the cell, or leave the column out with drop={name}, or use its words with encode={name}"


def _missing_texts(texts: list[str]) -> Floats:
    """NaN [n] where a text is missing."""
    return np.array([np.nan if is_missing(text) else 0.0 for text in texts])
