"""The scaling panel: the measured cost of the open method at growing sizes, and a forecast for a larger size."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import panel as pn
import panel_material_ui as pmui
import psutil

from ...errors import GPExplorerError
from ...runs import Spec
from ...runs.setting_checks import number as checked
from ...runs.studies.measured_run import Measured, in_child
from ...runs.studies.memory_need import Rows, rows_by_name
from ...runs.studies.scaling_study import Scaling, axes
from ...views.runs import scaling_chart as picture
from ..pictures.chart import Chart
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..text import nbytes, sentence, span, text

MOST_SIZES = 12
RANGES = {"n": (250, 4000), "d": (1, 16), "m": (8, 128), "p": (20, 320), "b": (25, 400)}
NAMES = {"n": "rows n", "d": "inputs d", "m": "inducing points m", "p": "rank p", "b": "block b"}
CSS = "table { border-collapse: collapse; font-size: 13px } th, td { padding: 2px 14px 2px 0; text-align: right }"


class ScalingWorker(BackgroundWorker):
    """The thread that measures one size after another; the event `changed` is set after each."""

    def __init__(self, scaling: Scaling) -> None:
        super().__init__("gpexplorer-scaling")
        self.scaling, self.changed, self.error = scaling, threading.Event(), ""
        self._closed = threading.Event()
        self.start()

    def close(self) -> None:
        """Stop after the current size."""
        self._closed.set()

    def work(self) -> None:
        """Measure until all sizes are done or `close` is called."""
        while not (self._closed.is_set() or self.scaling.over):
            try:
                self.scaling.advance()
            except Exception as error:
                self.error = sentence(error, "a size was being measured")
                self._closed.set()
            self.changed.set()


class ScalingPanel(pn.viewable.Viewer):
    """The measured and predicted cost of the method that is open in `session`, along one axis such as n."""

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        self._session = session
        self._worker: ScalingWorker | None = None
        wide = {"size": "small", "margin": (6, 10)}
        self.axis = pmui.Select(
            label="Vary", options={name: key for key, name in NAMES.items()}, value="n", width=190, **wide
        )
        self.low = pmui.IntInput(label="From", value=RANGES["n"][0], start=1, width=120, **wide)
        self.high = pmui.IntInput(label="To", value=RANGES["n"][1], start=2, width=120, **wide)
        self.count = pmui.IntInput(label="Sizes", value=5, start=3, end=MOST_SIZES, width=100, **wide)
        self.go = pmui.Button(
            label="Measure", icon="straighten", color="primary", variant="contained", margin=(6, 10),
            on_click=lambda _: self.toggle(),
        )  # fmt: skip
        self.target_size = pmui.IntInput(label="Forecast for size", value=10**6, start=1, step=10**5, width=230, **wide)
        self.axis.param.watch(self._set_range, "value")
        self.target_size.param.watch(lambda _: self._show_forecast(), "value")
        self.note = pn.pane.HTML("", margin=(0, 12), sizing_mode="stretch_width")
        self.table = pn.pane.HTML("", stylesheets=[CSS], margin=(4, 12), sizing_mode="stretch_width")
        self.chart = Chart()
        head = pmui.FlexBox(self.axis, self.low, self.high, self.count, self.go, self.target_size, align_items="center")
        self._layout = pn.Column(head, self.note, self.table, self.chart, sizing_mode="stretch_width")

    def toggle(self) -> None:
        """Start measuring, or stop after the current size."""
        if self._worker is not None and not self._worker.scaling.over:
            self.pause()
            return
        spec = self._session.spec
        try:
            self._session.begin_study("a measurement")
            scaling = Scaling(spec, str(self.axis.value), self._sizes(), self._measurement())
        except GPExplorerError as error:
            available = ", ".join(NAMES[axis] for axis in axes(spec)) or "none"
            self.note.object = text(f"{error} This method can vary: {available}.")
            return
        self.note.object, self.table.object = "Each size is measured in a separate process and takes a few seconds.", ""
        self._worker = ScalingWorker(scaling)
        self._session.add_study("the measurement", self._worker)
        self.go.param.update(label="Stop", icon="stop")

    def update(self) -> None:
        """Show the sizes that have been measured since the last call."""
        worker = self._worker
        if worker is None or not worker.changed.is_set():
            return
        worker.changed.clear()
        scaling = worker.scaling
        self.table.object = _table(scaling)
        layers = picture.data(scaling.table(), scaling.slope())
        self.chart.draw(layers, lambda layers: picture.plot(layers, scaling.axis.name))
        self._show_forecast()
        if scaling.over or worker.error:
            self.go.param.update(label="Measure", icon="straighten")

    def set_theme(self, theme: str) -> None:
        """Draw the chart for the theme "light" or "dark"."""
        self.chart.set_theme(theme)

    def pause(self) -> None:
        """Stop measuring after the current size once no browser shows the page."""
        self.close()
        self.go.param.update(label="Measure", icon="straighten")

    def close(self) -> None:
        """Stop measuring, because the session has ended or a person asked for it."""
        if self._worker is not None:
            self._worker.close()

    def _sizes(self) -> list[int]:
        """The sizes to measure. The bounds of the widgets hold in the browser only, and are checked here."""
        low = checked("From", self.low.value, whole=True, low=1)
        high = checked("To", self.high.value, whole=True, low=2)
        count = checked("The number of sizes", self.count.value, whole=True, low=3, high=MOST_SIZES)
        return [round(float(size)) for size in np.unique(np.geomspace(low, max(high, low + 1), count))]

    def _measurement(self) -> Callable[[Spec, int | None], Measured]:
        """What measures one size in a process of its own, after its memory has been reserved."""
        memory = self._session.shares.reservation()

        def measure(spec: Spec, rows: int | None) -> Measured:
            full_size = rows_by_name(spec.data)
            try:
                memory.take(
                    spec, full_size if rows is None or full_size is None else Rows(min(rows, full_size.n), full_size.d)
                )
                return in_child(spec, rows)
            finally:
                memory.give_back()

        return measure

    def _set_range(self, event: Any) -> None:
        if event.new not in RANGES:
            return
        self.low.value, self.high.value = RANGES[event.new]
        self.target_size.value = 250 * RANGES[event.new][1] if event.new == "n" else 10 * RANGES[event.new][1]

    def _show_forecast(self) -> None:
        """Show the fitted powers and the forecast."""
        if self._worker is None or not self._worker.scaling.points:
            return
        scaling = self._worker.scaling
        parts = [self._worker.error] if self._worker.error else []
        parts += [f"Seconds: {scaling.slope().sentence}.", f"Memory: {scaling.slope('memory').sentence}."]
        try:
            target = checked("The size of the forecast", self.target_size.value, whole=True, low=1)
            parts.append(scaling.forecast(target, psutil.virtual_memory().total).sentence)
        except GPExplorerError as error:
            parts.append(str(error))
        self.note.object = "<br>".join(text(part.replace("..", "."), 500) for part in parts)

    def __panel__(self) -> Any:
        return self._layout


def _table(scaling: Scaling) -> str:
    headings = (scaling.axis.name, "time per step", "by formula", "memory", "by formula", "scaling factor", "")
    lines = ["<tr>" + "".join(f"<th>{text(head)}</th>" for head in headings) + "</tr>"]
    for _, row in scaling.table().iterrows():
        cells = [f"{int(row['value']):,}"]
        cells += [span(float(row[c])) if row[c] == row[c] else "—" for c in ("seconds", "seconds predicted")]
        cells += [nbytes(float(row[c])) if row[c] == row[c] else "—" for c in ("memory", "memory predicted")]
        cells += [f"{row['scaling factor']:.2f}" if row["scaling factor"] == row["scaling factor"] else ""]
        lines.append("<tr>" + "".join(f"<td>{text(c)}</td>" for c in [*cells, str(row["sentence"] or "")]) + "</tr>")
    return f"<table>{''.join(lines)}</table>"
