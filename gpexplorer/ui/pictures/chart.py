"""Figures of the panels, and the words above a figure: its legend, on which a click hides a layer, and its caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import holoviews as hv
import panel as pn
import param
from panel.custom import JSComponent

from ...views.base import Layers
from ...views.drawing.legend import Entry
from ...views.drawing.live import Drawing, Live
from ..styles import beside
from ..widgets import WithLayout

HEIGHT = 320  # pixels


class LegendLine(JSComponent):
    """Words in one or two lines, each with the sign and colour of its layer.

    Parameters
    ----------
    on_toggle : callable
        Called with the position of the entry that a person clicked.
    **params : object
        Parameters of `panel.custom.JSComponent`.
    """

    entries = param.List(default=[], doc="Label, sign, colour, opacity and visibility of each entry.")
    caption = param.String("", doc="What the numbers of this step say.")

    _esm = beside(__file__, "legend_line.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "legend_line.css")]

    def __init__(self, on_toggle: Callable[[int], None], **params: Any) -> None:
        super().__init__(**params)
        self._on_toggle = on_toggle

    def fill(self, entries: Sequence[Entry]) -> None:
        """Show these entries."""
        listed = [list(entry) for entry in entries]
        if listed != self.entries:
            self.entries = listed

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, int) and not isinstance(msg, bool) and 0 <= msg < len(self.entries):
            self._on_toggle(msg)


class Chart(WithLayout):
    """A figure that is empty until `draw` is called, and is drawn again at every call.

    Pictures of a run update in place (`Live.update`) because their layers stay the same; the curves of a comparison
    are other ones each time.

    Parameters
    ----------
    height : int, optional
        In pixels.
    legend_margin : tuple of int, optional
        Of the legend as a line above the figure; without it the legend is part of the figure.
    **params : object
        Parameters of `panel.viewable.Viewer`.
    """

    def __init__(self, height: int = HEIGHT, legend_margin: tuple[int, int] | None = None, **params: Any) -> None:
        super().__init__(**params)
        self._height, self._theme = height, "light"
        self.legend = LegendLine(self.toggle, margin=legend_margin or 0, sizing_mode="stretch_width")
        self._above = [] if legend_margin is None else [self.legend]
        self._live: Live | None = None
        self._layout = pn.Column(*self._above, sizing_mode="stretch_width", margin=0)

    def draw(self, layers: Layers, plot: Callable[[Layers], hv.Overlay], height: int | None = None) -> None:
        """Draw these layers with this function, in another height if one is given."""
        height = height or self._height
        self._live = Live(Drawing(plot), layers, self._theme)
        self._live.figure.update(sizing_mode="stretch_width", height=height, output_backend="canvas")
        if self._above:
            self._live.leave_words_to_page()
        self.legend.fill(self._live.legend)
        self._layout[:] = [*self._above, pn.pane.Bokeh(self._live.figure, sizing_mode="stretch_width", height=height)]

    def toggle(self, entry: int) -> None:
        """Hide the layers of an entry of the legend, or show them again."""
        if self._live is not None:
            self._live.toggle(entry)
            self.legend.fill(self._live.legend)

    def update(self, layers: Layers) -> None:
        """Show other numbers in the figure that was drawn last."""
        if self._live is not None:
            self._live.update(layers)

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""
        self._theme = theme
        if self._live is not None:
            self._live.set_theme(theme)
            self.legend.fill(self._live.legend)
