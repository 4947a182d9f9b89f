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
from ...views.drawing.live import Drawing, Live, Plotted
from ..styles import FigureTheme, beside
from ..widgets import WithLayout, column

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
    legend_margin : tuple of int, optional
        Of the legend as a line above the figure; without it the legend is part of the figure.
    """

    def __init__(self, theme: FigureTheme, height: int = HEIGHT, legend_margin: tuple[int, int] | None = None) -> None:
        super().__init__(theme, margin=legend_margin or 0)
        self._height = height
        self._above = [] if legend_margin is None else [self.legend]
        self._layout = column(*self._above, margin=0)

    def draw(self, layers: Layers, plot: Callable[[Layers], hv.Overlay], height: int | None = None) -> None:
        """Draw these layers with this function, in another height if one is given."""
        self._draw(Drawing(plot), layers, height or self._height)

    def show(self, view: Plotted, layers: Layers) -> None:
        """Show these layers of a view: in the figure that was drawn last, or in the first one."""
        if self._live is None:
            self._draw(view, layers, self._height)
        else:
            self._live.update(layers)

    def _draw(self, view: Plotted, layers: Layers, height: int) -> None:
        self._live = live = Live(view, layers, self._theme.name)
        live.figure.update(sizing_mode="stretch_width", height=height, output_backend="canvas")
        if self._above:
            live.leave_words_to_page()
        self.legend.fill(live.legend)
        self._layout[:] = [*self._above, pn.pane.Bokeh(live.figure, sizing_mode="stretch_width", height=height)]
