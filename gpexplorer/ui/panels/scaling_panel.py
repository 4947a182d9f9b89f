"""The measured cost of the open method at growing sizes with a forecast, and of several methods beside each other."""

from __future__ import annotations

import math
import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ...data.quoting import data_title, size
from ...data.sets.generators import GENERATORS
from ...errors import GPExplorerError, SettingError
from ...memory import machine_memory
from ...methods.base import registry
from ...runs import Spec
from ...runs import link as links
from ...runs.studies.measured_run import Child, Measured, in_child
from ...runs.studies.memory_need import rows_by_name
from ...runs.studies.power_law import compared, scaling_factor
from ...runs.studies.scaling_study import Scaling, axes
from ...views.base import registry as views
from ...views.runs.comparison_charts import growth_layers, plot_growth, plot_scaling, scaling_layers
from ..pictures.chart import Chart
from ..playback.background_worker import BackgroundWorker
from ..session import Session
from ..shared_limits import Reservation
from ..tables import TABLE, html_table
from ..text import sentence, span, text
from ..widgets import button, column, line_of_text, number_in, row, select, share_of_row, watch, whole
from .study_panel import StudyPanel

MOST_SIZES = 12
RANGES = {"n": (250, 4000), "d": (1, 16), "m": (8, 128), "p": (20, 320), "b": (25, 400), "k": (5, 40)}
NAMES = {"n": "rows n", "d": "inputs d", "m": "inducing points m", "p": "rank p", "b": "block b", "k": "neighbours k"}
Measure = Callable[[Spec, int | None], Measured]
HOW = "Each size is measured in a separate process and takes a few seconds."


class ScalingWorker(BackgroundWorker):
    """The thread that measures one size after another of one or several studies; `changed` is set after each."""

    def __init__(self, *scalings: Scaling) -> None:
        super().__init__("gpexplorer-scaling")
        self.scalings, self.changed, self.error = scalings, threading.Event(), ""
        self.start()

    @property
    def over(self) -> bool:
        """Whether no further size is begun, because all have been measured or `close` was called."""
        return self.closed.is_set() or all(scaling.over for scaling in self.scalings)

    def work(self) -> None:
        """Measure until all sizes are done or `close` is called, the same size in all studies before the next."""
        while not self.over:
            try:
                min(self.scalings, key=lambda scaling: len(scaling.points)).advance()
            except Exception as error:
                self.fail(error, "a size was being measured")
            self.changed.set()

    def fail(self, error: Exception, doing: str) -> None:
        """End with the sentence of an error."""
        self.error = sentence(error, doing)
        self.close()
        self.changed.set()


class MeasuringPanel(StudyPanel):
    """A study of a `ScalingWorker`, whose button `go` begins to measure and stops after the current size."""

    def __init__(self, session: Session, **look: Any) -> None:
        super().__init__(session)
        self.go = button("Measure", "straighten", self.toggle, variant="contained", **look)

    def toggle(self) -> None:
        """Start measuring, or stop after the current size."""
        if self._worker is not None and not self._worker.over:
            self.pause()
        elif self.start("a measurement", self._measuring):
            self._show_start()
            self.go.param.update(label="Stop", icon="stop")

    def update(self) -> None:
        """Show the sizes that have been measured since the last call."""
        worker = self._worker
        if worker is None or not worker.changed.is_set():
            return
        worker.changed.clear()
        self._show(worker)
        if worker.over:
            self.go.param.update(label="Measure", icon="straighten")

    def pause(self) -> None:
        """Stop measuring after the current size once no browser shows the page."""
        if self._worker is not None:
            self._worker.close()
        self.go.param.update(label="Measure", icon="straighten")

    @abstractmethod
    def _measuring(self) -> ScalingWorker:
        """The thread that measures."""

    @abstractmethod
    def _show_start(self) -> None:
        """Say what has begun."""

    @abstractmethod
    def _show(self, worker: ScalingWorker) -> None:
        """Show what is measured so far."""


class ScalingPanel(MeasuringPanel):
    """The measured and predicted cost of the method that is open in `session`, along one axis such as n."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.axis = select("Vary", {name: key for key, name in NAMES.items()}, "n", 190)
        self.low, self.high = (whole(label, RANGES["n"][k], 1 + k, None, 120) for k, label in enumerate(("From", "To")))
        self.count = whole("Sizes", 5, 3, MOST_SIZES, 100)
        self.target_size = whole("Forecast for size", 10**6, 1, None, 230, step=10**5)
        self.axis.param.watch(self._set_range, "value")
        watch(self._show_forecast, self.target_size)
        self.table, self.chart = line_of_text(margin=(4, 12), styles=[TABLE]), Chart(session.theme)
        head = row(self.axis, self.low, self.high, self.count, self.go, self.target_size)
        self._layout = column(head, self.note, self.table, self.chart)

    def update(self) -> None:
        """Show the sizes that have been measured since the last call, and what is missing to measure others."""
        is_measuring = self._worker is not None and not self._worker.over
        self.require("" if is_measuring else self._session.missing_settings, self.go)
        super().update()

    def _measuring(self) -> ScalingWorker:
        spec = self._session.spec
        try:
            sizes, measure = self._sizes(), partial(measure_reserved, self._session.shares.reservation(), in_child)
            self._session.begin_study("a measurement")
            return ScalingWorker(Scaling(spec, str(self.axis.value), sizes, measure))
        except GPExplorerError as error:
            available = ", ".join(NAMES[axis] for axis in axes(spec)) or "none"
            raise SettingError(f"{error} This method can vary: {available}.") from None

    def _show_start(self) -> None:
        self.note.object, self.table.object = HOW, ""

    def _show(self, worker: ScalingWorker) -> None:
        [scaling] = worker.scalings
        self.table.object = _table(scaling)
        layers = scaling_layers(scaling.table(), scaling.slope())
        axis = scaling.axis.name
        self.chart.draw(
            layers, lambda layers: plot_scaling(layers, axis), f"Scaling with {axis}, {scaling.spec.method}"
        )
        self._show_forecast()

    def _sizes(self) -> list[int]:
        """The sizes to measure. The bounds of the widgets hold in the browser only, and are checked here."""
        low, high, count = number_in(self.low), number_in(self.high), number_in(self.count)
        if high > (most := self._most_rows()):
            self.high.value = high = max(most, 2)
            self.low.value = low = min(low, max(high // 8, 1))
        return [round(float(value)) for value in np.unique(np.geomspace(low, max(high, low + 1), count))]

    def _most_rows(self) -> float:
        """The largest size along n: the training rows that are open, unless a formula draws others."""
        spec, run = self._session.spec, self._session.run
        name = spec.data.get("name") if isinstance(spec.data, dict) else spec.data
        if self.axis.value != "n" or name in GENERATORS or run is None:
            return math.inf
        return len(run.problem.train) if run.spec is not None and run.spec.data == spec.data else math.inf

    def _set_range(self, event: Any) -> None:
        if event.new not in RANGES:
            return
        self.low.value, self.high.value = RANGES[event.new]
        self.target_size.value = 250 * RANGES[event.new][1] if event.new == "n" else 10 * RANGES[event.new][1]

    def _show_forecast(self) -> None:
        """Show the fitted powers and the forecast."""
        if self._worker is None or not self._worker.scalings[0].points:
            return
        [scaling] = self._worker.scalings
        if scaling.slope().refused and not self._worker.over:
            self.note.object = f"Sizes measured so far: {len(scaling.points)}. {HOW}"
            return
        method = str(registry[scaling.spec.method].title)
        parts = [f"{method} on {data_title(scaling.spec.data)}."]  # others may be opened while this is on the page
        parts += [self._worker.error] if self._worker.error else []
        slopes = {"Seconds": scaling.slope(), "Memory": scaling.slope("memory")}
        power = f"{scaling.axis.name}^"
        for what, slope in slopes.items():
            is_said_below = slope.refused and what == "Seconds"  # with the forecast
            parts.append(f"{what}: {'no slope' if is_said_below else slope.sentence.replace('x^', power)}.")
        try:
            target = number_in(self.target_size)
            parts.append(scaling.forecast(target, machine_memory()).sentence)
        except GPExplorerError as error:
            parts.append(str(error))
        self.note.object = "<br>".join(text(part.replace("..", "."), 500) for part in parts)


def measure_reserved(reserved: Reservation, measure: Measure, spec: Spec, rows: int | None) -> Measured:
    """Measure one size after its memory has been reserved.

    Parameters
    ----------
    reserved : Reservation
        Takes the memory, and gives it back.
    measure : callable
        Measures a spec on some of its rows.
    rows : int or None
        How many; None for all.
    """
    full_size = rows_by_name(spec.data)
    try:
        reserved.take(spec, full_size and full_size._replace(n=min(rows or full_size.n, full_size.n)))
        return measure(spec, rows)
    finally:
        reserved.give_back()


def _table(scaling: Scaling) -> str:
    headings = (scaling.axis.name, "time per step", "by formula", "memory", "by formula", "scaling factor", "")
    rows = []
    for _, measured in scaling.table().iterrows():
        times = [_or_dash(measured[name], span) for name in ("seconds", "seconds predicted")]
        bytes_ = [_or_dash(measured[name], size) for name in ("memory", "memory predicted")]
        factor = _or_dash(measured["scaling factor"], "{:.2f}".format, "")
        rows.append([f"{int(measured['value']):,}", *times, *bytes_, factor, measured["sentence"] or ""])
    return html_table(headings, rows)


def _or_dash(value: float, words: Callable[[float], str], dash: str = "—") -> str:
    return words(float(value)) if value == value else dash


REFERENCES = {"n²": 2, "n³": 3}  # powers whose scaling factors are named


class GrowthWorker(ScalingWorker):
    """The thread that measures the seconds of all methods in one other process, because each takes 3 s to start."""

    def __init__(self, session: Session, specs: Sequence[Spec], sizes: Sequence[int]) -> None:
        measure = partial(measure_reserved, session.shares.reservation(), self._measure)
        super().__init__(*(Scaling(spec, "n", sizes, measure) for spec in specs))

    def work(self) -> None:
        """Measure until all sizes are done or `close` is called."""
        try:
            with Child() as self._child:
                super().work()
        except OSError as error:
            self.fail(error, "the process that measures was being started")

    def _measure(self, spec: Spec, rows: int | None) -> Measured:
        return self._child.measure(spec, rows)


class GrowthPanel(MeasuringPanel):
    """Seconds per step of several methods on these numbers of training rows, as measured while one watches.

    Parameters
    ----------
    session : Session
        The session.
    queries : sequence of str
        Links to the methods, on data that can be drawn in any size.
    sizes : sequence of int
        The numbers of training rows.
    """

    def __init__(self, session: Session, queries: Sequence[str], sizes: Sequence[int]) -> None:
        super().__init__(session, size="small")
        self._specs = [links.read(query, Spec("ml"), views).spec for query in queries]
        self._sizes = sizes
        self.chart = Chart(session.theme, 260)
        halves = [column(*parts, styles=share_of_row(340)) for parts in ((self.go, self.note), (self.chart,))]
        self._layout = row(*halves, align_items="flex-start")

    def _show_start(self) -> None:
        self.say(self._progress())

    def _show(self, worker: ScalingWorker) -> None:
        tables = {title: study.table() for title, study in self._titled()}
        self.chart.draw(growth_layers(tables), plot_growth, f"Scaling with n, {', '.join(tables)}")
        if worker.error:
            self.say(worker.error)
        elif worker.over:
            self.note.object = "<br>".join(text(sentence, 300) for sentence in self._result())
        else:
            self.say(self._progress())

    def _measuring(self) -> GrowthWorker:
        self._session.begin_study("a measurement")
        return GrowthWorker(self._session, self._specs, self._sizes)

    def _titled(self) -> list[tuple[str, Scaling]]:
        return [(str(registry[study.spec.method].title), study) for study in self._worker.scalings]

    def _progress(self) -> str:
        measured, count = sum(len(study.points) for study in self._worker.scalings), len(self._specs) * len(self._sizes)
        start = "" if measured else " Their process takes some seconds to start."
        return f"{measured} of {count:,} runs measured.{start}"

    def _result(self) -> list[str]:
        """How the time of each method grows by the fit to its runs, and whether the fits can be told apart."""
        fits = {title: study.slope() for title, study in self._titled()}
        failed = [row["sentence"] for _, study in self._titled() for row in study.points if row["sentence"]]
        slopes = [f"{title}: {fitted.sentence.replace('x^', 'n^')}." for title, fitted in fits.items()]
        stopped = [] if all(study.over for study in self._worker.scalings) else [f"Stopped: {self._progress()}"]
        return [
            *stopped,
            *(slope.replace("..", ".") for slope in slopes),
            compared(fits),
            *self._factors(),
            *failed[:1],
        ]

    def _factors(self) -> list[str]:
        """The scaling factors that the published figure draws; none where a size was not measured."""
        studies = self._worker.scalings
        if not all(study.over and not any(row["sentence"] for row in study.points) for study in studies):
            return []
        first, *others = self._sizes[::2]  # the labels of the chart; of 500 to 2,800 rows they are the published sizes
        factors = {name: [(n / first) ** (power - 1) for n in others] for name, power in REFERENCES.items()}
        for title, study in self._titled():
            seconds = study.table().set_index("value")["seconds"]
            factors[title] = [scaling_factor(n, first, seconds[n], seconds[first]) for n in others]
        listed = [f"{name} {', '.join(f'{factor:.3g}' for factor in values)}" for name, values in factors.items()]
        sizes = ", ".join(f"{n:,}" for n in others[:-1]) + f" and {others[-1]:,}"
        return [f"Scaling factors at {sizes} rows, relative to {first:,}: {'; '.join(listed)}."]
