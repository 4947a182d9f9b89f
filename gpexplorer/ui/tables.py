"""Tables of the page: short ones as HTML, and long ones as Tabulators, with every cell and title escaped."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import CellFormatter, HTMLTemplateFormatter, NumberFormatter
from pandas.api.types import is_numeric_dtype

from ..runs.studies import comparison
from ..runs.studies.comparison import Finished
from .styles import beside
from .text import text
from .widgets import WithLayout, column

TABLE = beside(__file__, "table.css")  # on a phone, the sentence of a row is below its numbers
AT_ONCE, LONGEST_REASON = 200, 900  # letters of a sentence beside numbers that are seen at once, and in all
PERIOD = 0.5  # seconds between two updates while playing: a table costs ten times as much as a figure
TITLES = {  # column of the table of runs -> title, in the order of the table
    "run": "run",
    "method": "method",
    "smse": "SMSE",
    "snlp": "SNLP",
    "differs": "differs in",
    "seconds": "seconds",
    "steps": "steps",
    "memory": "MB",
    "entries": "kernel entries",
    "smse less": "SMSE − baseline",
    "snlp less": "SNLP − baseline",
    "seconds ratio": "seconds ÷ baseline",
    "memory ratio": "memory ÷ baseline",
    "entries ratio": "entries ÷ baseline",
    "rmse": "RMSE",
    "nlpd": "NLPD",
    "outcome": "outcome",
    "note": "note",
}
TEXT_COLUMNS = ("run", "method", "outcome", "differs", "note")
FILTERED = TEXT_COLUMNS[:3]
FORMATS = {"steps": "0,0", "entries": "0,0", "memory": "0,0.0", "seconds": "0,0.00"}
LOOK = """.tabulator { font-size: 13px !important; }
.tabulator-cell:not(.tabulator-frozen), .tabulator-col:not(.tabulator-frozen) > .tabulator-col-content {
  padding: 4px 8px !important; }
.tabulator-row.tabulator-selectable:not(.tabulator-selected):hover {
  background: rgba(127, 140, 153, .2) !important; color: inherit !important; }
"""  # not of the boxes that select rows; a row under the pointer looked selected, in words too faint to read
NUMBER = """<div style="text-align: right"><%=
  !Number.isFinite(value) ? "{missing}"
  : ({otherwise}Math.abs(value) < 1000 ? String(Number(value.toPrecision({digits})))
    : value.toLocaleString("en", {{minimumFractionDigits: 1, maximumFractionDigits: 1}})).replaceAll("-", "−")
%></div>"""
FOUR_DIGITS = NUMBER.format(missing="—", otherwise="", digits=4)  # as `text.number` writes it
WHOLE_OR_LARGE = """Math.abs(value) >= 1e9 ? String(Number(value.toPrecision(5)))
    : Number.isInteger(value) ? value.toLocaleString("en") : """
FIVE_DIGITS = NUMBER.format(missing="", otherwise=WHOLE_OR_LARGE, digits=5)


def html_table(headings: Sequence[object], rows: Iterable[Sequence[object]], ahead: Collection[int] = ()) -> str:
    """Return a table as markup.

    Parameters
    ----------
    headings : sequence
        One per column. A last column without a heading, or headed "why", holds sentences.
    rows : iterable of sequence
        Cells, as text or as anything that `str` turns into text.
    ahead : collection of int, optional
        Numbers of the rows in bold type.
    """
    last = len(headings) - 1 if headings and headings[-1] in ("", "why") else -1
    cells = [f"<th{' class=why' * (k == last)}>{text(heading)}</th>" for k, heading in enumerate(headings)]
    lines = [f"<tr>{''.join(cells)}</tr>"]
    for number, row in enumerate(rows):
        marked = ' class="ahead"' if number in ahead else ""
        content = [f'<td class="why">{_unfolding(c)}' if k == last else f"<td>{text(c)}" for k, c in enumerate(row)]
        lines.append(f"<tr{marked}>{'</td>'.join(content)}</td></tr>")
    look = f' class="reasons" style="--numbers: {last}"' if last > 0 else ""
    return f"<table{look}>{''.join(lines)}</table>"


def _unfolding(value: object) -> str:
    """Return a text as markup; of a long one the first sentences, which unfold the others."""
    content = str(value)
    if len(content) <= AT_ONCE:
        return text(content)
    end = content.rfind(". ", 0, AT_ONCE) + 1 or content.rfind(" ", 0, AT_ONCE) + 1 or AT_ONCE
    rest = text(content[end:].strip(), LONGEST_REASON)
    return f"<details><summary>{text(content[:end].strip())} …</summary>{rest}</details>"


def with_safe_names(frame: pd.DataFrame) -> tuple[pd.DataFrame, dict[str, str]]:
    """Return a frame with columns c0, c1, ... and the escaped names as titles: a Tabulator takes both for markup."""
    titles = {f"c{i}": text(name) for i, name in enumerate(frame.columns)}
    return frame.set_axis(list(titles), axis=1), titles


class Steps(WithLayout):
    """The newest steps, newest first: which row was removed, which was added, and every number the method reports.

    The table is put on the page with its first rows: a Tabulator in a tab that was never open keeps the browser busy,
    as it asks again and again whether it is built.
    """

    def __init__(self) -> None:
        self._updated = 0.0
        self.table: pn.widgets.Tabulator | None = None
        self._layout = column()

    def update(self, frame: pd.DataFrame, at_once: bool = True) -> None:
        """Show these rows.

        Parameters
        ----------
        frame : DataFrame
            One row per step, newest first.
        at_once : bool, default True
            False to skip the update where the last one was less than `PERIOD` ago.
        """
        if not at_once and time.monotonic() - self._updated < PERIOD:
            return
        self._updated = time.monotonic()
        cells, titles = with_safe_names(frame)
        if self.table is None:
            look = {"pagination": "remote", "page_size": 10, "margin": (6, 8), "disabled": True, "selectable": False}
            self.table = _tabulator(cells, titles=titles, formatters=_of_steps(cells), **look)
            self._layout.append(self.table)
        elif titles == self.table.titles:
            self.table.value = cells
        else:
            self.table.param.update(value=cells, titles=titles, formatters=_of_steps(cells))


class RunTable(WithLayout):
    """The kept runs, whose rows can be selected: their cost, their scores and their differences in settings."""

    def __init__(self) -> None:
        self._names: list[str] = []
        look = {"selectable": "checkbox", "pagination": "local", "page_size": 12, "margin": (4, 8)}
        self.table = self._layout = _tabulator(pd.DataFrame({"c0": []}), **look)

    @property
    def selected(self) -> list[str]:
        """Names of the selected runs."""
        return [self._names[row] for row in self.table.selection if row < len(self._names)]

    def fill(self, runs: Mapping[str, Finished], by: str, top: int | None, baseline: str = "") -> None:
        """Show runs in the table.

        Parameters
        ----------
        runs : mapping of str to Finished
            The kept runs by name.
        by : str
            The column by which they are sorted.
        top : int or None
            How many runs are shown; None for all.
        baseline : str, default ""
            Name of the run to which the others are compared, or "".
        """
        frame = rows(runs, by, top, baseline)
        self._names = frame["run"].tolist()
        fields = {f"c{i}": str(name) for i, name in enumerate(frame.columns)}
        value, titles = with_safe_names(frame.rename(columns=TITLES))
        self.table.selection = []
        self.table.param.update(
            value=value,
            titles=titles,
            formatters={f: _format(name) for f, name in fields.items() if name not in TEXT_COLUMNS},
            editors=dict.fromkeys(fields),
            header_filters={f: {"type": "input", "func": "like"} for f, name in fields.items() if name in FILTERED},
        )


def rows(runs: Mapping[str, Finished], by: str, top: int | None, baseline: str = "") -> pd.DataFrame:
    """Return the rows of the table; with a baseline, costs also as ratios and scores also as differences."""
    frame = comparison.table(runs, by, top, labels=True)
    if baseline in runs:
        relative = comparison.against(runs, baseline).rename(columns={"smse": "smse less", "snlp": "snlp less"})
        frame = frame.join(relative[[name for name in relative if name not in frame]])
    frame["memory"] = frame["memory"] / 1e6
    frame = frame.reset_index()
    return frame[[name for name in TITLES if name in frame and (name != "differs" or frame[name].any())]]


def _tabulator(frame: pd.DataFrame, **style: Any) -> pn.widgets.Tabulator:
    look = {"show_index": False, "sizing_mode": "stretch_width", "layout": "fit_data_fill", "theme": "simple"}
    return pn.widgets.Tabulator(frame, stylesheets=[LOOK], **look, **style)


def _of_steps(cells: pd.DataFrame) -> dict[str, CellFormatter]:
    """How the numbers are written, five digits of each and all of a whole one; they are sorted as numbers."""
    numbers = [field for field, values in cells.items() if is_numeric_dtype(values)]
    return {str(field): HTMLTemplateFormatter(template=FIVE_DIGITS) for field in numbers}


def _format(name: str) -> CellFormatter:
    if name in FORMATS:
        return NumberFormatter(format=FORMATS[name], nan_format="—", text_align="right")
    return HTMLTemplateFormatter(template=FOUR_DIGITS)
