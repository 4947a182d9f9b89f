"""The newest steps as a table: which row went out, which came in, and what it brought."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import panel as pn

from ..text.escape import text

PERIOD = 0.5  # seconds between two tables while playing: a table costs ten times a figure


class Steps(pn.viewable.Viewer):
    """A Tabulator whose fields are c0, c1, ... and whose titles are escaped: names given by people are text.

    It is put on the page with its first rows: one in a tab that was never open would keep the browser busy, asking
    without end whether it is built.
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._shown = 0.0
        self.table = pn.widgets.Tabulator(
            pd.DataFrame({"c0": []}), show_index=False, disabled=True, pagination="remote", page_size=10,
            sizing_mode="stretch_width", layout="fit_data_fill", margin=(6, 8), theme="simple", selectable=False,
        )  # fmt: skip
        self._place = pn.Column(sizing_mode="stretch_width")

    def update(self, frame: pd.DataFrame, hurry: bool = True) -> None:
        """Show these rows, newest first; without hurry, not more than twice a second."""
        if not hurry and time.monotonic() - self._shown < PERIOD:
            return
        self._shown = time.monotonic()
        shown = frame.map(_cell)
        fields = {f"c{i}": text(name) for i, name in enumerate(frame.columns)}
        shown.columns = list(fields)
        if self.table.titles != fields:
            self.table.titles = fields
        self.table.value = shown
        if not len(self._place):
            self._place.append(self.table)

    def __panel__(self) -> Any:
        return self._place


def _cell(value: object) -> str:
    if value is None or value != value:
        return ""
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() and abs(value) < 1e9 else f"{value:.5g}"
    return str(value)
