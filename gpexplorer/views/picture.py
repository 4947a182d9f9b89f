"""One picture of a run, for a notebook cell: static, the same bytes each time, and without a network."""

from __future__ import annotations

import base64
from html import escape
from typing import Any

import holoviews as hv
import param

from ..errors import SettingError, closest
from ..runs.run import Run
from . import for_run
from .base import Layers, View
from .drawing.live import Live
from .drawing.static_svg import HEIGHT, WIDTH, figure_svg


class Svg(str):
    """A picture as SVG, which a notebook cell shows as a picture."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a cell shows."""
        return {"image/svg+xml": str(self), "text/plain": "a picture"}


class Picture(param.Parameterized):
    """A picture of a run at one of its records.

    Parameters
    ----------
    run : Run
        The run.
    key : str, default "fit"
        Which picture: the `key` of a view that applies to the run.
    at : int, default -1
        Index of the record.
    **options : object
        Options of the picture, and `width` and `height` in pixels.

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

    at = param.Integer(-1, doc="Index of the record shown; negative numbers count from the newest one.")
    width = param.Integer(WIDTH, bounds=(160, 4000), doc="Pixels.")
    height = param.Integer(HEIGHT, bounds=(120, 4000), doc="Pixels.")

    def __init__(self, run: Run, key: str = "fit", at: int = -1, **options: Any) -> None:
        size = {name: options.pop(name) for name in ("width", "height") if name in options}
        super().__init__(at=at, **size)
        self.run, self.view = run, _view(run, key)
        for name in options:
            if name not in self.view.param:
                raise SettingError(f"The picture {key!r} has no option {name!r}{closest(name, list(self.view.param))}")
        self.view.param.update(**options)

    @property
    def layers(self) -> Layers:
        """What is drawn, as one data frame per layer in the units of the file."""
        if not len(self.run.trace):
            raise SettingError("The run has no record to draw yet. Take a step first: run.advance().")
        return self.view.data(self.run, self.run.trace[self.at].index)

    @property
    def element(self) -> hv.Overlay | hv.Element:
        """The picture as an element of HoloViews."""
        return self.view.plot(self.layers)

    def svg(self) -> str:
        """Return the picture as SVG."""
        return figure_svg(Live(self.view, self.layers).figure, self.width, self.height)

    def html(self) -> str:
        """Return the picture as an image in HTML."""
        content = base64.b64encode(self.svg().encode()).decode()
        return f'<img alt="{escape(self.view.title)}" src="data:image/svg+xml;base64,{content}"/>'

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """What a cell shows."""
        return {"image/svg+xml": self.svg(), "text/plain": self.view.title}


def _view(run: Run, key: str) -> View:
    views = {view.key: view for view in for_run(run)}
    if key not in views:
        raise SettingError(f"This run has no picture {key!r}{closest(key, list(views))}")
    return views[key]
