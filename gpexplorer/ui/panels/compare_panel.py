"""The compare panel: keep runs, sweep a setting, choose a baseline, and see which run is best by which score."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import holoviews as hv
import pandas as pd
import panel as pn
import panel_material_ui as pmui

from ... import data as data_sets
from ...methods.base import registry
from ...runs.studies import comparison, split_comparison
from ...runs.studies.comparison import AXES, SCORES, SPENT, Finished
from ...views.runs import comparison_charts as pictures
from ..browser.callbacks import change, work_in_thread
from ..pictures.chart import Chart
from ..session import Session
from ..tables import TABLE, RunTable, html_table
from ..text import number, text
from ..widgets import WIDE, button, column, row, select, share_of_row, watch
from .pair_panel import PairPanel
from .study_panel import StudyPanel
from .sweep_panel import SweepPanel

MAX_RUNS = 60  # when more runs are kept, the oldest leaves the table
TOPS = {"all": None, "best 3": 3, "best 5": 5, "best 10": 10}
NONE = "none"
SCORE_NAMES = {name.upper(): name for name in SCORES}
SPENT_NAMES = {"kernel entries" if name == "entries" else name: name for name in SPENT}
BELOW_TEXT = (10, 0, 0, 0)  # the labels of fields stand above them


class ComparePanel(StudyPanel):
    """The runs that a person has kept, as a table and as pictures.

    Kept runs stay until they are taken from the table or the session ends. With a store, they also stay in the store:
    everyone shares it, so no page deletes from it.
    """

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        notes = session.notes
        self._notes, self._count, self._notes_version = notes, 0, notes.version
        self.runs: dict[str, Finished] = {}
        self.sweeps = SweepPanel(session, self.add_all, lambda: self.runs)
        self.pair = PairPanel(session, lambda: self.runs)
        session.panels += [self.sweeps, self.pair]
        self.keep = button("Keep this run", "push_pin", self.keep_open, variant="contained")
        shown = self._notes.store is not None
        hint = "add the runs of the store to the table."
        self.past = button("Stored runs", "history", self.look_back, hint, visible=shown)
        self.again = button(
            "Open the selected", "open_in_browser", self._open_again, "run it again up to its last step."
        )
        self.by = select("Sort by", SCORE_NAMES | SPENT_NAMES, "smse", 130)
        self.top = select("Show", list(TOPS), "all", 120)
        hint = "The table shows the differences to this run."
        self.baseline = select("Baseline", [NONE], NONE, 220, description=hint)
        hint = "stored runs stay in the store, which everyone shares." if shown else "no store keeps these runs."
        self.forget = button("Take from the table", "playlist_remove", self._forget, hint)
        self.families = pn.pane.HTML("", visible=False, margin=(4, 8), stylesheets=[TABLE])
        self.board = RunTable()
        watch(self.draw, self.by, self.top, self.baseline)
        self.channel = select("Curve of", {"SMSE": "smse"}, "smse", 220)
        self.over = select("Over", list(AXES), "seconds", 150)
        self.log = pmui.Checkbox(label="Logarithmic", margin=(6, 8))
        hint = "One small picture per run, all on the same scale."
        self.small = pmui.Checkbox(label="Small multiples", description=hint, margin=(6, 8))
        self.cost = select("Front: cost", SPENT_NAMES, "seconds", 130)
        self.score = select("Front: score", SCORE_NAMES, "smse", 120)
        self.curves, self.front = (Chart(session.theme) for _ in range(2))
        self.multiples = pmui.FlexBox(**WIDE)
        watch(self._draw_pictures, self.channel, self.over, self.log, self.small, self.cost, self.score)
        watch(self._draw_families, self.channel)
        shares = ((self.curves, 3), (self.front, 2))
        pictures_row = pmui.FlexBox(*(pn.Column(chart, styles=share_of_row(360, k)) for chart, k in shares), **WIDE)
        self._content = [
            self.families,
            row(self.channel, self.over, self.log, self.small, self.cost, self.score, margin=BELOW_TEXT),
            pictures_row,
            self.multiples,
            row(self.by, self.top, self.baseline, self.again, self.forget, margin=BELOW_TEXT),
            self.board,
        ]  # the pictures first: ten splits of two methods are twenty rows of the table
        self._place = column(visible=False)
        kept = row(self.keep, self.past, self.sweeps.on_splits)
        self._layout = column(kept, self.sweeps, self.note, self._place, self.pair)

    async def keep_open(self, _: Any = None) -> None:
        """Add the open run, up to its newest step, to the kept runs and to the store if there is one."""
        run = self._session.finished()
        if run is None or len(run.steps) < 2:
            self.say("The run has no steps yet. Press Play first, then keep it.")
            return
        known = self._name_of(run)
        self._count += not known
        name = known or f"{self._count}: {registry[run.spec.method].title}"
        change(pn.state.curdoc, lambda: self.add(name, run))
        if known:
            change(pn.state.curdoc, lambda: self._say_more(f"It is in the table already, as {known}."))
        await work_in_thread(self._session.store_run, self._say_more, self._say_more, "the run was being stored")

    async def look_back(self, _: Any = None) -> None:
        """Add the runs of the store, at most the newest `MAX_RUNS`."""
        store = self._notes.store
        if store is None:
            return
        self.say("Reading the store …")
        read = partial(comparison.read_store, store, MAX_RUNS)
        await work_in_thread(read, partial(self._add_stored, str(store.path)), self.say, "the store was being read")

    def _add_stored(self, path: str, stored: tuple[dict[str, Finished], dict[str, str]]) -> None:
        runs, unreadable = stored
        for name, run in runs.items():
            self._notes.learn(name, run.note)
            if not self._name_of(run):
                wanted = f"{name[:6]}: {registry[run.spec.method].title}"
                self.runs[comparison.name_among(wanted, run, self.runs, labels=True)] = run
        self._trim()
        self.draw()
        if not runs:
            self.say(f"The store {path} contains no run that can be read.")
        self._say_more(_about_unreadable(unreadable, path))

    def _say_more(self, message: str) -> None:
        self.note.object = " ".join(filter(None, [self.note.object, text(message)]))

    def _name_of(self, run: Finished) -> str:
        """The name under which these steps are in the table already; empty where they are not."""
        return next((name for name, known in self.runs.items() if known.has_steps_of(run)), "")

    def add(self, name: str, run: Finished) -> None:
        """Keep a run under a name; see `add_all`."""
        self.add_all({name: run})

    def add_all(self, runs: Mapping[str, Finished]) -> None:
        """Keep runs, and draw once. One takes the place of its repetition; a name of another run is made longer."""
        for name, run in runs.items():
            self.runs[comparison.name_among(name, run, self.runs, labels=True)] = run
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
        channels = {label: name for name, label in comparison.channels(self.runs).items()}
        value = self.channel.value if self.channel.value in channels.values() else next(iter(channels.values()))
        self.channel.param.update(options=channels, value=value)
        names = [NONE, *self.runs]
        self.baseline.param.update(options=names, value=self.baseline.value if self.baseline.value in names else NONE)
        self.board.fill(with_notes, self.by.value, TOPS[self.top.value], self._baseline)
        self._draw_pictures()
        if not len(self._place):
            self._place[:] = self._content  # not earlier, because a hidden table keeps the browser busy
        self._draw_families()

    def _draw_families(self) -> None:
        """Say which run is best, or where runs were repeated on several splits, whether these tell methods apart."""
        if not self.runs:
            return
        score = self.channel.value if self.channel.value in SCORES else SCORES[0]  # as in the curves
        groups = split_comparison.families(self.runs, labels=True)
        compared = split_comparison.table(groups, score)
        self.families.visible = bool(len(compared))
        if len(compared):
            self.families.object = _families_html(compared, score)
            first, *others = [text(said, 500) for said in split_comparison.sentences(compared, score)] or [""]
            alone = any(all(name not in group for group in groups.values()) for name in self.runs)
            markup = [f"<h2>{first}</h2>" * bool(first), *(f"<p>{said}</p>" for said in others)]
            self.note.object = "".join(markup) + (self._warnings() if alone else "")
            return
        winners = comparison.best(self.runs, SCORES[:2])
        best = [f"{metric.upper()}: <b>{text(name)}</b>" for metric, name in winners.items()]
        self.note.object = f"Best by {', by '.join(best)}.{self._doubts(winners)}{self._warnings()}" if best else ""

    def _doubts(self, winners: Mapping[str, str]) -> str:
        """Which runs may be as good as the one with the lowest SMSE, in a sentence that begins with a space."""
        name = winners.get("smse", "")
        alike = comparison.not_told_apart(self.runs, name) if name else []
        errors = self.runs[name].test_errors if alike else None
        if errors is None:
            return ""
        return f" {text(comparison.doubt_in_words(len(errors), 'SMSE', alike), 500)}"

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
        """Show notes that have changed, and what is missing to keep or sweep the open run."""
        missing = self._session.missing_run
        self.require(missing or self._session.missing_settings)
        self.keep.disabled = bool(missing)
        if self._notes_version != self._notes.version:
            self._notes_version = self._notes.version
            self.draw()

    @property
    def _baseline(self) -> str:
        """Name of the run to which the others are compared; empty for none."""
        return "" if self.baseline.value == NONE else str(self.baseline.value)

    def _open_again(self) -> None:
        """Open the first of the selected runs."""
        run = next((self.runs[name] for name in self.board.selected if name in self.runs), None)
        if run is None:
            self.say("Select a run in the table first.")
        elif not data_sets.is_named(run.spec.data):
            self.say("Its rows came from a file or from memory. Open them first, then choose the method.")
        else:
            self._session.choose(run.spec, int(run.last["steps"]))

    def _forget(self) -> None:
        for name in self.board.selected:
            self.runs.pop(name, None)
        self.draw()

    def _draw_pictures(self) -> None:
        if not self.runs:
            return
        baseline, groups = self._baseline, split_comparison.families(self.runs, labels=True)
        lines = split_comparison.layers(self.runs, groups, self.channel.value, self.over.value)
        drawn = f"{comparison.channels(self.runs)[self.channel.value]} over {self.over.value}"
        self.curves.draw(lines, lambda layers: pictures.curves(layers, baseline, self.log.value), f"Compare, {drawn}")
        shown = groups if self.channel.value in SCORES else {}  # as in the curves
        names = {name: next((family for family, group in shown.items() if name in group), name) for name in self.runs}
        order = sorted(set(names.values()), key=[*shown, *self.runs].index)
        colour_of = pictures.colours(order, baseline)
        cost, score, colours = self.cost.value, self.score.value, {run: colour_of[name] for run, name in names.items()}
        points = comparison.pareto(self.runs, cost, score)
        titles = [registry[method].title for method in points["method"]]
        points = points.assign(x=points[cost], y=points[score], colour=points["run"].map(colours), method=titles)
        name = f"Pareto front, {score.upper()} over {cost}"
        self.front.draw({"runs": points}, lambda layers: pictures.front(layers["runs"], cost, score), name)
        each = comparison.overlay(self.runs, self.channel.value, self.over.value) if self.small.value else {}
        overlays = pictures.multiples({name: {name: line} for name, line in each.items() if len(line)}, self.log.value)
        self._small_charts = [self._small_chart(overlay, f"{name}, {drawn}") for name, overlay in overlays.items()]
        self.multiples[:] = [pn.Column(chart, styles={"flex": "0 1 290px"}) for chart in self._small_charts]

    def _small_chart(self, overlay: hv.Overlay, name: str) -> Chart:
        """A chart that keeps the range of its overlay, which is common to all small charts."""
        chart = Chart(self._session.theme, height=200)
        chart.draw({}, lambda _: overlay.opts(show_legend=False), name)
        return chart


def _families_html(compared: pd.DataFrame, score: str) -> str:
    """Mean and spread of each family of runs over its splits, and on how many of them the best family is better."""
    headings = ["method", "over", f"mean {score.upper()}", "sd over these", "best is lower on", "p of the sign test"]
    lines = []
    for name, line in compared.iterrows():
        of = f"{int(line['wins'])} of {line['number']}" if pd.notna(line["wins"]) else "–"
        p = f"{line['p']:.2g}" if pd.notna(line["p"]) else "–"
        lines.append([name, f"{line['number']} {line['over']}", number(line["mean"]), number(line["sd"]), of, p])
    return html_table(headings, lines)


def _about_unreadable(unreadable: dict[str, str], store: str) -> str:
    """Which stored runs cannot be read, and why the first cannot. The path of the store is left out."""
    if not unreadable:
        return ""
    name, reason = next(iter(unreadable.items()))
    others = f" (and {len(unreadable) - 1} more)" if len(unreadable) > 1 else ""
    return f"The run {name}{others} cannot be read. {reason.replace(f'{store}/', '')}"
