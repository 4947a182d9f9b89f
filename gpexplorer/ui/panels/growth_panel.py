"""The panel of a story that measures: seconds per step of several methods on growing numbers of rows, in one chart.

Apart because the scaling panel has one method, any axis, memory and a forecast, with controls for all of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...methods.base import registry
from ...runs import Spec
from ...runs import link as links
from ...runs.studies.measured_run import Child, Measured
from ...runs.studies.power_law import compared, scaling_factor
from ...runs.studies.scaling_study import Scaling
from ...views.base import registry as views
from ...views.runs.comparison_charts import growth_layers, plot_growth
from ..pictures.chart import Chart, LegendLine
from ..session import Session
from ..text import text
from ..widgets import button, column, row
from .scaling_panel import MeasuringPanel, ScalingWorker, reserving

HALF = {"flex": "1 1 340px", "min-width": "0"}
REFERENCES = {"n²": 2, "n³": 3}  # powers whose scaling factors are named


class GrowthWorker(ScalingWorker):
    """The thread that measures the seconds of all methods in one other process, because each takes 3 s to start."""

    def __init__(self, session: Session, specs: Sequence[Spec], sizes: Sequence[int]) -> None:
        measure = reserving(session, self._measure)
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
    **params : object
        Parameters of `panel.viewable.Viewer`.
    """

    def __init__(self, session: Session, queries: Sequence[str], sizes: Sequence[int], **params: Any) -> None:
        super().__init__(session, **params)
        self._specs = [links.read(query, Spec("ml"), views).spec for query in queries]
        self._sizes = sizes
        self.go = button("Measure", "straighten", self.toggle, variant="contained", size="small")
        self.legend, self.chart = (
            LegendLine(self._toggle_layer, margin=(0, 12), sizing_mode="stretch_width"),
            Chart(260),
        )
        words = column(self.go, self.note, styles=HALF)
        self._layout = row(words, column(self.legend, self.chart, styles=HALF), align_items="flex-start")

    @property
    def figures(self) -> list[Chart]:
        """The chart of the measured sizes."""
        return [self.chart]

    def set_theme(self, theme: str) -> None:
        """Draw the chart and its legend for the theme "light" or "dark"."""
        super().set_theme(theme)
        self.legend.fill(self.chart.legend)

    def toggle(self) -> None:
        """Start measuring, or stop after the current size."""
        if self._worker is not None and not self._worker.over:
            self.pause()
        elif self.start("a measurement", self._measuring):
            self.say(self._progress())
            self.go.param.update(label="Stop", icon="stop")

    def update(self) -> None:
        """Show the sizes that have been measured since the last call."""
        worker = self._worker
        if worker is None or not worker.changed.is_set():
            return
        worker.changed.clear()
        self.chart.draw(
            growth_layers({title: study.table() for title, study in self._titled()}), plot_growth, legend=False
        )
        self.legend.fill(self.chart.legend)
        if worker.error:
            self.say(worker.error)
        elif worker.over:
            self.note.object = "<br>".join(text(sentence, 300) for sentence in self._result())
        else:
            self.say(self._progress())
        if worker.over:
            self.go.param.update(label="Measure", icon="straighten")

    def _toggle_layer(self, entry: int) -> None:
        """Hide the line of an entry of the legend, or show it again."""
        self.chart.toggle(entry)
        self.legend.fill(self.chart.legend)

    def _measuring(self) -> GrowthWorker:
        self._session.begin_study("a measurement")
        return GrowthWorker(self._session, self._specs, self._sizes)

    def _titled(self) -> list[tuple[str, Scaling]]:
        return [(str(registry[study.spec.method].title), study) for study in self._worker.scalings]

    def _progress(self) -> str:
        measured, count = sum(len(study.points) for study in self._worker.scalings), len(self._specs) * len(self._sizes)
        return f"{measured} of {count} runs measured. Their process takes some seconds to start."

    def _result(self) -> list[str]:
        """How the time of each method grows by the fit to its runs, and whether the fits can be told apart."""
        fits = {title: study.slope() for title, study in self._titled()}
        failed = [row["sentence"] for _, study in self._titled() for row in study.points if row["sentence"]]
        slopes = [f"{title}: {fitted.sentence.replace('x^', 'n^')}." for title, fitted in fits.items()]
        return [*(slope.replace("..", ".") for slope in slopes), compared(fits), *self._factors(), *failed[:1]]

    def _factors(self) -> list[str]:
        """The scaling factors that the published figure draws; none where a size was not measured."""
        studies = self._worker.scalings
        if not all(study.over and not any(row["sentence"] for row in study.points) for study in studies):
            return []
        first, *others = self._sizes[::2]  # the labels of the chart; of 500 to 2,800 rows they are the published sizes
        factors = {name: [(size / first) ** (power - 1) for size in others] for name, power in REFERENCES.items()}
        for title, study in self._titled():
            seconds = study.table().set_index("value")["seconds"]
            factors[title] = [scaling_factor(size, first, seconds[size], seconds[first]) for size in others]
        listed = [f"{name} {', '.join(f'{factor:.3g}' for factor in values)}" for name, values in factors.items()]
        sizes = ", ".join(f"{size:,}" for size in others[:-1]) + f" and {others[-1]:,}"
        return [f"Scaling factors at {sizes} rows, relative to {first:,}: {'; '.join(listed)}."]
