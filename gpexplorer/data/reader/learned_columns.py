"""What the column of a table knows of training: its words, its range, its median and its share of gaps.

Formats are decided from all cells of a file. All of this comes from the rows that a model learns from alone: a word
that only other rows have, such as test rows and rows without a target, is a new word for the model.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ..quoting import quote
from .cells import Mask
from .column_cells import Cells, ColumnReader
from .words import Levels, nearly_number

FEW = 8  # words that become inputs of 0 and 1 by themselves
MOST_WORDS = 5000


def with_statistics(reader: ColumnReader, cells: Cells) -> ColumnReader:
    """The same reader with the median, the range and the share of gaps of these cells."""
    n = len(cells.values)
    values = cells.values[np.isfinite(cells.values)]
    reader = replace(reader, gaps=float(cells.gap.mean()) if n else 0.0, rows=n)
    if not len(values) or reader.kind == "words":
        return reader
    small, whole = bool(np.abs(values).max() <= 1.5), bool((values == np.round(values)).all())
    quantiles = np.quantile(values, (np.arange(9) + 0.5) / 9)
    return replace(
        reader,
        numbers=reader.numbers._replace(small=small, whole=whole),
        median=float(np.median(values)),
        low=float(values.min()),
        high=float(values.max()),
        quantiles=tuple(map(float, quantiles)),
    )


def of_levels(reader: ColumnReader, rows: int) -> ColumnReader:
    """The reader of words with what becomes of them, by their number and that of the rows."""
    levels = reader.levels
    k, present, left_out = len(levels.names), sum(levels.counts), ""
    if k == 1 and present == rows:
        left_out = "always the same word"
    elif (k == present and k > 2) or (2 * k > present and k > FEW):
        left_out = "a different text in nearly every row"
        left_out += f", such as {quote(text)}" if (text := nearly_number(levels.names)) else ""
    elif k > MOST_WORDS:
        left_out = f"{k:,} different words"
    return replace(reader, encoding="0/1" if k <= FEW else "mean", left_out=left_out)


def relearned(reader: ColumnReader, cells: Cells, rows: Mask) -> tuple[ColumnReader, Cells]:
    """A reader that knows some rows of its cells alone, and all of these cells as it reads them.

    Words of other rows alone are words that it does not have.
    """
    known = cells.of_rows(rows)
    reader = replace(reader, median=0.0, low=0.0, high=0.0, quantiles=())
    if reader.kind != "words":
        return with_statistics(reader, known), cells
    names, _, merged = reader.levels
    counts = np.bincount(known.values[np.isfinite(known.values)].astype(np.int64), minlength=len(names))
    kept = np.flatnonzero(counts)
    places = np.full(len(names) + 1, np.nan)  # the last for gaps and for words that were not known before
    places[kept] = np.arange(len(kept))
    present = np.isfinite(cells.values)
    values = places[np.where(present, cells.values, len(names)).astype(np.int64)]
    own = tuple(names[k] for k in kept)
    levels = Levels(own, tuple(counts[kept].tolist()), tuple(sorted({*merged} & {*own})))
    unseen = cells.unseen | (present & np.isnan(values))
    return with_statistics(replace(reader, levels=levels), known), cells._replace(values=values, unseen=unseen)
