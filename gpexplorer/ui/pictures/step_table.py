"""The newest steps as a table: which row was removed, which was added, and every number the method reports."""

from __future__ import annotations

import time
from typing import Any

import pandas as pd
import panel as pn

from ..text import text

PERIOD = 0.5  # seconds between two updates while playing: a table costs ten times as much as a figure


class Steps(pn.viewable.Viewer):
    """A table of steps, newest first.

    The columns of the Tabulator are called c0, c1, ... and its titles are escaped, because Tabulator renders names as
    markup and names come from people. The table is put on the page with its first rows: a Tabulator in a tab that was
    never open keeps the browser busy, as it asks again and again whether it is built.
    """

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self._updated = 0.0
        self.table = pn.widgets.Tabulator(
            pd.DataFrame({"c0": []}), show_index=False, disabled=True, pagination="remote", page_size=10,
            sizing_mode="stretch_width", layout="fit_data_fill", margin=(6, 8), theme="simple", selectable=False,
        )  # fmt: skip
        self._place = pn.Column(sizing_mode="stretch_width")

    def update(self, frame: pd.DataFrame, at_once: bool = True) -> None:
        """Show these rows.

        Parameters
        ----------
        frame
            One row per step, newest first.
        at_once
            False to skip the update where the last one was less than `PERIOD` ago.
        """
        if not at_once and time.monotonic() - self._updated < PERIOD:
            return
        self._updated = time.monotonic()
        cells = frame.map(_cell)
        titles = {f"c{i}": text(name) for i, name in enumerate(frame.columns)}
        cells.columns = list(titles)
        if self.table.titles != titles:
            self.table.titles = titles
        self.table.value = cells
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
