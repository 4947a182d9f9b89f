"""How the files of a public data set become rows and a split: one function per layout, which the card names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pv

from ...errors import DataError
from ..quoting import count
from ..sets.cards import Card
from ..splits import Given, Mask
from ..table_checks import Floats
from .choice import Choice
from .columns import pick
from .delimited import read_delimited
from .parsed_columns import Numbers, parsed
from .reading import Raw, read_path
from .size_limits import LOCAL

_MONTHS_FROM = 1958.0  # x = 1958 + i/12 for month i, as in the R script of the GPCV-ADMM paper
_CO2_DATE, _CO2_PPM, _CO2_HEADER = 3, 4, 3  # two columns of the Scripps table, and its lines of header


Loaded = tuple[pa.Table, Given]  # a table from which columns can be chosen, and the split that comes with the set


def read_set(card: Card, paths: tuple[Path, ...], choice: Choice) -> tuple[Numbers, Given]:
    """Read all rows of a public data set, in the units of its file.

    Parameters
    ----------
    card : Card
        The description of the data set.
    paths : tuple of Path
        Its files, in the order of the card.
    choice : Choice
        Columns; the card gives the defaults.

    Raises
    ------
    DataError
        If a file does not agree with the card.
    """
    table, given = _LAYOUTS[card.layout](card, paths)
    if table.num_rows != card.n:
        raise DataError(
            f"{card.name}: its file has {count(table.num_rows, 'row')}, but its card says {card.n:,}: delete its "
            "files, so that they are fetched again."
        )
    chosen = choice.inputs is not None or bool(choice.texts)
    objects = card.inputs[0] if card.layout == "molecules" and card.inputs and not chosen else None
    columns = replace(choice, target=choice.target or card.target, objects=choice.objects or objects)
    if not chosen and columns.objects is None and columns.target == card.target:
        columns = replace(columns, inputs=card.inputs)
    numbers = pick(Raw(table, card.name, (*card.traps, *card.notes)), columns, keep_all=True)._replace(reader=None)
    return numbers, given if given.masks is None else replace(given, masks=given.masks[numbers.kept])


def _uci(card: Card, paths: tuple[Path, ...]) -> Loaded:
    """No header, the target last; a second file marks the test rows of each fold. Column names count from 0."""
    cells, masks = (_matrix(path) for path in paths)
    if cells.shape[1] - 1 != card.d or len(masks) != len(cells):
        raise DataError(
            f"{card.name}: data {cells.shape} and folds {masks.shape} do not fit d={card.d}: fetch it again."
        )
    names = [f"x{i}" for i in range(cells.shape[1] - 1)] + ["y"]
    return _table(dict(zip(names, cells.T, strict=True))), Given("folds", masks == 1)


def _matrix(path: Path) -> Floats:
    """Numbers [n, columns] of a gzipped CSV without a header; a cell that is not a number raises."""
    table = pv.read_csv(path, pv.ReadOptions(autogenerate_column_names=True))
    return np.column_stack([column.cast(pa.float64()).to_numpy() for column in table.columns])


def _snelson(_: Card, paths: tuple[Path, ...]) -> Loaded:
    """Training inputs and outputs; the third file holds plotting inputs without targets and is not read."""
    x, y = (np.loadtxt(path) for path in paths[:2])
    return _table({"x": x, "y": y}), Given()


def _co2_wide(card: Card, paths: tuple[Path, ...]) -> Loaded:
    """One row per year, one column per month; missing months are negative."""
    table = read_path(paths[0]).table.select(range(1, 13))
    ppm = np.column_stack([parsed("", column).cells.values for column in table.columns]).ravel()
    return _series(card, _MONTHS_FROM + np.arange(len(ppm)) / 12, ppm)


def _co2_monthly(card: Card, paths: tuple[Path, ...]) -> Loaded:
    """The Scripps table: three lines of header, decimal year and ppm; missing months are -99.99."""
    lines = paths[0].read_bytes().split(b"\n", _CO2_HEADER)
    table = read_delimited(paths[0].name, lines[_CO2_HEADER], LOCAL, header=False)[0]
    return _series(card, parsed("", table[_CO2_DATE]).cells.values, parsed("", table[_CO2_PPM]).cells.values)


def _series(card: Card, x: Floats, y: Floats) -> Loaded:
    split = card.split
    given = Given("time", test=float(split.get("test", 0.0)), before=split.get("before"))
    return _table({"year": x[y > 0], card.target: y[y > 0]}), given


def _plain(_: Card, paths: tuple[Path, ...]) -> Loaded:
    return read_path(paths[0]).table, Given()


def _molecules(card: Card, paths: tuple[Path, ...]) -> Loaded:
    """A CSV with a SMILES column; where the card says so, a column "split" holds "train" or "test"."""
    table = read_path(paths[0]).table
    if card.split["kind"] != "official":
        return table, Given()
    words = table[str(card.split["column"])]
    if not pc.all(pc.is_in(words, pa.array(["train", "test"]))).as_py():
        raise DataError(f"{card.name}: its split column contains other values than train and test: fetch it again.")
    test: Mask = pc.equal(words, "test").to_numpy()
    return table, Given("official", test[:, None])


def _table(columns: dict[str, Floats]) -> pa.Table:
    return pa.table({name: np.ascontiguousarray(values) for name, values in columns.items()})


_LAYOUTS: dict[str, Callable[[Card, tuple[Path, ...]], Loaded]] = {
    "uci": _uci,
    "snelson": _snelson,
    "co2-wide": _co2_wide,
    "co2-monthly": _co2_monthly,
    "table": _plain,
    "molecules": _molecules,
}
