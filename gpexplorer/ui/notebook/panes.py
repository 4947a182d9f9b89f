"""Panes of pictures, runs and studies, for layouts of Panel: they follow the parameters of what they show.

Apart because they are for layouts of Panel; the widgets of this folder are for cells without a server.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import panel as pn
import param

from ...display import InPanel
from ...errors import GPExplorerError
from ...hyperparameters import Hyperparameters
from ...runs import Run
from ...views.base import Layers
from ...views.drawing.live import Live
from ...views.picture import Picture
from ..browser.callbacks import at_end, change, together
from ..browser.components import HostTheme, repaired
from ..inputs.sliders import pane_of_table
from ..styles import FigureTheme
from ..text import text
from ..widgets import WithLayout, column

HEIGHT = 320  # pixels of the curves of a study


class Pane(WithLayout):
    """What is shown of one object, drawn again when its parameters change, in the colours of the page around it.

    Parameters
    ----------
    shown : Parameterized or object
        The object; one without parameters is drawn once.
    draw : callable
        Returns what to show: HTML, and figures that know their own colours.
    picture : Picture, optional
        What the only figure shows, where the numbers of another record can take their place.
    """

    def __init__(self, shown: Any, draw: Callable[[], Sequence[str | Live]], picture: Picture | None = None) -> None:
        self._draw, self._picture = draw, picture
        self._figures: list[Live] = []
        self._theme = FigureTheme(pn.config.theme == "dark")
        self._place = column(margin=0)
        self._layout = repaired(HostTheme(self._follow_host), self._place, sizing_mode="stretch_width", margin=0)
        self.update()
        if isinstance(shown, param.Parameterized):
            watcher = shown.param.watch(self.update, [name for name in shown.param if name != "name"])
            at_end(lambda: shown.param.unwatch(watcher))

    def update(self, *events: Any) -> None:
        """Draw again; what cannot be drawn is replaced by a sentence that says why."""
        try:
            if self._figures and {event.name for event in events} == {"at"} and self._replace_numbers():
                return
            parts = self._draw()
        except GPExplorerError as error:
            parts = [f"<p>{text(str(error))}</p>"]
        self._figures = [part for part in parts if isinstance(part, Live)]
        self._place[:] = [self._pane(part) for part in parts]
        for live in self._figures:
            self._theme.add(live)

    def _replace_numbers(self) -> bool:
        """Put the numbers of another record into the figure of a picture, which keeps its zoom; False if it cannot."""
        live, layers = self._figures[0], self._picture.layers if self._picture is not None else {}
        if self._picture is None or not live.can_show(layers):
            return False
        change(live.figure.document, partial(self._put, live, layers, self._picture.saved_as))
        return True

    def _put(self, live: Live, layers: Layers, name: str) -> None:
        with together():
            live.update(layers)
            live.figure.name = name
        pn.io.push_notebook(self._place)

    def _follow_host(self, dark: bool) -> None:
        """Follow the page around it. Through this method the layout keeps the pane, and with it what it draws."""
        self._theme.set_dark(dark)

    def _pane(self, part: str | Live) -> Any:
        if isinstance(part, str):
            return pn.pane.HTML(part, sizing_mode="stretch_width", styles={"overflow-x": "auto"})
        return pn.pane.Bokeh(part.figure, sizing_mode="stretch_width", height=part.figure.height)


def pane_of(shown: InPanel) -> Any:
    """Return a pane of a public object.

    Parameters
    ----------
    shown : Picture, Run, Spec, Hyperparameters, Compare, Race or Scaling
        A picture and a study are drawn again when one of their parameters changes.

    Returns
    -------
    panel.viewable.Viewable
        A new pane: every page and every place has one of its own.
    """
    if isinstance(shown, Picture):
        return Pane(shown, lambda: [_picture(shown)], shown).__panel__()
    if isinstance(shown, Run):
        parts: list[str | Live] = [shown.table_html()]
        return Pane(shown, lambda: [*parts, *([_picture(Picture(shown))] if len(shown.trace) else [])]).__panel__()
    if isinstance(shown, Hyperparameters):
        return pane_of_table(shown)
    if hasattr(shown, "parts"):
        study: Any = shown
        return Pane(study, lambda: [_part(part) for part in study.parts()]).__panel__()
    return Pane(shown, lambda: [shown._repr_html_()]).__panel__()


def _picture(picture: Picture) -> Live:
    live = picture.live()
    live.figure.update(
        sizing_mode="stretch_width", height=picture.height, max_width=picture.width, output_backend="canvas"
    )
    return live


def _part(part: Any) -> str | Live:
    """HTML as it is, and an element as a figure."""
    if isinstance(part, str):
        return part
    live: Live = part.live()
    live.figure.update(sizing_mode="stretch_width", height=HEIGHT, output_backend="canvas")
    return live
