"""A figure whose set of layers changes, for the panels under the run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import holoviews as hv
import panel as pn

from ...views.base import Layers
from ...views.drawing.legend import Entry
from ...views.drawing.live import Drawing, Live

HEIGHT = 320  # pixels


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

    def draw(
        self, layers: Layers, plot: Callable[[Layers], hv.Overlay], height: int | None = None, legend: bool = True
    ) -> None:
        """Draw these layers with this function, in another height if one is given.

        Without a legend in the figure, the page writes `legend` above it.
        """
        height = height or self._height
        self._live = Live(Drawing(plot), layers, self._theme)
        self._live.figure.update(sizing_mode="stretch_width", height=height, output_backend="canvas")
        if not legend:
            self._live.leave_words_to_page()
        self._layout[:] = [pn.pane.Bokeh(self._live.figure, sizing_mode="stretch_width", height=height)]

    @property
    def legend(self) -> list[Entry]:
        """The entries of the legend."""
        return self._live.legend if self._live is not None else []

    def toggle(self, entry: int) -> None:
        """Hide the layers of an entry of the legend, or show them again."""
        if self._live is not None:
            self._live.toggle(entry)

    def update(self, layers: Layers) -> None:
        """Show other numbers in the figure that was drawn last."""
        if self._live is not None:
            self._live.update(layers)

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""
        self._theme = theme
        if self._live is not None:
            self._live.set_theme(theme)

    def __panel__(self) -> Any:
        return self._layout
