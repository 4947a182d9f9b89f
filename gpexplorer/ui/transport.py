"""Play, pause, step, step back, scrub, reset, stop and speed: buttons that give orders and show what came of them."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from .player import Frame, Player

SPEEDS = {"1 step a second": 1.0, "4 steps a second": 4.0, "10 steps a second": 10.0, "As fast as it goes": float("inf")}
DEFAULT = 10.0
ECHO = 3.0  # seconds within which a browser may send back a value we set


class Transport(pn.viewable.Viewer):
    """The bar under the title. `reset` opens the run anew."""

    def __init__(self, player: Player, reset: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._player, self._reset = player, reset
        self._quiet, self._asked = False, -1
        self._sent: deque[tuple[float, int]] = deque(maxlen=100)
        self.playing = False
        self._make_buttons()
        self.scrub = pmui.IntSlider(
            label="Step shown", value=0, start=0, end=1, disabled=True, size="small", min_width=180, margin=(4, 16),
            sizing_mode="stretch_width", description="Drag to see any earlier step; Play goes on from the newest.",
        )  # fmt: skip
        self.speed = pmui.Select(
            label="Speed", options=SPEEDS, value=DEFAULT, size="small", width=180, margin=(4, 8),
            description="How fast to play at most; heavy steps take the time they take.",
        )  # fmt: skip
        self.scrub.param.watch(self._dragged, "value")
        self.scrub.param.watch(self._scrubbed, "value_throttled")
        self.speed.param.watch(lambda event: player.speed(event.new), "value")
        player.speed(DEFAULT)
        self._layout = pmui.FlexBox(
            pmui.Row(self.play, self.back, self.forward, self.stop, self.reset, margin=0),
            self.scrub,
            self.speed,
            align_items="center",
            flex_wrap="wrap",
            sizing_mode="stretch_width",
        )

    def _make_buttons(self) -> None:
        self.play = pmui.Button(
            label="Play", icon="play_arrow", color="primary", variant="contained", width=116, margin=(6, 6, 6, 10),
            on_click=lambda _: self.toggle(), description="Play or pause (space)", description_delay=900,
        )  # fmt: skip
        self.back = _icon("skip_previous", "Step back (left arrow)", self._player.back)
        self.forward = _icon("skip_next", "One step (right arrow)", self._player.step)
        self.stop = _icon("stop", "Stop the run before its next step (S)", self._player.stop)
        self.reset = _icon("replay", "Start again from step 0 (R)", self._reset)

    def toggle(self) -> None:
        """Play, or pause."""
        self._player.pause() if self.playing else self._player.play()
        self._show_playing(not self.playing)

    def key(self, name: str) -> None:
        """Do what this key stands for."""
        orders = {" ": self.toggle, "ArrowLeft": self._player.back, "ArrowRight": self._player.step}
        orders |= {"r": self._reset, "s": self._player.stop}
        if name in orders:
            orders[name]()

    def update(self, frame: Frame) -> None:
        """Show where the run is, without taking a scrub out of a person's hand."""
        self._show_playing(frame.playing)
        facts = frame.facts
        if facts is None:
            return
        self._quiet = True
        settled = self._asked in (-1, facts.at)
        value = facts.at if settled else self.scrub.value
        self._sent.append((time.monotonic(), value))
        self.scrub.param.update(end=max(facts.last, 1), disabled=facts.last < 1, value=min(value, max(facts.last, 1)))
        self._asked = -1 if settled else self._asked
        self._quiet = False
        self.back.disabled, self.stop.disabled = facts.at < 1, not frame.playing

    def _show_playing(self, playing: bool) -> None:
        if playing != self.playing:
            self.playing = playing
            names = ("Pause", "pause") if playing else ("Play", "play_arrow")
            self.play.param.update(label=names[0], icon=names[1])

    def _dragged(self, event: Any) -> None:
        """A value on its way, unless it is one of ours that the browser sends back."""
        ours = {value for when, value in self._sent if time.monotonic() - when < ECHO}
        if event.new not in ours:
            self._scrubbed(event)

    def _scrubbed(self, event: Any) -> None:
        if not self._quiet:
            self._asked = self._player.seek(int(event.new))
            self._show_playing(False)

    def __panel__(self) -> Any:
        return self._layout


def _icon(icon: str, help_: str, order: Callable[[], None]) -> pmui.IconButton:
    return pmui.IconButton(
        icon=icon, description=help_, description_delay=900, on_click=lambda _: order(), size="medium", margin=(4, 2), color="primary"
    )
