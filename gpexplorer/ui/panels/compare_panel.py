"""The compare panel: keep runs, sweep a setting, choose a baseline, and see which run is best by which score."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import holoviews as hv
import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...errors import GPExplorerError
from ...methods.base import registry
from ...runs.studies import comparison
from ...runs.studies.comparison import AXES, SCORES, SPENT, Finished
from ...views.base import Layers
from ...views.runs import comparison_charts as pictures
from ..pictures.chart import Chart
from ..playback.locked_change import change
from ..session import Session
from ..text import named, text
from .pair_panel import PairPanel
from .run_table import RunTable
from .sweep_panel import SweepPanel

MAX_RUNS = 60  # when more runs are kept, the oldest is forgotten
TOPS = {"all": None, "best 3": 3, "best 5": 5, "best 10": 10}
SMALL = {"size": "small", "margin": (6, 8)}
NONE = "none"


class ComparePanel(pn.viewable.Viewer):
    """The runs that a person has kept, as a table and as pictures.

    Kept runs stay until they are forgotten or the session ends. With a store, they also stay in the store.
    """

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        notes = session.notes
        self._session, self._notes, self._count, self._notes_version = session, notes, 0, notes.version
        self.runs: dict[str, Finished] = {}
        self.sweeps = SweepPanel(session, self.add)
        self.pair = PairPanel(session, lambda: self.runs)
        self._make_table()
        self._make_pictures()
        self.note = pn.pane.HTML("", margin=(0, 12), sizing_mode="stretch_width")
        self._content = [
            pmui.FlexBox(self.by, self.top, self.baseline, self.again, self.forget, align_items="center"),
            self.board,
            pmui.FlexBox(self.channel, self.over, self.log, self.small, self.cost, self.score, align_items="center"),
            pmui.FlexBox(
                pn.Column(self.curves, styles=_grow(3)), pn.Column(self.front, styles=_grow(2)),
                sizing_mode="stretch_width", flex_wrap="wrap",
            ),
            self.multiples,
        ]  # fmt: skip
        self._place = pn.Column(sizing_mode="stretch_width", visible=False)
        head = pmui.FlexBox(self.keep, self.past, self.sweeps, align_items="center")
        self._layout = pn.Column(head, self.note, self._place, self.pair, sizing_mode="stretch_width")

    async def keep_open(self, _: Any = None) -> None:
        """Add the open run, up to its newest step, to the kept runs and to the store if there is one."""
        run = self._session.finished()
        if run is None or len(run.steps) < 2:
            self.note.object = "The run has no steps yet. Press Play first, then keep it."
            return
        self._count += 1
        name, document = f"{self._count}: {registry[run.spec.method].title}", pn.state.curdoc
        change(document, lambda: self.add(name, run))
        message = await asyncio.to_thread(self._session.store_run)
        change(document, lambda: self._say_more(message))

    async def look_back(self, _: Any = None) -> None:
        """Add the runs of the store, at most the newest `MAX_RUNS`."""
        store = self._notes.store
        if store is None:
            return
        self.note.object, document = "Reading the store …", pn.state.curdoc
        try:
            runs, unreadable = await asyncio.to_thread(comparison.read_store, store, MAX_RUNS)
        except GPExplorerError as error:  # the directory itself cannot be read
            sentence = text(str(error))
            change(document, lambda: setattr(self.note, "object", sentence))
            return
        change(document, lambda: self._add_stored(runs, unreadable, str(store.path)))

    def _add_stored(self, runs: dict[str, Finished], unreadable: dict[str, str], path: str) -> None:
        for name, run in runs.items():
            self._notes.learn(name, run.note)
            self.runs[f"{name[:6]}: {registry[run.spec.method].title}"] = run
        self._trim()
        self.draw()
        if not runs:
            self.note.object = text(f"The store {path} contains no run that can be read.")
        self._say_more(_about_unreadable(unreadable, path))

    def _say_more(self, message: str) -> None:
        self.note.object = " ".join(filter(None, [self.note.object, text(message)]))

    def add(self, name: str, run: Finished) -> None:
        """Keep a run under a name; it replaces a run with the same name."""
        self.runs[name] = run
        self._trim()
        self.draw()

    def _trim(self) -> None:
        for oldest in list(self.runs)[:-MAX_RUNS]:
            del self.runs[oldest]

    def draw(self) -> None:
        """Draw the table and the pictures of the kept runs."""
        self.pair.offer()
        self._place.visible = bool(self.runs)
        if not self.runs:
            self.note.object = ""
            return
        with_notes = {name: replace(run, note=self._notes.of(run.spec.key())) for name, run in self.runs.items()}
        channels = comparison.channels(self.runs)
        self.channel.options = channels
        if self.channel.value not in channels:
            self.channel.value = channels[0]
        self.baseline.options = [NONE, *self.runs]
        if self.baseline.value not in self.baseline.options:
            self.baseline.value = NONE
        baseline = "" if self.baseline.value == NONE else self.baseline.value
        self.board.fill(with_notes, self.by.value, TOPS[self.top.value], baseline)
        self._draw_pictures(baseline)
        if not len(self._place):
            self._place[:] = self._content  # not earlier, because a hidden table keeps the browser busy
        best = [
            f"{metric.upper()}: <b>{text(name)}</b>" for metric, name in comparison.best(self.runs, SCORES[:2]).items()
        ]
        self.note.object = f"Best by {', by '.join(best)}.{self._warnings()}" if best else ""

    def _warnings(self) -> str:
        """What cannot be compared among these runs, in sentences that begin with a space."""
        specs = [run.spec for run in self.runs.values()]
        warnings = ""
        if (data := len({(repr(spec.data), repr(spec.split)) for spec in specs})) > 1:
            warnings += f" The runs use {data} different data sets or splits; compare scores only within one."
        if len({spec.target_transform for spec in specs}) > 1:
            warnings += " The runs model different transforms of the target; compare scores, not objectives."
        return warnings

    def update(self) -> None:
        """Add the runs of a sweep that have ended, and show notes that have changed."""
        self.sweeps.update()
        self.pair.update()
        if self._notes_version != self._notes.version:
            self._notes_version = self._notes.version
            self.draw()

    def set_theme(self, theme: str) -> None:
        """Draw the figures for the theme "light" or "dark"."""
        for chart in (self.curves, self.front, self.pair, *self._small_charts):
            chart.set_theme(theme)
        self._theme = theme

    def pause(self) -> None:
        """Stop the current sweep after its step, and the two runs in step once no browser shows the page."""
        self.sweeps.close()
        self.pair.pause()

    def close(self) -> None:
        """Stop the current sweep and free the two runs in step, because the session has ended."""
        self.sweeps.close()
        self.pair.close()

    def _make_table(self) -> None:
        self.keep = pmui.Button(
            label="Keep this run", icon="push_pin", color="primary", variant="contained", margin=(6, 10),
            on_click=self.keep_open,
        )  # fmt: skip
        self.past = pmui.Button(
            **named("Stored runs", "add the runs of the store to the table."),
            icon="history", variant="outlined", margin=(6, 10), on_click=self.look_back,
            visible=self._notes.store is not None,
        )  # fmt: skip
        self.again = pmui.Button(
            **named("Open the selected", "run it again up to its last step."),
            icon="open_in_browser", variant="outlined", margin=(6, 8),
            on_click=lambda _: self._open_again(),
        )  # fmt: skip
        self.by = pmui.Select(label="Sort by", options=[*SCORES, *SPENT], value="smse", width=130, **SMALL)
        self.top = pmui.Select(label="Show", options=list(TOPS), value="all", width=120, **SMALL)
        self.baseline = pmui.Select(
            label="Baseline", options=[NONE], value=NONE, width=220,
            description="The table shows the differences to this run.", **SMALL,
        )  # fmt: skip
        self.forget = pmui.Button(
            label="Forget the selected",
            icon="delete",
            variant="outlined",
            margin=(6, 8),
            on_click=lambda _: self._forget(),
        )
        self.board = RunTable()
        for widget in (self.by, self.top, self.baseline):
            widget.param.watch(lambda _: self.draw(), "value")

    def _make_pictures(self) -> None:
        self._theme = "light"
        self.channel = pmui.Select(label="Curve of", options=["smse"], value="smse", width=170, **SMALL)
        self.over = pmui.Select(label="Over", options=list(AXES), value="seconds", width=150, **SMALL)
        self.log = pmui.Checkbox(label="Logarithmic", margin=(6, 8))
        self.small = pmui.Checkbox(
            label="Small multiples", description="One small picture per run, all on the same scale.", margin=(6, 8)
        )
        self.cost = pmui.Select(label="Front: cost", options=list(SPENT), value="seconds", width=130, **SMALL)
        self.score = pmui.Select(label="Front: score", options=list(SCORES), value="smse", width=120, **SMALL)
        self.curves, self.front = Chart(), Chart()
        self._small_charts: list[Chart] = []
        self.multiples = pmui.FlexBox(sizing_mode="stretch_width", flex_wrap="wrap")
        for widget in (self.channel, self.over, self.log, self.small, self.cost, self.score):
            widget.param.watch(lambda _: self._draw_pictures(), "value")

    def _open_again(self) -> None:
        """Open the first of the selected runs."""
        run = next((self.runs[name] for name in self.board.selected if name in self.runs), None)
        if run is None:
            self.note.object = "Select a run in the table first."
        elif not data_sets.is_named(run.spec.data):
            self.note.object = "Its rows came from a file or from memory. Open them first, then choose the method."
        else:
            self._session.choose(run.spec, int(run.last["steps"]))

    def _forget(self) -> None:
        for name in self.board.selected:
            self.runs.pop(name, None)
        self.draw()

    def _draw_pictures(self, baseline: str | None = None) -> None:
        if not self.runs:
            return
        if baseline is None:
            baseline = "" if self.baseline.value == NONE else self.baseline.value
        lines = comparison.overlay(self.runs, self.channel.value, self.over.value)
        self.curves.draw(lines, lambda layers: pictures.curves(layers, baseline, self.log.value))
        cost, score, colours = self.cost.value, self.score.value, pictures.colours(list(self.runs), baseline)
        points = comparison.pareto(self.runs, cost, score)
        points = points.assign(x=points[cost], y=points[score], colour=points["run"].map(colours))
        self.front.draw({"runs": points}, lambda layers: pictures.front(layers["runs"], cost, score))
        self._small_charts = self._draw_small(lines) if self.small.value else []
        self.multiples[:] = [pn.Column(chart, styles={"flex": "0 1 290px"}) for chart in self._small_charts]

    def _draw_small(self, lines: Layers) -> list[Chart]:
        frames = {name: {name: frame} for name, frame in lines.items() if len(frame)}
        overlays = pictures.multiples(frames, self.log.value)
        return [self._small_chart(overlay.opts(show_legend=False)) for overlay in overlays.values()]

    def _small_chart(self, overlay: hv.Overlay) -> Chart:
        """A chart that keeps the range of its overlay, which is common to all small charts."""
        chart = Chart(height=200)
        chart.set_theme(self._theme)
        chart.draw({}, lambda _: overlay)
        return chart

    def __panel__(self) -> Any:
        return self._layout


def _about_unreadable(unreadable: dict[str, str], store: str) -> str:
    """Which stored runs cannot be read, and why the first cannot. The path of the store is left out."""
    if not unreadable:
        return ""
    name, reason = next(iter(unreadable.items()))
    others = f" (and {len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
    return f"The run {name}{others} cannot be read. {reason.replace(f'{store}/', '')}"


def _grow(share: int) -> dict[str, str]:
    return {"flex": f"{share} 1 360px", "min-width": "0"}
