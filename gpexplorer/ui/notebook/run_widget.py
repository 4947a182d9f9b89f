"""The player of one run in a notebook cell: buttons, a slider over the steps, and live pictures."""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param

from ...errors import SettingError, quoted
from ...runs import Run, Spec
from ...views import for_run
from ...views.picture import Picture
from ..browser.callbacks import at_end, follow, repeat, together
from ..browser.components import Pulse, repaired
from ..page import LivePage, guest_sheet, in_own_design
from ..pictures.chart import Chart
from ..playback.open_run import Frame, OpenRequest
from ..playback.player import Player
from ..playback.transport import Transport
from ..styles import THEME, FigureTheme
from ..text import text
from ..widgets import column
from .shown_in_cells import mimebundle

PERIOD = 60  # milliseconds between two looks for a new frame
FIGURE_HEIGHT = 300  # pixels
CELL_HEIGHT = FIGURE_HEIGHT + 120  # pixels: the buttons and a message above the pictures
OPENING_WAIT = 3.0  # seconds that a new player waits at most for its first record
DEFAULT_KEYS = ("fit", "convergence")  # pictures where none is named


class RunWidget(LivePage):
    """A player of a run.

    Parameters
    ----------
    run : Run
        A run that was opened from a spec. The widget takes its steps in a thread of its own.
    keys : str or sequence of str
        Which pictures; without any, the fit and the convergence where the run has them.
    **params : object
        `at` and `playing`, also as widgets or other references that the player follows, and the parameters of
        `panel.viewable.Viewer`.

    Raises
    ------
    SettingError
        If the run was made without a spec, or has no such picture.

    Examples
    --------
    >>> import gpexplorer as gpx
    >>> run = gpx.Spec("cholqr", {"num_inducing": 8}, data="snelson-like").open()
    >>> player = run.widget("fit")  # as the last line of a cell: player
    >>> player.close()
    """

    at = param.Integer(0, bounds=(0, None), doc="Index of the record shown. Setting it shows another record.")
    last = param.Integer(0, bounds=(0, None), doc="Index of the newest record.")
    playing = param.Boolean(False, doc="Whether the run takes steps. Setting it plays or pauses.")
    record = param.Parameter(None, doc="The record shown.")

    @in_own_design()
    def __init__(self, run: Run, keys: str | Sequence[str] = (), **params: Any) -> None:
        if not isinstance(run, Run):
            raise SettingError(f"A RunWidget plays a run, and not {quoted(run)}: give what Spec.open returns.")
        if not isinstance(run.spec, Spec):
            raise SettingError("A run made without a Spec has no player: open it with Spec.open.")
        begin = follow(self, {name: params.pop(name) for name in ("at", "playing") if name in params})
        super().__init__(**params)
        self._run, self._theme = run, FigureTheme()
        self._player = Player()
        self._pulse = Pulse(self._drain)
        self._finalizer = weakref.finalize(self, self._player.close)
        if not len(run.trace):
            run.advance()
        keys = [keys] if isinstance(keys, str) else keys or _default_keys(run)
        self._views = {key: Picture(run, key).view for key in keys}
        self._charts = {key: Chart(self._theme, FIGURE_HEIGHT) for key in self._views}
        self._transport = Transport(self._player, lambda: self._player.seek(0))
        self._message = pn.pane.HTML("", sizing_mode="stretch_width")
        self._player.open(OpenRequest(run.spec, given=run))
        self._player.show(self._views)
        # Wait until the thread has opened the run: before that, it would ignore a position that is set
        end = time.monotonic() + OPENING_WAIT
        while self.record is None and time.monotonic() < end:
            self.update(0.1)
        self.param.watch(self._show_other, ["at", "playing"])
        self.param.update(**begin)

    def close(self) -> None:
        """End the thread of the player. The run stays as it is."""
        self._stop_following()
        self._finalizer()
        self._end_widgets("This player is closed. Run the cell again for a new one.")

    def pause(self) -> None:
        """Stop taking steps after the step under way."""
        self._player.pause()

    def update(self, wait: float = 0.0) -> bool:
        """Take the newest frame of the player and show it; a cell calls this by itself.

        Parameters
        ----------
        wait : float, default 0.0
            Seconds to wait at most for a frame.

        Returns
        -------
        bool
            Whether there was one.
        """
        frame = self._player.take(wait)
        if frame is None:
            return False
        with together():
            self._show(frame)
        return True

    def _drain(self) -> None:
        if self._pulse.free and self.update():
            self._pulse.send()

    def _show(self, frame: Frame) -> None:
        self._transport.update(frame)
        self._message.object = text(frame.notice[1])
        at = self.at if frame.numbers is None else min(frame.numbers.at, len(self._run.trace) - 1)
        for key, layers in frame.layers.items():
            if any(len(frame_of_layer) for frame_of_layer in layers.values()):
                view = self._views[key]
                self._charts[key].show(view, dict(layers), view.saved_as(self._run.method.key, at))
        if frame.numbers is not None:
            shown = {"last": frame.numbers.last, "at": at, "record": self._run.trace[at]}
            self._follow_screen(**shown, playing=self._player.playing)

    def _show_other(self, *events: Any) -> None:
        """Carry out what was set from outside."""
        if self._is_following:
            return
        for event in events:
            if event.name == "at":
                self._player.seek(event.new)
            elif event.new:
                self._player.play()
            else:
                self._player.pause()

    def _page(self) -> Any:
        """Build the page of a cell."""
        dark = self._begin_page()
        parts = repaired(*self._parts(), sizing_mode="stretch_width")
        page = pmui.Paper(parts, elevation=0, dark_theme=dark, theme_config=THEME, sizing_mode="stretch_width")
        page.param.watch(lambda event: self._theme.set_dark(event.new), "dark_theme")
        self._theme.set_dark(dark)
        at_end(self.leave)
        return page

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """What a notebook cell shows: the player, and its first picture for a saved notebook."""
        key = next(iter(self._views))
        return mimebundle(self, self._page, "Player", CELL_HEIGHT, Picture(self._run, key).svg())

    def __panel__(self) -> Any:
        return guest_sheet(self._parts(), self._theme.set_dark)

    def _parts(self) -> list[Any]:
        """What the player consists of, from top to bottom."""
        if self._stop is None:
            self._player.redraw()
            self._stop = repeat(self._drain, PERIOD)
        places = [column(chart, height=FIGURE_HEIGHT) for chart in self._charts.values()]
        figures = pn.Row(*places, sizing_mode="stretch_width")
        return [self._transport, self._message, figures, self._pulse]


def _default_keys(run: Run) -> list[str]:
    keys = [view.key for view in for_run(run)]
    return [key for key in DEFAULT_KEYS if key in keys] or keys[:1]
