"""The table of runs that were kept: what they spent, what they reached, how they differ."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
import panel as pn
from bokeh.models.widgets.tables import NumberFormatter

from ...runs.studies import comparison
from ...runs.studies.comparison import Finished
from ..text.escape import text

TITLES = {  # from left to right: what is looked at first
    "run": "run", "method": "method", "smse": "SMSE", "snlp": "SNLP", "differs": "differs in", "seconds": "seconds",
    "steps": "steps", "memory": "MB", "entries": "kernel entries", "smse less": "SMSE − baseline",
    "snlp less": "SNLP − baseline", "seconds ratio": "seconds ÷ baseline", "memory ratio": "memory ÷ baseline",
    "entries ratio": "entries ÷ baseline", "rmse": "RMSE", "nlpd": "NLPD", "outcome": "ended", "note": "note",
}  # fmt: skip
WORDS = ("run", "method", "outcome", "differs", "note")
FILTERED = WORDS[:3]
FORMATS = {"steps": "0,0", "entries": "0,0", "memory": "0,0.0", "seconds": "0,0.00"}


class Board(pn.viewable.Viewer):
    """A Tabulator whose fields are c0, c1, ... and whose titles are escaped; rows can be ticked."""

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._names: list[str] = []
        self.table = pn.widgets.Tabulator(
            pd.DataFrame({"c0": []}), show_index=False, selectable="checkbox", pagination="local", page_size=12,
            sizing_mode="stretch_width", layout="fit_data_fill", theme="simple", margin=(4, 8),
        )  # fmt: skip

    @property
    def ticked(self) -> list[str]:
        """Names of the runs that are ticked."""
        return [self._names[row] for row in self.table.selection if row < len(self._names)]

    def fill(self, runs: Mapping[str, Finished], by: str, top: int | None, baseline: str = "") -> None:
        """The best `top` of these runs by a column, beside a baseline where one is named."""
        frame = rows(runs, by, top, baseline)
        self._names = frame["run"].tolist()
        fields = {f"c{i}": str(name) for i, name in enumerate(frame.columns)}
        frame.columns = list(fields)
        self.table.selection = []
        self.table.param.update(
            value=frame,
            titles={field: text(TITLES[name]) for field, name in fields.items()},
            formatters={f: _format(name) for f, name in fields.items() if name not in WORDS},
            editors=dict.fromkeys(fields),
            header_filters={f: {"type": "input", "func": "like"} for f, name in fields.items() if name in FILTERED},
        )

    def __panel__(self) -> Any:
        return self.table


def rows(runs: Mapping[str, Finished], by: str, top: int | None, baseline: str = "") -> pd.DataFrame:
    """The rows shown: memory in MB, and with a baseline what was spent as ratios and scores as differences."""
    frame = comparison.table(runs, by, top)
    if baseline in runs:
        beside = comparison.against(runs, baseline).rename(columns={"smse": "smse less", "snlp": "snlp less"})
        frame = frame.join(beside[[name for name in beside if name not in frame]])
    frame["memory"] = frame["memory"] / 1e6
    frame = frame.reset_index()
    return frame[[name for name in TITLES if name in frame]]


def _format(name: str) -> NumberFormatter:
    return NumberFormatter(format=FORMATS.get(name, "0.0000"), nan_format="—", text_align="right")
