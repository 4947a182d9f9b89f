"""Two runs in step: their pictures side by side under one bar, aligned by step or by seconds of work."""

from __future__ import annotations

import asyncio
import io
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import panel_material_ui as pmui

from ...errors import GPExplorerError, SettingError
from ...methods.base import registry
from ...runs import Run, Spec
from ...runs.studies.comparison import Finished, aligned, differences_of_two
from ...views import View
from ...views.saved_page.page_file import page_of, place_name
from ...views.saved_page.recorded_figures import facts
from ..pictures.chart import Chart
from ..playback.background_worker import BackgroundWorker
from ..playback.open_run import EarlierRuns, Layers, OpenRequest, OpenRun
from ..playback.status import CSS as STATUS_CSS
from ..session import Session
from ..shared_limits import Turns
from ..text import sentence, text
from ..widgets import button, column, download, line_of_text, row, select, watch
from .race_panel import DEFAULT_METHODS
from .study_panel import StudyPanel

MOST_SECONDS = 60.0  # on the clock, for the steps of one of the two runs
PAIR = 2
LONGEST = 900  # letters of the sentences on the place of both runs


@dataclass(eq=False)
class Side:
    """One of two runs that are to be shown beside each other.

    Attributes
    ----------
    name : str
        The heading above it.
    request : OpenRequest
        What to open.
    steps : int
        Up to which record.
    opened : OpenRun
        The run.
    views : tuple of View
        Its pictures, once it is open.
    differs : str
        The settings in which it differs from the other run, once both are open.
    shortfall : str
        Why it has taken fewer steps than were asked for, as a sentence; empty if its method ended by itself.
    """

    name: str
    request: OpenRequest
    steps: int
    opened: OpenRun
    views: tuple[View, ...] = ()
    differs: str = ""
    shortfall: str = ""


class PairFrame(NamedTuple):
    """Both runs at one place.

    Attributes
    ----------
    place : str
        What it is called.
    said : str
        Where both runs are there, and why one of them goes no further, in sentences.
    facts : tuple of dict of str to str
        Numbers of each run there, as text.
    layers : tuple of mapping of str to Layers
        For each run, key of the picture -> its layers.
    """

    place: str
    said: str
    facts: tuple[dict[str, str], ...]
    layers: tuple[Mapping[str, Layers], ...]


class PairWorker(BackgroundWorker):
    """Two runs in step.

    Parameters
    ----------
    sides : sequence of Side
        What to open.
    turns : Turns
        The cores that the sessions of a server share.

    Attributes
    ----------
    sides : sequence of Side
        The same.
    message : str
        How far it is, or what went wrong.
    is_ready : bool
        Whether both runs have taken their steps.
    """

    def __init__(self, sides: Sequence[Side], turns: Turns) -> None:
        super().__init__("gpexplorer-pair")
        self.sides, self._turns = sides, turns
        self._changed = threading.Condition()
        self._request: tuple[int, str, tuple[str, ...]] | None = None
        self._frame: PairFrame | None = None
        self._places: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        self.message, self.is_ready = "", False
        self.start()

    def show(self, place: int, by: str, keys: Sequence[str]) -> None:
        """Draw these pictures of both runs at a place of the bar; the newest request replaces the ones before it."""
        with self._changed:
            self._request = (place, by, tuple(keys))
            self._changed.notify_all()

    def take(self) -> PairFrame | None:
        """Return the newest frame that was not taken yet."""
        with self._changed:
            frame, self._frame = self._frame, None
        return frame

    def places(self, by: str) -> int:
        """Return the number of places of the bar."""
        return len(self._places[by][0])

    def runs(self) -> dict[str, Run]:
        """Return copies of both runs by their names, for another thread."""
        return {side.name: side.opened.run.fork() for side in self.sides if side.opened.run is not None}

    def close(self) -> None:
        """End the thread and free both runs."""
        with self._changed:
            super().close()
            self._changed.notify_all()
        for side in self.sides:
            side.opened.halt()

    def work(self) -> None:
        """Take the steps of both runs, then draw what is asked for until `close`."""
        try:
            self._prepare()
            while self._draw_next():
                pass
        except Exception as error:
            self.message = sentence(error, "two runs were being compared")
        for side in self.sides:
            side.opened.close()

    def _prepare(self) -> None:
        for side in self.sides:
            self.message = f"Opening {side.name} …"
            side.opened.open(side.request)
            side.views = side.opened.summary.views if side.opened.summary is not None else ()
            self._take_steps(side)
            if self.closed.is_set():
                return
        runs = list(self.runs().values())
        finished = [Finished.of(run) for run in runs]
        differences = differences_of_two([run.spec for run in finished], [run.changes for run in finished])
        for side, other, differs in zip(self.sides, reversed(runs), differences, strict=True):
            side.differs = differs
            earlier = EarlierRuns()
            earlier.add(other)
            earlier.show(side.views)
        self._places = {by: aligned([run.steps for run in finished], by) for by in ("step", "seconds")}
        self.message, self.is_ready = "", True

    def _take_steps(self, side: Side) -> None:
        begin = time.monotonic()
        while side.opened.last < side.steps and not self.closed.is_set():
            with self._turns.turn():
                if not side.opened.advance():
                    break
            if time.monotonic() - begin > MOST_SECONDS and side.opened.last < side.steps:
                name, taken = _capitalised(side.name), f"{side.opened.last:,} of {side.steps:,} steps"
                side.shortfall = f"{name} took {taken} in {MOST_SECONDS:.0f} s, the most."
                break
            self.message = f"{side.name}: step {side.opened.last:,} of {side.steps:,} …"
        outcome = side.opened.run.outcome if side.opened.run is not None else None
        if outcome is not None and outcome.reason in ("failed", "diverged"):
            side.shortfall = f"{_capitalised(side.name)}: {outcome.message}"

    def _draw_next(self) -> bool:
        """Wait for a request and draw it; False once the worker is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self.closed.is_set() or self._request is not None)
            request, self._request = self._request, None
        if self.closed.is_set() or request is None:
            return False
        number, by, keys = request
        places, rows = self._places[by]
        number = min(max(number, 0), len(places) - 1)
        place = place_name(float(places[number]), by)
        runs_and_records = [(side.opened, int(at)) for side, at in zip(self.sides, rows[number], strict=True)]
        with self._turns.turn():
            for open_run, at in runs_and_records:
                with suppress(GPExplorerError):  # the pictures are shown where no score can be computed
                    open_run.score(at)
            layers = tuple(open_run.layers(at, keys) for open_run, at in runs_and_records)
        numbers = tuple(facts(open_run.run, [at])[0] for open_run, at in runs_and_records if open_run.run is not None)
        with self._changed:
            self._frame = PairFrame(place, self._said(place, float(places[number]), by, rows[number]), numbers, layers)
        return True

    def _said(self, name: str, place: float, by: str, records: Sequence[int]) -> str:
        """Where both runs are at a place with this name, and why they have taken fewer steps than were asked for."""
        where = []
        for side, at in zip(self.sides, records, strict=True):
            run = side.opened.run
            reached = at if by == "step" or run is None else run.trace[int(at)].seconds
            has_ended = at == side.opened.last and reached < place
            where.append(f"{side.name} ended at step {at:,}" if has_ended else f"{side.name} at {name}")
        both_there = all(words.endswith(f" at {name}") for words in where)
        said = f"Both runs at {name}." if both_there else f"{_capitalised('; '.join(where))}."
        rows = [(side.request.spec.data, side.request.spec.split) for side in self.sides]
        others = [OTHER_ROWS] if rows[0] != rows[1] else []
        return " ".join([said, *others, *(side.shortfall for side in self.sides if side.shortfall)])


def _capitalised(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


OPEN_RUN = "the open run"
OTHER_ROWS = "They are on different rows: their scores cannot be compared."
ALWAYS = ("fit", "convergence")  # pictures of both runs
NONE = "none"
HEIGHT = 300  # pixels of a figure
MOST_PICTURES = 3  # of each run
WIDTH = "min(max(360px, 34%), 100%)"  # the least one of a run: no third one fits beside two
BESIDE = {"display": "grid", "grid-template-columns": f"repeat(auto-fit, minmax({WIDTH}, 1fr))"}
FRAME_SECONDS = 0.12  # between two places while it plays


def rows_of_both(count: int) -> dict[str, str]:
    """Return the styles of a column whose parts are so many rows of a grid, which the column beside it shares."""
    return {"display": "grid", "grid-template-rows": "subgrid", "grid-row": f"span {count}", "min-width": "0"}


class PairPanel(StudyPanel):
    """Two runs in step.

    Parameters
    ----------
    session : Session
        The session.
    kept : callable
        Returns the runs that a person has kept, by name.
    """

    def __init__(self, session: Session, kept: Callable[[], Mapping[str, Finished]]) -> None:
        super().__init__(session)
        self._kept = kept
        self._charts: tuple[dict[str, Chart], ...] = ({}, {})  # of each run, by the key of the picture
        self._drawn, self._playing = 0.0, False
        self.left, self.right = select("Left", [OPEN_RUN], OPEN_RUN, 260), select("Right", [NONE], NONE, 300)
        hint = "show both under one bar; a method is run on the open rows first."
        self.go = button("Show both in step", "splitscreen", self.begin, hint)
        self.place = pmui.IntSlider(label="Place of both runs", start=0, end=1, value=0, width=320, margin=(6, 14))
        self.by = select("Aligned by", ["step", "seconds"], "step", 120)
        self.also = select("Third picture", [NONE], NONE, 220)
        self.play = button("Play both", "play_arrow", lambda: self._set_playing(not self._playing))
        hint = "one HTML file that plays both runs without a server or a network."
        self.page = download("two-runs.html", self._page, "Save both as a page", hint)
        watch(self._ask, self.place, self.also)
        watch(self._change_axis, self.by)
        self.heads = [line_of_text(margin=(4, 12), styles=[STATUS_CSS]) for _ in range(PAIR)]
        at_end = rows_of_both(MOST_PICTURES) | {"align-items": "end"}  # below the longer one of two legends
        self._figures = [column(margin=0, styles=at_end) for _ in range(PAIR)]
        self._bar = row(self.play, self.place, self.by, self.also, self.page, visible=False)
        pairs = zip(self.heads, self._figures, strict=True)
        sides = [column(*parts, margin=0, styles=rows_of_both(1 + MOST_PICTURES)) for parts in pairs]
        choice = row(self.left, self.right, self.go)
        self._layout = column(choice, self.note, self._bar, column(*sides, margin=0, styles=BESIDE))
        self.offer()

    def offer(self) -> None:
        """Offer the open run, the kept runs and all methods that fit the rows."""
        runs = {name: f"kept: {name}" for name in self._kept()}
        methods_here = [kind for kind in registry.values() if kind.__module__.startswith("gpexplorer.")]
        method = registry[self._session.spec.method]
        first = [kind for key, kind in registry.items() if key in DEFAULT_METHODS and kind is not method]
        methods_here.sort(key=lambda kind: (kind.family != method.family, kind not in first, kind.title))
        methods = {f"{kind.title}, default settings": f"method: {kind.key}" for kind in methods_here}
        offers = ((self.left, {OPEN_RUN: OPEN_RUN, **runs}), (self.right, {**runs, **methods}))
        for choice, options in offers:
            choice.options = options  # the same ones again close no menu that is open
            if choice.value not in options.values():
                choice.value = next(iter(options.values()))

    def begin(self) -> None:
        """Open both runs and take their steps; they are drawn when both have taken them."""
        self.close()
        self.start("the comparison of two runs", self._comparing, counted=False)

    def _comparing(self) -> PairWorker:
        left = self._side(str(self.left.value), None)
        right = self._side(str(self.right.value), left)
        self._session.begin_study("the comparison of two runs")
        if left.name == right.name:
            right.name += " (second)"
        return PairWorker([left, right], self._session.shares.turns)

    def update(self) -> None:
        """Show how far the runs are, or the newest place."""
        missing = self._session.missing_run if self.left.value == OPEN_RUN else ""
        self.require(missing, self.go, is_said=False)  # the panel around it says so
        worker = self._worker
        if worker is None:
            return
        if worker.message:
            self.say(worker.message)
        if worker.is_ready and not self._bar.visible:
            self.note.object = ""
            views = [view for side in worker.sides for view in side.views if view.key not in ALWAYS]
            self.also.param.update(options={NONE: NONE, **{view.title: view.key for view in views}}, value=NONE)
            self._bar.visible = True
            self._change_axis()
        frame = worker.take()
        if frame is not None:
            self._show(worker, frame)
        elif self._playing and time.monotonic() - self._drawn > FRAME_SECONDS:
            if self.place.value >= self.place.end:
                self._set_playing(False)
            else:
                self._drawn = time.monotonic()
                self.place.value += 1

    def pause(self) -> None:
        """Stop playing, and end the thread where it still takes steps once no browser shows the page."""
        if self._worker is not None and not self._worker.is_ready:
            self.close()
        self._set_playing(False)

    def close(self) -> None:
        """End the thread and free both runs."""
        super().close()
        self._set_playing(False)
        for charts, figures, head in zip(self._charts, self._figures, self.heads, strict=True):
            charts.clear()
            figures[:] = []
            head.object = ""
        self._bar.visible = False

    def _side(self, choice: str, left: Side | None) -> Side:
        """What a choice means; a method takes the rows, the kernel and the number of steps of the run at the left."""
        kind, _, name = choice.partition(": ")
        opened = OpenRun(self._session.shares)
        if choice == OPEN_RUN:
            run = self._session.run
            if run is None or len(run.trace) < PAIR or not isinstance(run.spec, Spec):
                raise SettingError("The open run has no steps yet. Press Play first.")
            return Side(OPEN_RUN, OpenRequest(run.spec, self._session.read), run.done, opened)
        if kind == "kept" and name in self._kept():
            kept_run = self._kept()[name]
            same_data = repr(kept_run.spec.data) == repr(self._session.spec.data)
            request = OpenRequest(kept_run.spec, self._session.read if same_data else None)
            return Side(name, request, int(kept_run.last["steps"]), opened)
        if kind == "method" and name in registry and left is not None:
            spec = replace(left.request.spec, method=name, settings={})
            return Side(registry[name].title, left.request._replace(spec=spec), left.steps, opened)
        raise SettingError("Choose two runs first.")

    def _change_axis(self) -> None:
        """Go to the last place of the axis that was chosen."""
        if self._worker is None or not self._worker.is_ready or self.by.value not in ("step", "seconds"):
            return
        last = self._worker.places(self.by.value) - 1
        self.place.param.update(end=max(last, 1), value=last)
        self._ask()

    def _ask(self) -> None:
        if self._worker is not None and self._worker.is_ready:
            self._worker.show(int(self.place.value), self.by.value, self._keys())

    def _keys(self) -> list[str]:
        return [*ALWAYS, *([self.also.value] if self.also.value != NONE else [])]

    def _show(self, worker: PairWorker, frame: PairFrame) -> None:
        self.say(frame.said, LONGEST)
        self._drawn = time.monotonic()
        for number, (side, layers, numbers) in enumerate(zip(worker.sides, frame.layers, frame.facts, strict=True)):
            cells = "".join(f"<div><span>{text(k)}</span><b>{text(v)}</b></div>" for k, v in numbers.items())
            head = f'<b>{text(side.name)}</b> <span class="hint">{text(side.differs)}</span>'
            self.heads[number].object = f'{head}<div class="facts">{cells}</div>'
            views = {view.key: view for view in side.views}
            self._draw(number, {views[key]: frames for key, frames in layers.items()}, f"{side.name}, {frame.place}")
        left, right = self._charts
        if len({repr(side.request.spec.data) for side in worker.sides}) == 1:
            for key in left.keys() & right.keys():
                left[key].share_axes(right[key])

    def _draw(self, number: int, layers: Mapping[View, Layers], shown: str) -> None:
        """Update the figures of one side, and make those that are new."""
        charts = self._charts[number]
        before = list(charts)
        for key in set(charts) - {view.key for view in layers}:
            del charts[key]
        for view, frames in layers.items():
            if view.key in charts or any(len(frame) for frame in frames.values()):
                chart = charts.setdefault(view.key, Chart(self._session.theme, HEIGHT))
                chart.show(view, dict(frames), f"{view.title}, {shown}")
        if list(charts) != before:
            self._figures[number][:] = list(charts.values())

    def _set_playing(self, playing: bool) -> None:
        self._playing = playing
        label, icon = ("Pause both", "pause") if playing else ("Play both", "play_arrow")
        self.play.param.update(label=label, icon=icon)
        if playing and self.place.value >= self.place.end:
            self.place.value = 0

    async def _page(self) -> io.BytesIO:
        """Both runs as a page that plays by itself; where that fails, a page that says why."""
        try:
            if self._worker is None:
                raise SettingError("No runs are shown: choose two runs first.")
            shared = set.intersection(*({view.key for view in side.views} for side in self._worker.sides))
            keys = [key for key in self._keys() if key in shared]
            content = await asyncio.to_thread(page_of, self._worker.runs(), keys, by=self.by.value)
        except Exception as error:
            content = f"<p>{text(sentence(error, 'the page was being written'))}</p>"
        return io.BytesIO(content.encode())
