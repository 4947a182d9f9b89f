"""A figure of a paper, computed anew: pieces of work, the rows each leaves, and the picture of all rows.

Rows are kept after each piece, so that a run stopped half way is gone on with, not begun again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import holoviews as hv
import pandas as pd
from bokeh.embed import file_html
from bokeh.layouts import column
from bokeh.models.widgets import Div
from bokeh.resources import INLINE

Unit = Mapping[str, Any]  # JSON-able: what one piece of work is about
Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Figure:
    """One figure or table of a paper."""

    name: str  # "grief-fig1"
    title: str
    paper: str  # what the paper printed, as a sentence
    units: Callable[[bool], Sequence[Unit]]  # full or quick -> the pieces
    work: Callable[[Unit], Rows]  # one piece -> rows of the table
    plot: Callable[[pd.DataFrame], hv.Element | hv.Overlay | hv.Layout]

    def run(self, out: Path, full: bool = False) -> Iterator[str]:
        """Do the pieces that `out` does not hold yet; a line for each, with the time to go, and one a file written."""
        units, table = self.units(full), out / f"{self.name}.parquet"
        out.mkdir(parents=True, exist_ok=True)
        held = pd.read_parquet(table) if table.exists() else pd.DataFrame({"unit": []})
        todo = [unit for unit in units if _key(unit) not in set(held["unit"])]
        if len(todo) < len(units):
            yield f"{len(units) - len(todo)} of {len(units)} pieces are in {table} already."
        begin = time.monotonic()
        for k, unit in enumerate(todo, 1):
            found = pd.DataFrame([{"unit": _key(unit), **row} for row in self.work(unit)])
            held = pd.concat([held, found], ignore_index=True) if len(held) else found
            _replace(table, held.to_parquet(index=False))
            left = (time.monotonic() - begin) / k * (len(todo) - k)
            yield f"{k} of {len(todo)} · {_said(unit)} · about {left:.0f} s to go"
        frame = held[held["unit"].isin([_key(unit) for unit in units])].drop(columns="unit").reset_index(drop=True)
        yield frame.to_string(index=False)
        page = out / f"{self.name}.html"
        told = f"<h1>{escape(self.title)}</h1><p>{escape(self.paper)}</p>"
        head = Div(text=told, width=900, styles={"font-family": "sans-serif"})
        drawn = column(head, hv.render(self.plot(frame), backend="bokeh"))
        _replace(page, file_html(drawn, INLINE, self.title).encode())  # hv.save would link an icon on another host
        yield f"{self.paper}\nWritten: {table}, {page}"


def _key(unit: Unit) -> str:
    return json.dumps(unit, sort_keys=True)


def _said(unit: Unit) -> str:
    return ", ".join(f"{name} {value}" for name, value in unit.items())


def _replace(path: Path, content: bytes | None) -> None:
    """Write beside it, then put in its place: a kill leaves the old table or the new one."""
    beside = path.with_suffix(".partial")
    beside.write_bytes(content or b"")
    beside.replace(path)
