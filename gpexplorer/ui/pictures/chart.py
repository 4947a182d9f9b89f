"""A figure of layers that come and go, for the panels under the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import holoviews as hv
import panel as pn

from ...views.base import Layers
from ...views.drawing.live import Live

HEIGHT = 320


class Chart(pn.viewable.Viewer):
    """Empty until something is shown; drawn anew each time, as its curves are others each time."""

    def __init__(self, height: int = HEIGHT, **params: Any) -> None:
        super().__init__(**params)
        self._height, self._theme = height, "light"
        self._live: Live | None = None
        self._layout = pn.Column(sizing_mode="stretch_width", margin=0)

    def draw(self, layers: Layers, plot: Callable[[Layers], hv.Overlay]) -> None:
        """Draw these layers."""
        self._live = Live(_Plotted(plot), layers, self._theme)
        self._live.figure.update(sizing_mode="stretch_width", height=self._height, output_backend="canvas")
        self._layout[:] = [pn.pane.Bokeh(self._live.figure, sizing_mode="stretch_width", height=self._height)]

    def clear(self) -> None:
        """Show nothing."""
        self._live = None
        self._layout[:] = []

    def set_theme(self, theme: str) -> None:
        """Light or dark."""
        self._theme = theme
        if self._live is not None:
            self._live.set_theme(theme)

    def __panel__(self) -> Any:
        return self._layout


class _Plotted:
    """What `Live` draws."""

    def __init__(self, plot: Callable[[Layers], hv.Overlay]) -> None:
        self.plot = plot
