"""One picture of a run, for a notebook cell: static, the same bytes each time, and without a network."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from html import escape
from typing import Any

import holoviews as hv
import param
from holoviews.plotting.bokeh import OverlayPlot

from ..display import InPanel
from ..errors import SettingError, closest
from ..runs.run import Run
from . import for_run
from .base import Layers, View
from .drawing.live import Drawing, Live
from .drawing.static_svg import HEIGHT, WIDTH, figure_svg


def image_html(svg: str, title: str) -> str:
    """Return a picture as an image in HTML."""
    content = base64.b64encode(svg.encode()).decode()
    return f'<img alt="{escape(title)}" src="data:image/svg+xml;base64,{content}"/>'


class Curves(hv.Overlay):
    """An overlay of HoloViews that a notebook cell shows as SVG, also where the notebook is only read."""

    def svg(self) -> str:
        """Return the picture as SVG."""
        frames: Layers = {str(number): element.dframe() for number, element in enumerate(self)}
        return figure_svg(Live(Drawing(lambda _: self), frames).figure)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a cell shows."""
        return {"image/svg+xml": self.svg(), "text/plain": "a picture"}


hv.Store.register({Curves: OverlayPlot}, "bokeh")


class Picture(InPanel, param.Parameterized):
    """A picture of a run at one of its records.

    Each parameter may be a widget, another parameter, an expression of `.rx` or a bound function: the picture follows
    it. `pn.panel(picture)` makes a pane that is drawn again when a parameter changes.

    Parameters
    ----------
    run : Run
        The run.
    key : str, default "fit"
        Which picture: the `key` of a view that applies to the run.
    at : int, default -1
        Index of the record.
    **options : object
        Options of the picture, and `width` and `height` in pixels. A pane is as wide as its place, at most `width`.

    Raises
    ------
    SettingError
        If there is no such picture or option for this run, or the run has no record yet.

    Examples
    --------
    >>> import gpexplorer as gpx
    >>> run = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like").open()
    >>> run.finish(steps=1).reason
    'budget'
    >>> gpx.Picture(run, "convergence").svg()[:4]
    '<svg'
    """

    run = param.ClassSelector(class_=Run, allow_refs=True, doc="The run.")
    key = param.String("fit", allow_refs=True, doc="Which picture.")
    at = param.Integer(
        -1, allow_refs=True, doc="Index of the record shown; negative numbers count from the newest one."
    )
    width = param.Integer(WIDTH, bounds=(160, 4000), allow_refs=True, doc="Pixels.")
    height = param.Integer(HEIGHT, bounds=(120, 4000), allow_refs=True, doc="Pixels.")
    options = param.Dict({}, allow_refs=True, nested_refs=True, doc="Options of the picture by name.")

    def __init__(self, run: Run, key: str = "fit", at: int = -1, **options: Any) -> None:
        size = {name: options.pop(name) for name in ("width", "height") if name in options}
        super().__init__(run=run, key=key, at=at, options=options, **size)
        self.view: View = _view(self.run, self.key, self.options)

    @param.depends("run", "key", "options", watch=True)
    def _choose_view(self) -> None:
        self.view = _view(self.run, self.key, self.options)

    @property
    def layers(self) -> Layers:
        """What is drawn, as one data frame per layer in the units of the file."""
        run = self.run
        if run is None or not len(run.trace):
            raise SettingError("The run has no record to draw yet. Take a step first: run.advance().")
        return self.view.data(run, run.trace[self.at].index)

    @property
    def element(self) -> hv.Overlay | hv.Element:
        """The picture as an element of HoloViews."""
        return self.view.plot(self.layers)

    def svg(self) -> str:
        """Return the picture as SVG."""
        return figure_svg(Live(self.view, self.layers).figure, self.width, self.height)

    def html(self) -> str:
        """Return the picture as an image in HTML."""
        return image_html(self.svg(), self.view.title)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a cell shows."""
        return {"image/svg+xml": self.svg(), "text/plain": self.view.title}


def _view(run: Run, key: str, options: Mapping[str, Any]) -> View:
    """The picture with this key and these options."""
    views = {view.key: view for view in for_run(run)}
    if key not in views:
        raise SettingError(f"This run has no picture {key!r}{closest(key, list(views))}")
    view = views[key]
    for name in options:
        if name not in view.param:
            raise SettingError(f"The picture {key!r} has no option {name!r}{closest(name, list(view.param))}")
    view.param.update(**options)
    return view
