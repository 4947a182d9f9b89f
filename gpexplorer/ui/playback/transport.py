"""Play, pause, step, step back, scrub, reset, stop, undo and speed.

The controls send requests to the player; what they show comes from its frames.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import panel as pn
import panel_material_ui as pmui
import param

from ..browser.components import Heard, is_number
from ..styles import beside
from ..text import named
from ..widgets import WITH_TOOLTIP, WithLayout, button, row, select
from .open_run import Frame
from .player import Player

SPEEDS = {"1": 1.0, "4": 4.0, "10": 10.0, "no limit": float("inf")}
DEFAULT_SPEED = 10.0  # steps per second
SPEED_HELP = "The greatest speed of playing; a step that takes longer is not cut short."
PLAY_HELP = "play or pause (space)"


class Scrub(Heard):
    """A slider over the steps taken so far, which sends a message only when a person moves it.

    A slider whose value is synchronised in both directions sends back what the page set a moment ago. That reads as
    if a person had moved it, and pauses the run.
    """

    at = param.Integer(0, bounds=(0, None), doc="Step shown.")
    last = param.Integer(0, bounds=(0, None), doc="Newest step.")

    _esm = beside(__file__, "scrub.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "scrub.css")]

    def _accepts(self, msg: Any) -> bool:
        return is_number(msg) and 0 <= msg <= self.last


class Transport(WithLayout):
    """The bar of buttons under the title.

    Parameters
    ----------
    player : Player
        Receives the requests.
    reset : callable
        Opens the run again at step 0.
    undo : callable, optional
        Takes back the last change by hand. Without it there is none to take back.
    """

    def __init__(self, player: Player, reset: Callable[[], None], undo: Callable[[], None] = lambda: None) -> None:
        self._player, self._reset, self._undo = player, reset, undo
        self.playing = False
        look: dict[str, Any] = {"variant": "contained", "width": 104, "margin": (4, 6, 4, 10), "description_delay": 900}
        self.play = button("Play", "play_arrow", self.toggle, PLAY_HELP, **look)
        self.back = _icon_button("skip_previous", "Step back (left arrow)", player.back)
        self.forward = _icon_button("skip_next", "One step (right arrow)", player.step)
        self.stop = _icon_button("stop", "Stop the run before its next step (S)", player.stop)
        self.undo = _icon_button("undo", "Take back the last click (U)", undo)
        self.undo.disabled = True
        self.reset = _icon_button("replay", "Start again from step 0 (R)", reset)
        self.scrub = Scrub(self._scrub_to, margin=(4, 12), min_width=150, styles={"flex": "1 1 150px"})
        look = {"margin": (8, 8, 2, 4), "description": SPEED_HELP}
        self.speed = select("Steps per second", SPEEDS, DEFAULT_SPEED, 156, **look)
        self.speed.param.watch(lambda event: player.speed(event.new), "value")
        player.speed(DEFAULT_SPEED)
        look = {"flex": "0 0 auto", "flex-wrap": "wrap", "max-width": "100%"}
        buttons = pn.Row(self.play, self.back, self.forward, self.stop, self.reset, self.undo, margin=0, styles=look)
        self._layout = row(buttons, self.scrub)

    def toggle(self) -> None:
        """Play if paused, pause if playing; nothing where the chosen run could not be opened."""
        if self.play.disabled:
            return
        self._player.pause() if self._player.playing else self._player.play()
        self._show_playing(self._player.playing)

    def key(self, name: str) -> None:
        """Carry out the command of this key; other keys do nothing."""
        step = self._player.step if not self.forward.disabled else lambda: None
        commands = {" ": self.toggle, "ArrowLeft": self._player.back, "ArrowRight": step}
        commands |= {"r": self._reset, "s": self._player.stop, "u": self._undo}
        if name in commands:
            commands[name]()

    def update(self, frame: Frame) -> None:
        """Show where the run is."""
        self._show_playing(self._player.playing)
        numbers = frame.numbers
        self.play.disabled = self.forward.disabled = bool(frame.failed)  # a run before it is not the chosen one
        if frame.failed and frame.run is None:
            self.back.disabled = self.stop.disabled = self.undo.disabled = True
            self.scrub.param.update(at=0, last=0)
        elif numbers is not None:
            self.scrub.param.update(at=numbers.at, last=numbers.last)
            self.back.disabled, self.stop.disabled = numbers.at < 1, not self.playing
            self.undo.disabled = not numbers.can_undo

    def _show_playing(self, playing: bool) -> None:
        self.playing = playing
        name, icon = ("Pause", "pause") if playing else ("Play", "play_arrow")
        self.play.param.update(icon=icon, **named(name, PLAY_HELP))

    def _scrub_to(self, at: float) -> None:
        self._player.seek(int(at))
        self._show_playing(False)


def _icon_button(icon: str, description: str, command: Callable[[], None]) -> pmui.IconButton:
    look = {"size": "medium", "margin": (2, 1), "color": "primary", **WITH_TOOLTIP}
    words = {"icon": icon, "description": description, "description_delay": 900}
    return pmui.IconButton(**words, **look, on_click=lambda _: command())
