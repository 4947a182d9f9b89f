"""The table of kept runs: their cost, their scores and their differences in settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from ...runs.studies import comparison
from ...runs.studies.comparison import Finished
from ..text import text

TITLES = {  # column -> title, in the order of the table
    "run": "run", "method": "method", "smse": "SMSE", "snlp": "SNLP", "differs": "differs in", "seconds": "seconds",
    "steps": "steps", "memory": "MB", "entries": "kernel entries", "smse less": "SMSE − baseline",
    "snlp less": "SNLP − baseline", "seconds ratio": "seconds ÷ baseline", "memory ratio": "memory ÷ baseline",
    "entries ratio": "entries ÷ baseline", "rmse": "RMSE", "nlpd": "NLPD", "outcome": "outcome", "note": "note",
}  # fmt: skip
TEXT_COLUMNS = ("run", "method", "outcome", "differs", "note")
FILTERED = TEXT_COLUMNS[:3]
FORMATS = {"steps": "0,0", "entries": "0,0", "memory": "0,0.0", "seconds": "0,0.00"}


class RunTable(pn.viewable.Viewer):
    """A table of runs whose rows can be selected.

    The fields are named c0, c1, ... and the titles are escaped, because Tabulator interprets both as HTML.
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._names: list[str] = []
        self.table = pn.widgets.Tabulator(
            pd.DataFrame({"c0": []}), show_index=False, selectable="checkbox", pagination="local", page_size=12,
            sizing_mode="stretch_width", layout="fit_data_fill", theme="simple", margin=(4, 8),
        )  # fmt: skip

    @property
    def selected(self) -> list[str]:
        """Names of the selected runs."""
        return [self._names[row] for row in self.table.selection if row < len(self._names)]

    def fill(self, runs: Mapping[str, Finished], by: str, top: int | None, baseline: str = "") -> None:
        """Show runs in the table.

        Parameters
        ----------
        runs : the kept runs by name.
        by : the column by which they are sorted.
        top : how many runs are shown; None for all.
        baseline : name of the run to which the others are compared, or "".
        """
        frame = rows(runs, by, top, baseline)
        self._names = frame["run"].tolist()
        fields = {f"c{i}": str(name) for i, name in enumerate(frame.columns)}
        frame.columns = list(fields)
        self.table.selection = []
        self.table.param.update(
            value=frame,
            titles={field: text(TITLES[name]) for field, name in fields.items()},
            formatters={f: _format(name) for f, name in fields.items() if name not in TEXT_COLUMNS},
            editors=dict.fromkeys(fields),
            header_filters={f: {"type": "input", "func": "like"} for f, name in fields.items() if name in FILTERED},
        )

    def __panel__(self) -> Any:
        return self.table


def rows(runs: Mapping[str, Finished], by: str, top: int | None, baseline: str = "") -> pd.DataFrame:
    """Return the rows of the table; with a baseline, costs also as ratios and scores also as differences."""
    frame = comparison.table(runs, by, top)
    if baseline in runs:
        relative = comparison.against(runs, baseline).rename(columns={"smse": "smse less", "snlp": "snlp less"})
        frame = frame.join(relative[[name for name in relative if name not in frame]])
    frame["memory"] = frame["memory"] / 1e6
    frame = frame.reset_index()
    return frame[[name for name in TITLES if name in frame]]


def _format(name: str) -> NumberFormatter:
    return NumberFormatter(format=FORMATS.get(name, "0.0000"), nan_format="—", text_align="right")
