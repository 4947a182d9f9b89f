"""CSV, TSV and other delimited text, read strictly into cells of text.

Nothing is guessed from the values. A row that is longer or shorter than the first one is an error, and is not taken for
an index. A header that occurs twice is an error, and no column is renamed. Text becomes numbers later, where a wrong
cell can be named.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import IO, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from ...errors import DataError
from ..quoting import count, listing, quote
from ..reader.cells import INVISIBLE, PLAIN_NUMBER
from ..reader.date_format import date_format
from ..reader.date_texts import clock_hours
from ..reader.number_format import duration_parts, number_format
from ..reader.words import name_key
from .size_limits import LOCAL, NEEDED, Limits
from .text_encoding import as_utf8, marked_encoding

DELIMITERS = ",;\t|"
_number = re.compile(rf"\s*({PLAIN_NUMBER}|[+-]?[0-9]+,[0-9]+)?\s*")  # to guess the delimiter, with decimal commas
_header_number = re.compile(rf"\s*({PLAIN_NUMBER}|nan|[+-]?inf)\s*", re.IGNORECASE)
_YEAR = re.compile(r"19[0-9]{2}|20[0-9]{2}|2100")
_WINDOW = 50  # lines that are used to guess the delimiter
_QUOTED = re.compile(r'(^|[,;\t|])"(?:[^"]|"")*"(?=$|[,;\t|])')  # a whole cell in quotes
_OPEN_QUOTE = re.compile(r'(^|[,;\t|])"(?:[^"]|"")*$')
_LINE_BREAK = re.compile(r"[^\S\t]*[\r\n]+[^\S\t]*(?!$)")  # within a line
_MOST_LINES = 20  # of a quoted cell among the first lines
_EXCEL = re.compile(rb"sep=([,;\t|])\r?\n")  # a first line by which spreadsheets say the delimiter


def read_delimited(
    name: str, data: bytes, limits: Limits, header: bool | None = None, known: Collection[str] = ()
) -> tuple[pa.Table, tuple[str, ...]]:
    """Read delimited text into a table of text cells, and notes about it for the user.

    Parameters
    ----------
    name : str
        The file, for messages.
    data : bytes
        Text in UTF-8, in UTF-16 or UTF-32 with its mark, or else in Windows-1252, which a note says. The
        delimiter is guessed.
    limits : Limits
        Upper bounds.
    header : bool, optional
        Whether the first row contains column names; if omitted, it does unless all its cells are numbers.
    known : collection of str, default ()
        Names of columns that the table must have: a first row that has all of them contains names, numbers or not.

    Raises
    ------
    DataError
        For an unknown encoding, rows of different lengths, a quote that is not closed, or a header that occurs twice.

    Notes
    -----
    Memory: about 3 times the size of the file.
    """
    data, encoding = as_utf8(name, data)
    data, delimiter, _, skipped = _opened(data, known)
    if delimiter == " ":
        lines = ("\t".join(_blank_separated(line)) for line in data.decode().splitlines())
        data, delimiter = "\n".join(lines).encode(), "\t"
    first = first_lines(data, 1)
    if not first:
        raise DataError(f"{name} contains only blank lines: {NEEDED}.")
    if len(first_lines(data, 2)) == 1 and not data.endswith((b"\n", b"\r")):
        data += b"\n"  # Arrow ignores a single line without a line break
    limits.check_table(name, data.count(b"\n"), first[0].count(delimiter) + 1)

    cells = _cells(name, data, delimiter)
    below = [_row(line, delimiter) for line in first_lines(data)[1:]]
    head = [cells[i][0].as_py() for i in range(cells.num_columns)]
    names, notes, skip = _names(name, head, below, header, known)
    cells = cells.slice(skip)
    if cells.num_rows == 0:
        raise DataError(f"{name} has a header and no rows below it: {NEEDED}.")
    return cells.rename_columns(names), encoding + skipped + notes


def delimited_strips(
    path: Path, name: str, block: int, known: Collection[str] = ()
) -> Iterator[tuple[pa.Table, tuple[str, ...]]]:
    """Read a text file in strips of about `block` bytes, each with the columns of the header, and all cells as text.

    `known` and the notes, which are those of the whole file, are as for `read_delimited`.

    Raises
    ------
    DataError
        For an unknown encoding, or rows of different lengths.
    """
    with open_text(path) as file:
        start = file.read(1 << 20)
        is_whole = not file.read(1)  # otherwise the last line may be cut
    encoding, notes = marked_encoding(start), tuple[str, ...]()
    if encoding:
        whole = codecs.getincrementaldecoder(encoding)("replace").decode(start).encode()
        text = whole[: (not is_whole and whole.rfind(b"\n") + 1) or len(whole)]
    else:
        cut = (not is_whole and start.rfind(b"\n") + 1) or len(start)
        with open_text(path) as file:
            text, notes = as_utf8(name, start[:cut], _blocks(file))
        encoding = "cp1252" if notes else "utf8"
    if is_whole and not first_lines(text, 1):
        raise DataError(f"{name} contains only blank lines: {NEEDED}.")
    text, delimiter, ahead, skipped = _opened(text, known)
    if delimiter == " ":
        with open_text(path) as file:
            yield read_delimited(name, file.read(), LOCAL, known=known)
        return
    first, *below = [_row(line, delimiter) for line in first_lines(text)] or [[]]
    names, on_names, skip = _names(name, first, below, None, known)
    notes += skipped + on_names
    if skip and is_whole and len(first_lines(text, 2)) < 2:
        return
    ahead += skip * _count([next(filter(str.strip, _whole_lines(_decoded_lines(text))), "\n")])
    invalid: list[pv.InvalidRow] = []
    try:
        with open_text(path) as file:
            reader = pv.open_csv(
                file,
                pv.ReadOptions(  # with several threads, Arrow does not know the number of a row of another length
                    column_names=names, skip_rows=ahead, block_size=block, encoding=encoding, use_threads=False
                ),
                _parsing(delimiter, len(names), invalid),
                _as_text(names),
            )
            last = None
            for strip in _without_blank_end(pa.Table.from_batches([batch]) for batch in reader):
                last = strip
                yield strip, notes
        if last is not None and _has_line_break(last.slice(max(last.num_rows - 1, 0))):
            with open_text(path) as file:
                quotes = sum(block.count(b'"') for block in _blocks(file))
            _refuse_open_quote(name, quotes)
    except pa.ArrowInvalid as error:
        if invalid:
            raise DataError(_ragged(name, invalid[0], ahead)) from None
        raise DataError(f"{name} cannot be read: {quote(error, 160)}. Save it as CSV again.") from None
    except UnicodeDecodeError as error:
        raise DataError(f"{name} is not UTF-8: byte 0x{error.object[error.start]:02x}. Save it as UTF-8.") from None


def open_text(path: Path) -> IO[bytes]:
    """Open a text file, which may be packed by gzip."""
    return cast(IO[bytes], gzip.open(path, "rb")) if path.name.lower().endswith(".gz") else path.open("rb")


def _blocks(file: IO[bytes]) -> Iterator[bytes]:
    return iter(lambda: file.read(1 << 20), b"")


def guess_delimiter(lines: list[str]) -> str:
    """Return the delimiter, of `, ; tab |`, that divides these lines most evenly into numbers, or " " for blanks."""
    best = max(DELIMITERS, key=lambda delimiter: _evenness(lines, delimiter))
    if _evenness(lines, best)[0]:
        return best
    widths = [len(_blank_separated(line)) for line in lines]
    rows = set(widths[1:] or widths)
    is_even = len(rows) == 1 and max(rows) > 1 and 0 <= max(rows) - widths[0] <= 1
    return " " if is_even and not (widths[0] == 1 and _are_values(lines[1:])) else ","


def _are_values(lines: list[str]) -> bool:
    """Whether each line is one date, as 2021-03-01 06:30, one time or one number, as 5 kg or 5 000.

    Numbers such as 1 234 and 2 567 that are counted by their first digits are two.
    """
    cells = [line.strip().strip('"') for line in lines]
    numbers, is_time = number_format(cells), [bool(duration_parts(c)) or clock_hours(c) is not None for c in cells]
    are_counted = all(cell.split()[0] == str(row) and " 0" not in cell for row, cell in enumerate(cells, 1))
    is_number = numbers is not None and (bool(numbers.unit) or not are_counted)
    return is_number or all(is_time) or date_format(cells) is not None


def _blank_separated(line: str) -> list[str]:
    return next(csv.reader([line.strip()], delimiter=" ", skipinitialspace=True), []) if '"' in line else line.split()


def _opened(text: bytes, known: Collection[str]) -> tuple[bytes, str, int, tuple[str, ...]]:
    """The text from the names of its columns on, its delimiter, the number of lines before, and a note on them.

    Lines before are blank, one such as "sep=;", remarks that begin with #, and titles in the first cell alone. The last
    remark has the names of the columns if it has as many cells as the rows, and a number stands in the line after it.
    """
    first = _EXCEL.match(text)
    lines = list(islice(_whole_lines(_decoded_lines(text)), 4 * _WINDOW))
    top = int(first is not None)
    while top < len(lines) - 2 and (not lines[top].strip() or lines[top].startswith("#")):
        top += 1
    remarks = [line.strip() for line in lines[:top] if line.startswith("#")]
    rest = text[len("".join(lines[:top]).encode()) :]
    delimiter = first[1].decode() if first else guess_delimiter(first_lines(rest))
    rows = [_row(line, delimiter) for line in first_lines(rest)]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    names = remarks[-1].lstrip("# ") if remarks else ""
    if len(_row(names, delimiter)) == width > 1 and any(map(_header_number.fullmatch, filter(None, rows[0]))):
        return names.encode() + b"\n" + rest, delimiter, _count(lines[: top - 1]), _note_on_skipped(remarks[:-1])

    title = top
    while title < len(lines) - 2 and width > 1 and not any(_row(lines[title], delimiter)[1:]):
        title += 1
    names_row = [cell for cell in _row(lines[title], delimiter) if cell] if lines else []
    if title > top and len(names_row) > 1 and not any(map(_header_number.fullmatch, names_row)):
        remarks += [line.strip(f" {delimiter}\r\n") for line in lines[top:title]]
        top, rest = title, text[len("".join(lines[:title]).encode()) :]
    note = _note_on_skipped([line for line in remarks if line])
    if delimiter == "," and _is_one_column(rest, known):
        return rest, "\t", _count(lines[:top]), note
    named = _with_all_names(rest, delimiter)
    if named is not rest and named.endswith(rest.lstrip(b"\r\n")):
        note += ("The first line has one name fewer than rows have cells: they belong to the columns after the first.",)
    return named, delimiter, _count(lines[:top]), note


def _note_on_skipped(lines: list[str]) -> tuple[str, ...]:
    return (f"Lines above the names of the columns were skipped: {listing(lines, 3)}.",) if lines else ()


def _row(line: str, delimiter: str) -> list[str]:
    if delimiter == " ":
        return _blank_separated(line)
    return [cell.strip() for cell in next(csv.reader([_LINE_BREAK.sub(" ", line)], delimiter=delimiter), [])]


def _is_one_column(text: bytes, known: Collection[str]) -> bool:
    """Whether a comma separates no cells below the only name that is known, but stands within numbers such as 1,5."""
    name, *rows = first_lines(text) or [""]
    is_known = len(known) == 1 and {name_key(name)} == set(map(name_key, known))
    return is_known and number_format([row.strip() for row in rows]) is not None


def _with_all_names(text: bytes, delimiter: str) -> bytes:
    """The text with an empty name in its first line, if all other lines have one cell more."""
    rows = [_row(line, delimiter) for line in first_lines(text)]
    if len(rows) < 3 or {len(row) for row in rows[1:]} != {len(rows[0]) + 1} or len(rows[0]) < 1:
        return text
    text = text.lstrip(b"\r\n")
    mark = b'"" ' if delimiter == " " else delimiter.encode()
    if any(row[-1] for row in rows[1:]):
        return mark + text
    end = len(next(_whole_lines(_decoded_lines(text))).rstrip("\r\n").encode())
    return text[:end] + mark + text[end:]


def _evenness(lines: list[str], delimiter: str) -> tuple[bool, float, float, int]:
    rows = list(csv.reader(lines, delimiter=delimiter))
    if not rows:
        return False, 0.0, 0.0, 0
    width, votes = Counter(len(row) for row in rows).most_common(1)[0]
    cells = [cell for row in rows[1:] or rows for cell in row]
    numeric = sum(bool(_number.fullmatch(cell)) for cell in cells) / max(len(cells), 1)
    return width > 1, votes / len(rows), numeric, width


def first_lines(data: bytes, most: int = _WINDOW) -> list[str]:
    """The first lines that are not blank, without a last line that the window may have cut; a line break is a blank."""
    window = data[: 1 << 20]
    lines = window.decode("utf-8", errors="ignore").splitlines(keepends=True)
    if len(window) < len(data) and len(lines) > 1:
        lines = lines[:-1]
    return [_LINE_BREAK.sub(" ", line).strip("\r\n") for line in islice(_whole_lines(filter(str.strip, lines)), most)]


def _decoded_lines(text: bytes) -> Iterator[str]:
    """The lines of the first megabyte, each with its end."""
    return (line.decode(errors="ignore") for line in text[: 1 << 20].splitlines(keepends=True))


def _count(lines: list[str]) -> int:
    """How many lines these are in the file."""
    return len("".join(lines).encode().splitlines())


def _whole_lines(lines: Iterable[str]) -> Iterator[str]:
    """Lines, of which those of one quoted cell are together, as in a name of a column of two lines."""
    parts: list[str] = []
    for line in lines:
        parts.append(line)
        is_open = _OPEN_QUOTE.search(_QUOTED.sub(r"\1", "".join(parts).rstrip("\r\n"))) is not None
        if is_open and len(parts) < _MOST_LINES:
            continue
        yield from parts if is_open else ["".join(parts)]  # a quote that is not closed soon belongs to its line
        parts = []
    yield from parts


def _cells(name: str, data: bytes, delimiter: str) -> pa.Table:
    """All cells as text; the header is row 0."""
    invalid: list[pv.InvalidRow] = []
    width = len(next(csv.reader(first_lines(data, 1), delimiter=delimiter), []))
    try:
        table = pv.read_csv(
            pa.BufferReader(data),
            pv.ReadOptions(autogenerate_column_names=True, use_threads=False, block_size=1 << 24),
            _parsing(delimiter, width, invalid),
            _as_text([f"f{i}" for i in range(width)]),
        )
    except pa.ArrowInvalid as error:
        raise DataError(_ragged(name, invalid[0], 1) if invalid else f"{name} cannot be read: {error}.") from None
    table = table.cast(pa.schema([(f"f{i}", pa.string()) for i in range(table.num_columns)]))
    table = next(_without_blank_end([table]))
    if _has_line_break(table):
        _refuse_open_quote(name, data.count(b'"'))
    return table


def _has_line_break(table: pa.Table) -> bool:
    return any(pc.any(pc.match_substring(column, "\n")).as_py() for column in table.columns)


def _refuse_open_quote(name: str, quotes: int) -> None:
    """Raise DataError for an odd number of quotes in a file with a cell of several lines."""
    if quotes % 2:
        raise DataError(
            f"{name} opens a quote that is never closed, so the rows after it are read as one cell: close the quote."
        )


def _parsing(delimiter: str, width: int, invalid: list[pv.InvalidRow]) -> pv.ParseOptions:
    """Blank lines are left out of several columns; of one column they are gaps, as spreadsheets write them.

    A row of another length is kept in `invalid`, and is then an error.
    """

    def refuse(row: pv.InvalidRow) -> str:
        invalid.append(row)
        return "error"

    return pv.ParseOptions(
        delimiter=delimiter, newlines_in_values=True, ignore_empty_lines=width > 1, invalid_row_handler=refuse
    )


def _as_text(names: list[str]) -> pv.ConvertOptions:
    """All cells are text; a line of one column is null where it is blank, and "" where it is a pair of quotes."""
    return pv.ConvertOptions(
        column_types=dict.fromkeys(names, pa.string()),
        strings_can_be_null=len(names) == 1,
        null_values=[""],
        quoted_strings_can_be_null=False,
    )


def _without_blank_end(strips: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Leave out the blank lines with which a file of one column ends; those between rows are gaps."""
    blank: pa.Table | None = None  # lines that end the file unless others follow
    for strip in strips:
        rows = pa.concat_tables([blank, strip]) if blank else strip
        filled = np.flatnonzero(rows.column(0).is_valid().to_numpy())
        end = int(filled[-1]) + 1 if len(filled) else 0
        blank = rows.slice(end)
        if end:
            first = rows.column(0).slice(0, end).fill_null("")
            yield rows.slice(0, end).set_column(0, rows.column_names[0], first)


def _ragged(name: str, row: pv.InvalidRow, lines_before: int) -> str:
    where = f"Row {row.number - lines_before}" if row.number else "A row"
    return (
        f"{where} of {name} has {count(row.actual_columns, 'cell')} where the first line has {row.expected_columns}: "
        f"{quote(row.text, 60)}. Give every row the same number of cells as the header."
    )


def _is_row(cells: list[str]) -> bool:
    """Whether the cells of a first line are numbers, with gaps where there is a decimal; years may be names."""
    numbers = [cell for cell in cells if _header_number.fullmatch(cell)]
    return len(numbers) == len(cells) or (any("." in cell for cell in numbers) and not set(cells) - {*numbers, ""})


def _why_names(first: list[str], below: list[list[str]]) -> str:
    """Why a first line of numbers names columns, since it has rising years or counts them; "" if it is a row.

    No row below rising years has years alone. Of a count, its numbers have no decimals where those below have.
    """
    k = len(first)
    if k < 2 or not below:
        return ""
    rows_of_years = [bool(cells) and all(map(_YEAR.fullmatch, cells)) for cells in (first, *below)]
    if rows_of_years[0] and not any(rows_of_years[1:]) and all(early < late for early, late in pairwise(first)):
        return "are years"
    starts = [start for start in (0, 1) if first == [str(start + column) for column in range(k)]]
    with_point = sum(all("." in cell for cell in cells) for cells in zip(*below, strict=False))
    is_count = with_point == k or (k > 2 and (with_point > 0 or starts == [0]))
    return "count the columns" if starts and is_count else ""


def _names(
    name: str, first: list[str], below: list[list[str]], header: bool | None, known: Collection[str]
) -> tuple[list[str], tuple[str, ...], int]:
    """Column names, notes, and the number of rows that the header takes, from the first lines."""
    first = [unicodedata.normalize("NFC", _LINE_BREAK.sub(" ", cell.translate(INVISIBLE).strip())) for cell in first]
    if header is None and known and set(known) <= set(first):
        header = True
    why = _why_names(first, below) if header is None else ""
    if header is False or (header is None and _is_row(first) and not why):
        note = "The first line contains only numbers, so it was read as data; columns are named column 1, column 2, ..."
        return [f"column {i + 1}" for i in range(len(first))], () if header is False else (note,), 0
    names = [cell or f"column {i + 1}" for i, cell in enumerate(first)]
    duplicates = [n for n, occurrences in Counter(names).items() if occurrences > 1]
    if duplicates:
        columns = [i + 1 for i, n in enumerate(names) if n == duplicates[0]]
        raise DataError(
            f"{name} has the header {quote(duplicates[0])} more than once (columns {', '.join(map(str, columns))}): "
            "give each column its own name."
        )
    blank = [names[i] for i, cell in enumerate(first) if not cell]
    notes = [f"Columns without a header are called {listing(blank)}."] if blank else []
    number = next((cell for cell in first if "." in cell and _header_number.fullmatch(cell)), "")
    if (number and header is None) or why:
        why = f"because {quote(first[0])} to {quote(first[-1])} {why}" if why else f"though {quote(number)} is a number"
        notes.append(
            f"The first line was read as the names of the columns, {why}: if it is a row, write names above it."
        )
    return names, tuple(notes), 1
