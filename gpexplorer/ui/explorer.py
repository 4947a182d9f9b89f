"""The explorer: data, kernel and settings on one side, a run that plays on the other.

`Explorer(spec)` is a plain layout for a notebook cell; `shell.app` wraps the same parts in a page.
"""

from __future__ import annotations

import time
import weakref
from dataclasses import replace
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..errors import GPExplorerError, SettingError
from ..runs import Spec, Store
from .address import Asking, read
from .browser.batch import together
from .browser.keys import HELP
from .inputs.controls import Controls
from .inputs.data_source import Sources
from .inputs.method_settings import SIZE
from .inputs.presets import PRESETS
from .inputs.question import question
from .panels.notes import Notes
from .panels.panel_list import folded
from .panels.share_panel import Shown
from .pictures.edits_by_hand import Changing
from .pictures.picture_cards import Asked, Pictures
from .playback.draw_acknowledgement import Pulse
from .playback.messages import Frame
from .playback.open_run import Job, Opened
from .playback.player import Player
from .playback.status import Status
from .playback.transport import Transport
from .text.error_sentences import sentence
from .theme import name as theme_name

PERIOD = 60  # milliseconds between looks at the player
SETTLE = 0.5  # seconds
START = {"method": "cholqr", "settings": {"num_inducing": 10}, "kernel": "se", "budget": {"steps": 300}}


def resources() -> None:
    """Load what the page needs from this machine."""
    pn.extension("katex", "tabulator", notifications=False)


class Explorer(pn.viewable.Viewer):
    """A run one can play: `Explorer()` or `Explorer(Spec(...))`, as a cell's last line or in an app."""

    def __init__(self, spec: Spec | None = None, data: Any = None, store: Store | None = None, **params: Any) -> None:
        """`data` are rows in memory (a Split, arrays, a table), where no name in the spec brings them.

        With a `store`, runs that are kept stay there with their notes, and those in it can be looked at.
        """
        if not isinstance(spec, Spec | None) or not isinstance(store, Store | None):
            raise SettingError("An Explorer takes a Spec and a Store: give Explorer(spec), or of a run its run.spec.")
        super().__init__(**params)
        resources()
        self.spec = spec or Spec(**START)
        self.player = Player()
        self.read = None if data is None else lambda _: data
        self._opening, self._callback, self._waiting, self._ask = 0, None, "", ""
        self.status, self.pulse = Status(), Pulse()
        self.notes = Notes(store, self.status.say)
        self.transport = Transport(self.player, self.reset)
        self.pictures = Pictures(self._asked())
        self.shown = Shown(self.spec)
        self.below = folded(self)
        self.title = pn.pane.HTML("", margin=(6, 14, 0, 14), sizing_mode="stretch_width")
        self.sources = Sources(self.spec, self._choose_data, self.status.say, self._wait)
        self.choices = Controls(self.spec, self._changed)
        self.presets = pmui.Select(
            label="Begin with a question", options={"—": ""} | {one.question: key for key, one in PRESETS.items()},
            value="", searchable=True, **{**SIZE, "margin": (12, 10, 6, 10)},
        )  # fmt: skip
        self.presets.param.watch(self._choose_preset, "value")
        self._finalizer = weakref.finalize(self, self.player.close)
        self._name_run(None)
        self._open(play=False)

    @property
    def controls(self) -> list[Any]:
        """What goes into a sidebar."""
        return [self.presets, self.sources, self.choices]

    @property
    def top(self) -> list[Any]:
        """What goes beside it, and is looked at first."""
        return [self.title, self.transport, self.status, self.pictures.top]

    @property
    def rest(self) -> list[Any]:
        """What goes under that."""
        return [self.pictures.tabs, self.below]

    def adopt(self, asking: Asking) -> None:
        """Show what an address asks for beside its spec: the step, the picture, and what had to be put right."""
        link, self._ask = asking.link, asking.ask
        if link.at:
            self.player.run_to(link.at)
        self.pictures.first = link.view
        self.below.visible = "panels" not in asking.hide
        if link.corrected:
            self.status.say(" ".join(link.corrected))

    def choose(self, spec: Spec) -> None:
        """Open this spec, and set the controls to it."""
        self.spec, self.read = spec, None
        self.choices.adopt(spec)
        self.sources.adopt(spec)
        self.status.hush()
        self._open(play=False)

    def reset(self) -> None:
        """Open the run anew at step 0."""
        self._open(play=False)

    def key(self, pressed: str) -> None:
        """Do what a key stands for."""
        if pressed == "?":
            self.status.say(HELP, "info")
        self.transport.key(pressed)

    def set_dark(self, dark: bool) -> None:
        """Draw the figures for this theme."""
        with together():
            for part in (self.pictures, self.below):
                part.set_theme(theme_name(dark))

    def start(self) -> None:
        """Begin to look at the player; from now on the page follows it."""
        if self._callback is None:
            self._callback = pn.state.add_periodic_callback(self._drain, period=PERIOD)

    def close(self) -> None:
        """End the thread and free the run; for a session that is over."""
        callback, self._callback = self._callback, None
        if callback is not None and callback.running:
            callback.stop()
        self._finalizer()
        self.below.close()
        self.read = None

    def _asked(self) -> Asked:
        hand = Changing(self.player, lambda: self.transport.scrub.at, lambda: self.spec.data, self._changed)
        return Asked(self.player.show, self.player.redraw, hand.click, hand.drag, hand.edit)

    def _choose_data(self, data: Any, read: Any) -> None:
        self.read = read
        self._changed(data=data)

    def _choose_preset(self, event: Any) -> None:
        if event.new:
            asking = read(f"ask={event.new}", Spec(**START))
            self.choose(asking.link.spec)
            self.adopt(asking)

    def _changed(self, data: Any = None) -> None:
        """A person chose something else: check it, and go on with it if it holds."""
        try:
            spec = self.choices.asked(self.spec if data is None else replace(self.spec, data=data))
        except GPExplorerError as error:
            self.status.say(str(error))
            return
        if (spec.method, spec.data) != (self.spec.method, self.spec.data):
            self._ask = ""  # no longer what the question was about
        self.spec = spec
        self.status.hush()
        self._open(play=self.transport.playing)

    def _open(self, play: bool) -> None:
        self.player.open(Job(self.spec, self.read), play)

    def _wait(self, what: str) -> None:
        self._waiting = what
        self.status.busy(what)

    def settle(self) -> None:
        """Draw the start before the page is sent, where the data are as quick to read as those it opens with."""
        if self.pictures.drawn():
            return
        with self.pictures.hurried():
            self._drain(wait=SETTLE)

    def _drain(self, wait: float = 0.0) -> None:
        """Take what is new from the player; an error here becomes a sentence, never a dead page.

        All changes of a frame leave together.
        """
        if not (wait or self.pulse.free):
            return
        with together():
            self.below.update()
            frame = self.player.take(wait)
            if frame is None:
                return
            try:
                self._show(frame)
                self.pulse.send()
            except Exception as error:
                self.status.say(sentence(error, "the page was being drawn"))

    def _show(self, frame: Frame) -> None:
        if frame.opened is not None and frame.opening != self._opening:
            self._opening = frame.opening
            self._name_run(frame.opened)
            opened = frame.opened
            self.sources.describe(opened.rows, opened.test_rows, opened.inputs, opened.notes)
        since = time.monotonic() - self.player.working_since if self.player.working_since else 0.0
        self.transport.update(frame)
        self.pictures.update(frame)
        self.status.update(frame, since)
        if frame.opened is not None and frame.facts is not None:
            facts = frame.facts
            self.shown = Shown(frame.opened.spec, facts.at, self.pictures.shown, facts.undo, frame.opened.key)
        self.status.busy(frame.busy or self._waiting)

    def _name_run(self, opened: Opened | None) -> None:
        self.title.object = question(self.spec, opened.rows if opened else None, self._ask)

    def __panel__(self) -> Any:
        self.start()
        side = pn.Column(*self.controls, width=330)
        main = pn.Column(*self.top, *self.rest, self.pulse, sizing_mode="stretch_width")
        return pn.Row(side, main, sizing_mode="stretch_width")
