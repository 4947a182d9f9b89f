"""Runs side by side: keep what is open, sweep a setting, pin a baseline, and see who is best at what."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import holoviews as hv
import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...methods.base import registry
from ...runs.studies import comparison
from ...runs.studies.comparison import AXES, SCORES, SPENT, Finished
from ...views.base import Layers
from ...views.runs import comparison_charts as pictures
from ..pictures.chart import Chart
from ..session import Session
from ..text.escape import text
from ..text.number_format import named
from .run_table import Board
from .sweep_panel import Sweeps

MOST = 60  # runs kept; the oldest go first
TOPS = {"all": None, "best 3": 3, "best 5": 5, "best 10": 10}
SMALL = {"size": "small", "margin": (6, 8)}
NONE = "none"


class ComparePanel(pn.viewable.Viewer):
    """What was kept stays until it is forgotten or the session ends, and in the store where there is one."""

    def __init__(self, session: Session, **params: Any) -> None:
        super().__init__(**params)
        notes = session.notes
        self._session, self._notes, self._count, self._read = session, notes, 0, notes.version
        self.runs: dict[str, Finished] = {}
        self.sweeps = Sweeps(session, self.add)
        self._make_table()
        self._make_pictures()
        self.note = pn.pane.HTML("", margin=(0, 12), sizing_mode="stretch_width")
        self._parts = [
            pmui.FlexBox(self.by, self.top, self.baseline, self.again, self.forget, align_items="center"),
            self.board,
            pmui.FlexBox(self.channel, self.over, self.log, self.small, self.spent, self.score, align_items="center"),
            pmui.FlexBox(
                pn.Column(self.curves, styles=_grow(3)), pn.Column(self.front, styles=_grow(2)),
                sizing_mode="stretch_width", flex_wrap="wrap",
            ),
            self.multiples,
        ]  # fmt: skip
        self._shown = pn.Column(sizing_mode="stretch_width", visible=False)
        head = pmui.FlexBox(self.keep, self.past, self.sweeps, align_items="center")
        self._layout = pn.Column(head, self.note, self._shown, sizing_mode="stretch_width")

    async def keep_open(self, _: Any = None) -> None:
        """Put the open run, as far as it has come, beside the others, and into the store where there is one."""
        run = self._session.finished()
        if run is None or len(run.steps) < 2:
            self.note.object = "There is nothing to keep yet: play a few steps first."
            return
        self._count += 1
        self.add(f"{self._count}: {registry[run.spec.method].title}", run)
        said = await asyncio.to_thread(self._session.store_run)
        self.note.object = " ".join(filter(None, [self.note.object, text(said)]))

    async def look_back(self, _: Any = None) -> None:
        """The runs of the store, the last ones stored where there are too many, beside the others."""
        store = self._notes.store
        if store is None:
            return
        self.note.object = "Reading the store …"
        found = await asyncio.to_thread(comparison.stored, store, MOST)
        for name, run in found.items():
            self._notes.learn(name, run.note)
            self.runs[f"{name[:6]}: {registry[run.spec.method].title}"] = run
        self._trim()
        self.draw()
        if not found:
            self.note.object = text(f"The store {store.path} has no run that can be read yet.")

    def add(self, name: str, run: Finished) -> None:
        """Keep this run under a name; a name there already is replaced."""
        self.runs[name] = run
        self._trim()
        self.draw()

    def _trim(self) -> None:
        for oldest in list(self.runs)[:-MOST]:
            del self.runs[oldest]

    def draw(self) -> None:
        """Table and pictures of what is kept."""
        self._shown.visible = bool(self.runs)
        if not self.runs:
            self.note.object = ""
            return
        noted = {name: replace(run, note=self._notes.of(run.spec.key())) for name, run in self.runs.items()}
        channels = comparison.channels(self.runs)
        self.channel.options = channels
        if self.channel.value not in channels:
            self.channel.value = channels[0]
        self.baseline.options = [NONE, *self.runs]
        if self.baseline.value not in self.baseline.options:
            self.baseline.value = NONE
        base = "" if self.baseline.value == NONE else self.baseline.value
        self.board.fill(noted, self.by.value, TOPS[self.top.value], base)
        self._draw_pictures(base)
        if not len(self._shown):
            self._shown[:] = self._parts  # not before: a table that is out of sight keeps the browser busy
        said = [
            f"{metric.upper()}: <b>{text(name)}</b>" for metric, name in comparison.best(self.runs, SCORES[:2]).items()
        ]
        beside = {(repr(run.spec.data), repr(run.spec.split)) for run in self.runs.values()}
        apart = f" They are on {len(beside)} sets of rows: compare scores within one." if len(beside) > 1 else ""
        self.note.object = "Best in " + ", in ".join(said) + "." + apart if said else ""

    def update(self) -> None:
        """Take the runs of a sweep that have ended since, and notes that were written."""
        self.sweeps.update()
        if self._read != self._notes.version:
            self._read = self._notes.version
            self.draw()

    def set_theme(self, theme: str) -> None:
        """Light or dark."""
        for chart in (self.curves, self.front, *self._minis):
            chart.set_theme(theme)
        self._theme = theme

    def close(self) -> None:
        """End a sweep under way; for a session that is over."""
        self.sweeps.close()

    def _make_table(self) -> None:
        self.keep = pmui.Button(
            label="Keep this run", icon="push_pin", color="primary", variant="contained", margin=(6, 10),
            on_click=self.keep_open,
        )  # fmt: skip
        self.past = pmui.Button(
            **named("Stored runs", "bring back the runs of earlier days."),
            icon="history", variant="outlined", margin=(6, 10), on_click=self.look_back,
            visible=self._notes.store is not None,
        )  # fmt: skip
        self.again = pmui.Button(
            **named("Open the ticked", "run it again, to the step it had come to."),
            icon="open_in_browser", variant="outlined", margin=(6, 8),
            on_click=lambda _: self._open_again(),
        )  # fmt: skip
        self.by = pmui.Select(label="Best by", options=[*SCORES, *SPENT], value="smse", width=130, **SMALL)
        self.top = pmui.Select(label="Show", options=list(TOPS), value="all", width=120, **SMALL)
        self.baseline = pmui.Select(
            label="Baseline", options=[NONE], value=NONE, width=220,
            description="Every other run is shown beside this one.", **SMALL,
        )  # fmt: skip
        self.forget = pmui.Button(
            label="Forget the ticked",
            icon="delete",
            variant="outlined",
            margin=(6, 8),
            on_click=lambda _: self._forget(),
        )
        self.board = Board()
        for widget in (self.by, self.top, self.baseline):
            widget.param.watch(lambda _: self.draw(), "value")

    def _make_pictures(self) -> None:
        self._theme = "light"
        self.channel = pmui.Select(label="Curve of", options=["smse"], value="smse", width=170, **SMALL)
        self.over = pmui.Select(label="over", options=list(AXES), value="seconds", width=150, **SMALL)
        self.log = pmui.Checkbox(label="Logarithmic", margin=(6, 8))
        self.small = pmui.Checkbox(
            label="Small multiples", description="One small picture a run, all on the same scale.", margin=(6, 8)
        )
        self.spent = pmui.Select(label="Front of", options=list(SPENT), value="seconds", width=130, **SMALL)
        self.score = pmui.Select(label="against", options=list(SCORES), value="smse", width=120, **SMALL)
        self.curves, self.front = Chart(), Chart()
        self._minis: list[Chart] = []
        self.multiples = pmui.FlexBox(sizing_mode="stretch_width", flex_wrap="wrap")
        for widget in (self.channel, self.over, self.log, self.small, self.spent, self.score):
            widget.param.watch(lambda _: self._draw_pictures(), "value")

    def _open_again(self) -> None:
        """The first of the ticked runs in place of the open one."""
        run = next((self.runs[name] for name in self.board.ticked if name in self.runs), None)
        if run is None:
            self.note.object = "Tick a run first."
        elif not data_sets.is_named(run.spec.data):
            self.note.object = "Its rows were a file or in memory: open them first, then set the method."
        else:
            self._session.choose(run.spec, int(run.last["steps"]))

    def _forget(self) -> None:
        for name in self.board.ticked:
            self.runs.pop(name, None)
        self.draw()

    def _draw_pictures(self, baseline: str | None = None) -> None:
        if not self.runs:
            return
        base = baseline if baseline is not None else "" if self.baseline.value == NONE else self.baseline.value
        lines = comparison.overlay(self.runs, self.channel.value, self.over.value)
        self.curves.draw(lines, lambda layers: pictures.curves(layers, base, self.log.value))
        spent, score, colours = self.spent.value, self.score.value, pictures.colours(list(self.runs), base)
        points = comparison.pareto(self.runs, spent, score)
        points = points.assign(x=points[spent], y=points[score], colour=points["run"].map(colours))
        self.front.draw({"runs": points}, lambda layers: pictures.front(layers["runs"], spent, score))
        self._minis = self._drawn_small(lines) if self.small.value else []
        self.multiples[:] = [pn.Column(chart, styles={"flex": "0 1 290px"}) for chart in self._minis]

    def _drawn_small(self, lines: Layers) -> list[Chart]:
        frames = {name: {name: frame} for name, frame in lines.items() if len(frame)}
        drawn = pictures.multiples(frames, self.log.value)
        return [self._small(overlay.opts(show_legend=False)) for overlay in drawn.values()]

    def _small(self, overlay: hv.Overlay) -> Chart:
        """One of several on the same scale, which its own numbers must not change."""
        chart = Chart(height=200)
        chart.set_theme(self._theme)
        chart.draw({}, lambda _: overlay)
        return chart

    def __panel__(self) -> Any:
        return self._layout


def _grow(share: int) -> dict[str, str]:
    return {"flex": f"{share} 1 360px", "min-width": "0"}
