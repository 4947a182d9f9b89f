"""Figures of the panels, and the words above a figure: its legend, on which a click hides a layer, and its caption."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import holoviews as hv
import panel as pn
import param

from ...views.base import Layers
from ...views.drawing.legend import Entry
from ...views.drawing.live import Drawing, Live, Plotted
from ..browser.components import Heard, is_index
from ..styles import FigureTheme, beside
from ..widgets import WithLayout, column

HEIGHT = 320  # pixels


class LegendLine(Heard):
    """Words in one or two lines, each with the sign and colour of its layer.

    A message is the position of the entry that a person clicked.
    """

    entries = param.List(default=[], doc="Label, sign, colour, opacity and visibility of each entry.")
    caption = param.String("", doc="What the numbers of this step say.")
    number = param.String("", doc="The beginning of the caption where that is what the picture is about: it is large.")

    _esm = beside(__file__, "legend_line.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "legend_line.css")]

    def fill(self, entries: Sequence[Entry]) -> None:
        """Show these entries."""
        self.entries = [list(entry) for entry in entries]

    def _accepts(self, msg: Any) -> bool:
        return is_index(msg, len(self.entries))


class WithFigure(WithLayout):
    """A part of a page with one figure, and the legend of the figure as a line above it.

    Parameters
    ----------
    theme : FigureTheme
        The theme of the page.
    **look : object
        Parameters of the legend.
    """

    def __init__(self, theme: FigureTheme, **look: Any) -> None:
        self.legend = LegendLine(self.toggle, sizing_mode="stretch_width", **look)
        self._theme = theme
        self._live: Live | None = None
        theme.add(self)

    def toggle(self, entry: int) -> None:
        """Hide the layers of an entry of the legend, or show them again."""
        if self._live is not None:
            self._live.toggle(entry)
            self.legend.fill(self._live.legend)

    def set_theme(self, theme: str) -> None:
        """Use the colours of "light" or "dark"."""
        if self._live is not None:
            self._live.set_theme(theme)
            self.legend.fill(self._live.legend)


class Chart(WithFigure):
    """A figure in a column as wide as the page, which is empty until something is drawn.

    Pictures of a run are updated in place (`show`) because their layers stay the same; the curves of a comparison are
    other ones each time (`draw`).

    Parameters
    ----------
    theme : FigureTheme
        The theme of the page.
    height : int, optional
        In pixels.
    legend_margin : tuple of int, default (0, 12)
        Of the legend, a line above the figure.
    """

    def __init__(self, theme: FigureTheme, height: int = HEIGHT, legend_margin: tuple[int, int] = (0, 12)) -> None:
        super().__init__(theme, margin=legend_margin)
        self._height = height
        self._layout = column(self.legend, margin=0)

    def draw(self, layers: Layers, plot: Callable[[Layers], hv.Overlay], name: str, height: int | None = None) -> None:
        """Draw these layers with this function, in another height if one is given; a saved picture has the name."""
        self._draw(Drawing(plot), layers, name, height or self._height)

    def show(self, view: Plotted, layers: Layers, name: str) -> None:
        """Show these layers of a view, in the same figure from the second time on; a saved picture has the name."""
        if self._live is None:
            self._draw(view, layers, name, self._height)
        else:
            self._live.update(layers)
            self._live.figure.name = name
            self.legend.fill(self._live.legend)

    def share_axes(self, other: Chart) -> None:
        """Give both figures the same ends of each axis that shows the same quantity."""
        if self._live is not None and other._live is not None:
            self._live.share_axes(other._live)

    def _draw(self, view: Plotted, layers: Layers, name: str, height: int) -> None:
        self._live = live = Live(view, layers, self._theme.name, name)
        live.figure.update(sizing_mode="stretch_width", height=height, output_backend="canvas")
        live.leave_words_to_page()
        self.legend.fill(live.legend)
        self._layout[:] = [self.legend, pn.pane.Bokeh(live.figure, sizing_mode="stretch_width", height=height)]
