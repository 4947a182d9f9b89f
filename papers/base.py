"""A figure or table of a paper, computed again: pieces of work, the rows that each gives, and the picture of all rows.

Rows are kept after each piece, so that a computation that was stopped half-way continues where it was. Processes that
compute the same figure share its pieces: each holds the lock of the piece that it does, and skips those of the others.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Any

import holoviews as hv
import pandas as pd
from bokeh.core.validation import silence
from bokeh.core.validation.warnings import FIXED_SIZING_MODE
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models.widgets import Div
from bokeh.resources import INLINE
from filelock import FileLock, Timeout

Unit = Mapping[str, Any]  # the parameters of one piece of work, as JSON can represent them
Rows = Sequence[Mapping[str, Any]]

SECONDS_FILE = "seconds.json"  # what `measure` found
SECONDS = "seconds of the processor"  # of a whole piece of work, kept with its rows
REPEATED = ("seed", "trial", "split", "fold")  # names of the parameters that number the repeats of a piece
ALIKE = ("rate",)  # names of the parameters whose value does not change how long a piece takes
LIMIT = "seconds"  # name of the parameter that ends the run of a piece
FRAME = {"frame_width": 260, "frame_height": 220}
silence(FIXED_SIZING_MODE, True)  # a figure is as large as its frame, its axes and its legend together


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper.

    Attributes
    ----------
    name : str
        Such as "grief-fig1".
    title : str
        The title of the picture.
    paper : str
        What the paper printed, as a sentence.
    units : callable
        Takes whether the full version is wanted, and gives the pieces of work.
    work : callable
        Does one piece of work, and gives rows of the table.
    plot : callable
        Draws all rows.
    cells : str
        The name of the figure whose rows it shows, if another figure shows the same ones.
    estimate : callable, optional
        Does a part of one piece of work, and gives the processor seconds that the whole piece takes by that pace.
    pace : str
        Which part that is, as the end of a sentence.
    """

    name: str
    title: str
    paper: str
    units: Callable[[bool], Sequence[Unit]]
    work: Callable[[Unit], Rows]
    plot: Callable[[pd.DataFrame], hv.Element | hv.Overlay | hv.Layout]
    cells: str = ""
    estimate: Callable[[Unit], float] | None = None
    pace: str = ""

    def only(self, values: Sequence[str]) -> Figure:
        """Return the same figure with the pieces that have each of these values as one of their parameters."""

        def units(full: bool) -> list[Unit]:
            return [unit for unit in self.units(full) if set(values) <= {str(value) for value in unit.values()}]

        return replace(self, units=units) if values else self

    def limited(self, repeats: int) -> Figure:
        """Return the same figure with at most this many repeats: draws, splits, folds or seeds.

        Pieces that both have in common are computed once for both.
        """

        def units(full: bool) -> list[Unit]:
            return [unit for unit in self.units(full) if all(unit.get(name, 0) < repeats for name in REPEATED)]

        return replace(self, units=units, paper=f"{self.paper} Here each piece has at most {repeats} repeats.")

    def within(self, seconds: float) -> Figure:
        """Return the same figure with pieces that end after so many seconds of their runs, where they have a limit."""

        def units(full: bool) -> list[Unit]:
            return [{**unit, LIMIT: min(unit[LIMIT], seconds)} if LIMIT in unit else unit for unit in self.units(full)]

        return replace(self, units=units)

    def run(self, out: Path, full: bool = False) -> Iterator[str]:
        """Do the pieces of work that are missing in `out`, and write the table and the picture there.

        Parameters
        ----------
        out : Path
            A directory. It receives `name`.parquet (or that of `cells`) after every piece, and `name`.html at the end.
        full : bool
            Whether to use as many repeats and rows as the paper.

        Yields
        ------
        str
            A line of text per piece, with the time to go; then the table, and the names of the files.
        """
        units, table = self.units(full), self._table(out)
        out.mkdir(parents=True, exist_ok=True)
        missing = self.missing(out, full)
        if len(missing) < len(units):
            yield f"{len(units) - len(missing)} of {len(units)} pieces are in {table} already."
        begin = time.monotonic()
        for number, unit in enumerate(missing, 1):
            with _claimed(out, f"{table.name} {_key(unit)}") as is_free:
                if not is_free or _key(unit) in set(self._kept(out)["unit"]):
                    continue
                start = time.process_time()
                done = self.work(unit)
                kept = {"unit": _key(unit), SECONDS: time.process_time() - start}
                self._keep(out, pd.DataFrame([{**kept, **row} for row in done]))
            seconds_left = (time.monotonic() - begin) / number * (len(missing) - number)
            yield f"{number} of {len(missing)} · {_described(unit)} · about {seconds_left:.0f} s to go"
        others = len(self.missing(out, full))
        if others:
            yield f"{others} pieces are computed by other processes; --judge makes the report when these have ended."
        if others < len(units):
            frame = self.rows(out, full)
            yield frame.to_string(index=False)
            page = out / f"{self.name}.html"
            _replace(page, self._page(frame).encode())
            yield f"{self.paper}\nWritten: {table}, {page}"

    def missing(self, out: Path, full: bool) -> list[Unit]:
        """The pieces of work of the quick or the full version whose rows are not in `out`."""
        kept = self._limits(self._kept(out))
        return [unit for unit in self.units(full) if kept.get(_piece(unit), -math.inf) < unit.get(LIMIT, 0.0)]

    def measure(self, out: Path, full: bool) -> Iterator[str]:
        """Measure by a part of each missing piece how long the whole takes.

        Repeats of a piece are measured once, and so are its rates, and the same pieces of several figures.

        Yields
        ------
        str
            A line of text per piece that is measured.
        """
        known = _known_seconds(out)
        for unit in self.missing(out, full):
            key = self._measured_key(unit)
            if self.estimate is not None and key not in known:
                known[key] = self.estimate(unit)
                _replace(out / SECONDS_FILE, json.dumps(known, indent=1).encode())
                yield f"{key} · {known[key]:.0f} s"

    def seconds(self, out: Path, units: Iterable[Unit]) -> float:
        """The processor seconds that these pieces take together, as `measure` found; nan if one was not measured."""
        known = _known_seconds(out)
        return sum(known.get(self._measured_key(unit), math.nan) for unit in units)

    def _measured_key(self, unit: Unit) -> str:
        measured = {name: "any" if name in ALIKE else value for name, value in unit.items() if name not in REPEATED}
        return f"{getattr(self.estimate, '__qualname__', '')} {_piece(measured)}"

    def _table(self, out: Path) -> Path:
        return out / f"{self.cells or self.name}.parquet"

    def _kept(self, out: Path) -> pd.DataFrame:
        table = self._table(out)
        return pd.read_parquet(table) if table.exists() else pd.DataFrame({"unit": []})

    def _keep(self, out: Path, unit_rows: pd.DataFrame) -> None:
        with _claimed(out, self._table(out).name, wait=True):
            rows = self._kept(out)
            rows = pd.concat([rows, unit_rows], ignore_index=True) if len(rows) else unit_rows
            _replace(self._table(out), rows.to_parquet(index=False))

    def rows(self, out: Path, full: bool) -> pd.DataFrame:
        """The rows in `out` of the quick or the full version; of one piece, those with the longest limit."""
        rows, pieces = pd.read_parquet(self._table(out)), {_piece(unit) for unit in self.units(full)}
        longest = self._limits(rows)
        units = rows["unit"].map(json.loads)
        chosen = [_piece(unit) in pieces and unit.get(LIMIT, 0.0) == longest[_piece(unit)] for unit in units]
        return rows[chosen].drop(columns=["unit", SECONDS], errors="ignore").reset_index(drop=True)

    @staticmethod
    def _limits(rows: pd.DataFrame) -> dict[str, float]:
        """The longest limit of each piece of work of which there are rows."""
        limits: dict[str, float] = {}
        for unit in map(json.loads, rows["unit"].unique()):
            limits[_piece(unit)] = max(limits.get(_piece(unit), 0.0), unit.get(LIMIT, 0.0))
        return limits

    def _page(self, frame: pd.DataFrame) -> str:
        """The picture of these rows as an HTML page. (hv.save would link an icon on another host.)"""
        text = f"<h1>{escape(self.title)}</h1><p>{escape(self.paper)}</p>"
        head = Div(text=text, width=900, styles={"font-family": "sans-serif"})
        return file_html(column(head, hv.render(self.plot(frame), backend="bokeh")), INLINE, self.title)


def ticks(values: Iterable[int]) -> list[tuple[int, str]]:
    """Tick marks at these values, with the values as labels. A logarithmic axis would label powers of ten."""
    return [(value, str(value)) for value in sorted(set(values))]


def panels(parts: Sequence[hv.Overlay], columns: int) -> hv.Layout:
    """Arrange pictures of one size in rows. Each has its own axes, and the legend of a row stands at its right."""
    framed = [
        part.opts(**FRAME, show_legend=(k + 1) % columns == 0 or k + 1 == len(parts), legend_position="right")
        for k, part in enumerate(parts)
    ]
    return hv.Layout(framed).opts(shared_axes=False).cols(columns)


def _known_seconds(out: Path) -> dict[str, float]:
    path = out / SECONDS_FILE
    return json.loads(path.read_text("utf-8")) if path.exists() else {}


def _described(unit: Unit) -> str:
    return ", ".join(f"{name} {value}" for name, value in unit.items())


def _key(unit: Unit) -> str:
    return json.dumps(unit, sort_keys=True)


@contextmanager
def _claimed(out: Path, name: str, wait: bool = False) -> Iterator[bool]:
    """Hold the lock of this name; whether it is ours. A process that is killed holds none."""
    path = out / f"{sha256(name.encode()).hexdigest()[:16]}.claim"
    try:
        with FileLock(path, timeout=-1 if wait else 0):
            try:
                yield True
            finally:
                with suppress(OSError):
                    path.unlink()
    except Timeout:
        yield False


def _piece(unit: Unit) -> str:
    """A piece of work, whatever the limit of its seconds."""
    return _key({name: value for name, value in unit.items() if name != LIMIT})


def _replace(path: Path, content: bytes | None) -> None:
    """Write another file and then rename it, so that a kill leaves the old file or the new one."""
    partial = path.with_suffix(".partial")
    partial.write_bytes(content or b"")
    partial.replace(path)
