"""A figure whose set of layers changes, for the panels under the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import holoviews as hv
import panel as pn

from ...views.base import Layers
from ...views.drawing.live import Live

HEIGHT = 320  # pixels


class _Plotted(NamedTuple):
    """A function in the form in which `Live` takes it."""

    plot: Callable[[Layers], hv.Overlay]


class Chart(pn.viewable.Viewer):
    """A figure that is empty until `draw` is called, and is drawn again at every call.

    Pictures of a run update in place (`Live.update`) because their layers stay the same; the curves of a comparison
    are other ones each time.

    Parameters
    ----------
    height
        In pixels.
    **params
        Parameters of `panel.viewable.Viewer`.
    """

    def __init__(self, height: int = HEIGHT, **params: Any) -> None:
        super().__init__(**params)
        self._height, self._theme = height, "light"
        self._live: Live | None = None
        self._layout = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(self, layers: Layers, plot: Callable[[Layers], hv.Overlay]) -> None:
        """Draw these layers with this function."""
        self._live = Live(_Plotted(plot), layers, self._theme)
        self._live.figure.update(sizing_mode="stretch_width", height=self._height, output_backend="canvas")
        self._layout[:] = [pn.pane.Bokeh(self._live.figure, sizing_mode="stretch_width", height=self._height)]

    def clear(self) -> None:
        """Remove the figure."""
        self._live = None
        self._layout[:] = []

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""
        self._theme = theme
        if self._live is not None:
            self._live.set_theme(theme)

    def __panel__(self) -> Any:
        return self._layout
