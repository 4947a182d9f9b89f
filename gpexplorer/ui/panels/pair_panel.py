"""Two runs in step: their pictures side by side under one bar, aligned by step or by seconds of work."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ...errors import GPExplorerError, SettingError
from ...methods.base import registry
from ...runs import Spec
from ...runs.studies.comparison import Finished
from ...views import View
from ...views.drawing.live import Live
from ...views.saved_page.page_file import page_of
from ..playback.open_run import Layers, OpenRequest
from ..playback.status import CSS as STATUS_CSS
from ..session import Session
from ..text import named, sentence, text
from .pair_worker import PAIR, PairFrame, PairWorker, Side

OPEN_RUN = "the open run"
ALWAYS = ("fit", "convergence")  # pictures of both runs
NONE = "none"
HEIGHT = 300  # pixels of a figure
FRAME_SECONDS = 0.12  # between two places while it plays
SMALL = {"size": "small", "margin": (6, 8)}


class PairPanel(pn.viewable.Viewer):
    """Two runs in step.

    Parameters
    ----------
    session : the session.
    kept : returns the runs that a person has kept, by name.
    """

    def __init__(self, session: Session, kept: Callable[[], Mapping[str, Finished]], **params: Any) -> None:
        super().__init__(**params)
        self._session, self._kept, self._theme = session, kept, "light"
        self._worker: PairWorker | None = None
        self._lives: dict[tuple[int, str], Live] = {}
        self._drawn, self._playing = 0.0, False
        self._make_controls()
        self.note = pn.pane.HTML("", margin=(0, 12), sizing_mode="stretch_width")
        self.heads = [
            pn.pane.HTML("", margin=(4, 12), sizing_mode="stretch_width", stylesheets=[STATUS_CSS]) for _ in range(PAIR)
        ]
        self._figures = [pn.Column(sizing_mode="stretch_width", margin=0) for _ in range(PAIR)]
        self._bar = pmui.FlexBox(
            self.play, self.place, self.by, self.also, self.page, align_items="center", visible=False
        )
        sides = [
            pn.Column(
                head, figures, sizing_mode="stretch_width", margin=0, styles={"flex": "1 1 360px", "min-width": "0"}
            )
            for head, figures in zip(self.heads, self._figures, strict=True)
        ]
        self._layout = pn.Column(
            pmui.FlexBox(self.left, self.right, self.go, align_items="center"), self.note, self._bar,
            pmui.FlexBox(*sides, sizing_mode="stretch_width", flex_wrap="wrap"), sizing_mode="stretch_width",
        )  # fmt: skip
        self.offer()

    def offer(self) -> None:
        """Offer the open run, the kept runs and all methods that fit the rows."""
        runs = {name: f"kept: {name}" for name in self._kept()}
        methods_here = [kind for kind in registry.values() if kind.__module__.startswith("gpexplorer.")]
        family = registry[self._session.spec.method].family
        methods_here.sort(key=lambda kind: (kind.family != family, kind.title))
        methods = {f"{kind.title}, default settings": f"method: {kind.key}" for kind in methods_here}
        offers = ((self.left, {OPEN_RUN: OPEN_RUN, **runs}), (self.right, {**runs, **methods}))
        for choice, options in offers:
            if choice.options != options:  # new options close a menu that is open
                choice.options = options
            if choice.value not in options.values():
                choice.value = next(iter(options.values()))

    def begin(self) -> None:
        """Open both runs and take their steps; they are drawn when both have taken them."""
        self.close()
        try:
            left = self._side(str(self.left.value), None)
            sides = [left, self._side(str(self.right.value), left)]
            self._session.begin_study("the comparison of two runs")
        except GPExplorerError as error:
            self.note.object = text(str(error))
            return
        if sides[0].name == sides[1].name:
            sides[1] = sides[1]._replace(name=f"{sides[1].name} (second)")
        self._bar.visible = False
        self._worker = PairWorker(sides, self._session.shares)

    def update(self) -> None:
        """Show how far the runs are, or the newest place."""
        worker = self._worker
        if worker is None:
            return
        if worker.message and self.note.object != text(worker.message):
            self.note.object = text(worker.message)
        if worker.is_ready and not self._bar.visible:
            self._show_bar(worker)
        frame = worker.take()
        if frame is not None:
            self._show(worker, frame)
        elif self._playing and time.monotonic() - self._drawn > FRAME_SECONDS:
            if self.place.value >= self.place.end:
                self._set_playing(False)
            else:
                self._drawn = time.monotonic()
                self.place.value += 1

    def set_theme(self, theme: str) -> None:
        """Draw the figures for the theme "light" or "dark"."""
        self._theme = theme
        for live in self._lives.values():
            live.set_theme(theme)

    def pause(self) -> None:
        """Stop playing, and end the thread where it still takes steps once no browser shows the page."""
        if self._worker is not None and not self._worker.is_ready:
            self.close()
        self._set_playing(False)

    def close(self) -> None:
        """End the thread and free both runs."""
        worker, self._worker = self._worker, None
        self._set_playing(False)
        self._lives.clear()
        for figures in self._figures:
            figures[:] = []
        for head in self.heads:
            head.object = ""
        self._bar.visible = False
        if worker is not None:
            worker.close()

    def _make_controls(self) -> None:
        self.left = pmui.Select(label="Left", options=[OPEN_RUN], value=OPEN_RUN, width=260, **SMALL)
        self.right = pmui.Select(label="Right", options=[NONE], value=NONE, width=300, **SMALL)
        self.go = pmui.Button(
            **named("Show both in step", "run both on the same rows and show them under one bar."),
            icon="splitscreen", variant="outlined", margin=(6, 8), on_click=lambda _: self.begin(),
        )  # fmt: skip
        self.place = pmui.IntSlider(label="Place of both runs", start=0, end=1, value=0, width=320, margin=(6, 14))
        self.by = pmui.Select(label="Aligned by", options=["step", "seconds"], value="step", width=120, **SMALL)
        self.also = pmui.Select(label="Third picture", options=[NONE], value=NONE, width=220, **SMALL)
        self.play = pmui.Button(
            label="Play both", icon="play_arrow", variant="outlined", margin=(6, 8),
            on_click=lambda _: self._set_playing(not self._playing),
        )  # fmt: skip
        self.page = pmui.FileDownload(
            callback=self._page, filename="two-runs.html",
            **named("Save both as a page", "one HTML file that plays both runs without a server or a network."),
            variant="outlined", size="small", margin=(4, 6),
        )  # fmt: skip
        self.place.param.watch(lambda _: self._ask(), "value")
        self.also.param.watch(lambda _: self._ask(), "value")
        self.by.param.watch(lambda _: self._change_axis(), "value")

    def _side(self, choice: str, left: Side | None) -> Side:
        """What a choice means; a method takes the rows, the kernel and the number of steps of the run at the left."""
        kind, _, name = choice.partition(": ")
        if choice == OPEN_RUN:
            run = self._session.run
            if run is None or len(run.trace) < PAIR or not isinstance(run.spec, Spec):
                raise SettingError("The open run has no steps yet. Press Play first.")
            return Side(OPEN_RUN, OpenRequest(run.spec, self._session.read), run.done)
        if kind == "kept" and name in self._kept():
            kept_run = self._kept()[name]
            same_data = repr(kept_run.spec.data) == repr(self._session.spec.data)
            return Side(
                name, OpenRequest(kept_run.spec, self._session.read if same_data else None), int(kept_run.last["steps"])
            )
        if kind == "method" and name in registry and left is not None:
            spec = replace(left.request.spec, method=name, settings={})
            return Side(registry[name].title, left.request._replace(spec=spec), left.steps)
        raise SettingError("Choose two runs first.")

    def _show_bar(self, worker: PairWorker) -> None:
        self.note.object = ""
        titles = {
            view.title: view.key for summary in worker.summaries for view in summary.views if view.key not in ALWAYS
        }
        self.also.options = {NONE: NONE, **titles}
        self.also.value = NONE
        self._bar.visible = True
        self._change_axis()

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
        if self.note.object != text(f"Both runs at {frame.place[1]}."):
            self.note.object = text(f"Both runs at {frame.place[1]}.")
        self._drawn = time.monotonic()
        for number, (layers, numbers) in enumerate(zip(frame.layers, frame.facts, strict=True)):
            name, differs = list(worker.runs())[number], worker.differs[number]
            cells = "".join(
                f"<div><span>{text(key)}</span><b>{text(value)}</b></div>" for key, value in numbers.items()
            )
            head = f'<b>{text(name)}</b> <span class="hint">{text(differs)}</span>'
            self.heads[number].object = f'{head}<div class="facts">{cells}</div>'
            views = {view.key: view for view in worker.summaries[number].views}
            self._draw(number, {views[key]: frames for key, frames in layers.items()})

    def _draw(self, number: int, layers: Mapping[View, Layers]) -> None:
        """Update the figures of one side, and make those that are new."""
        keys = {view.key for view in layers}
        removed = [key for key in self._lives if key[0] == number and key[1] not in keys]
        for key in removed:
            del self._lives[key]
        must_arrange = bool(removed)
        for view, frames in layers.items():
            live = self._lives.get((number, view.key))
            if live is not None:
                live.update(dict(frames))
            elif any(len(frame) for frame in frames.values()):
                live = self._lives[number, view.key] = Live(view, dict(frames), self._theme)
                live.figure.update(sizing_mode="stretch_width", height=HEIGHT, output_backend="canvas")
                must_arrange = True
        if must_arrange:
            self._figures[number][:] = [
                pn.pane.Bokeh(live.figure, sizing_mode="stretch_width", height=HEIGHT)
                for key, live in self._lives.items()
                if key[0] == number
            ]

    def _set_playing(self, playing: bool) -> None:
        self._playing = playing
        self.play.param.update(
            label="Pause both" if playing else "Play both", icon="pause" if playing else "play_arrow"
        )
        if playing and self.place.value >= self.place.end:
            self.place.value = 0

    async def _page(self) -> io.BytesIO:
        """Both runs as a page that plays by itself; where that fails, a page that says why."""
        try:
            if self._worker is None:
                raise SettingError("No runs are shown: choose two runs first.")
            shared = set.intersection(*({view.key for view in summary.views} for summary in self._worker.summaries))
            keys = [key for key in self._keys() if key in shared]
            content = await asyncio.to_thread(page_of, self._worker.runs(), keys, by=self.by.value)
        except Exception as error:
            content = f"<p>{text(sentence(error, 'the page was being written'))}</p>"
        return io.BytesIO(content.encode())

    def __panel__(self) -> Any:
        return self._layout
