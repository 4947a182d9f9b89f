"""Play, pause, step, step back, scrub, reset, stop and speed: buttons that give orders and show what came of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..text.number_format import named
from .messages import Frame
from .player import Player
from .scrub_bar import Scrub

SPEEDS = {
    "1 step a second": 1.0,
    "4 steps a second": 4.0,
    "10 steps a second": 10.0,
    "As fast as it goes": float("inf"),
}
DEFAULT = 10.0
PLAY = "play or pause (space)"


class Transport(pn.viewable.Viewer):
    """The bar under the title. `reset` opens the run anew."""

    def __init__(self, player: Player, reset: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._player, self._reset = player, reset
        self.playing = False
        self._make_buttons()
        self.scrub = Scrub(self._scrubbed, margin=(6, 16), min_width=180, styles={"flex": "1 1 180px"})
        self.speed = pmui.Select(
            label="Speed", options=SPEEDS, value=DEFAULT, size="small", width=204, margin=(10, 8, 4, 8),
            description="How fast to play at most; heavy steps take the time they take.",
        )  # fmt: skip
        self.speed.param.watch(lambda event: player.speed(event.new), "value")
        player.speed(DEFAULT)
        self._layout = pmui.FlexBox(
            pn.Row(self.play, self.back, self.forward, self.stop, self.reset, self.undo, margin=0),
            self.scrub,
            self.speed,
            align_items="center",
            flex_wrap="wrap",
            sizing_mode="stretch_width",
        )

    def _make_buttons(self) -> None:
        self.play = pmui.Button(
            **named("Play", PLAY),
            icon="play_arrow", color="primary", variant="contained", width=116, margin=(6, 6, 6, 10),
            on_click=lambda _: self.toggle(), description_delay=900,
        )  # fmt: skip
        self.back = _icon("skip_previous", "Step back (left arrow)", self._player.back)
        self.forward = _icon("skip_next", "One step (right arrow)", self._player.step)
        self.stop = _icon("stop", "Stop the run before its next step (S)", self._player.stop)
        self.undo = _icon("undo", "Take back the last click (U)", self._undo)
        self.undo.disabled = True
        self.reset = _icon("replay", "Start again from step 0 (R)", self._reset)

    def toggle(self) -> None:
        """Play, or pause."""
        self._player.pause() if self._player.playing else self._player.play()
        self._show_playing(self._player.playing)

    def key(self, name: str) -> None:
        """Do what this key stands for."""
        orders = {" ": self.toggle, "ArrowLeft": self._player.back, "ArrowRight": self._player.step}
        orders |= {"r": self._reset, "s": self._player.stop, "u": self._undo}
        if name in orders:
            orders[name]()

    def update(self, frame: Frame) -> None:
        """Show where the run is."""
        self._show_playing(self._player.playing)
        facts = frame.facts
        if facts is None:
            return
        self.scrub.param.update(at=facts.at, last=facts.last)
        self.back.disabled, self.stop.disabled = facts.at < 1, not self.playing
        self.undo.disabled = not facts.undo

    def _show_playing(self, playing: bool) -> None:
        if playing != self.playing:
            self.playing = playing
            name, icon = ("Pause", "pause") if playing else ("Play", "play_arrow")
            self.play.param.update(icon=icon, **named(name, PLAY))

    def _undo(self) -> None:
        self._player.change(lambda stage: stage.undo())

    def _scrubbed(self, at: int) -> None:
        self._player.seek(at)
        self._show_playing(False)

    def __panel__(self) -> Any:
        return self._layout


def _icon(icon: str, help_: str, order: Callable[[], None]) -> pmui.IconButton:
    return pmui.IconButton(
        icon=icon,
        description=help_,
        description_delay=900,
        on_click=lambda _: order(),
        size="medium",
        margin=(4, 2),
        color="primary",
    )
