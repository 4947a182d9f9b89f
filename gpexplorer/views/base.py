"""The base class of all pictures, and the functions by which a picture names its layers.

A picture has two halves. `data` turns a record of a run into one data frame per layer, in the units of the data file;
tensors end here. `plot` turns these frames into a HoloViews element and knows nothing of runs. After the first
drawing only the frames are replaced (see `drawing/live.py`).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ..problem import Step
from ..runs.run import Run
from .drawing.palette import SEQUENTIAL

SHORT_NAME = 18  # letters: two names of this length fit beside each other in a picture on a telephone
Layers = dict[str, pd.DataFrame]  # name of the layer -> its frame
registry: dict[str, type[View]] = {}


class View(param.ParameterizedABC):
    """One picture of a run at one of its records.

    A subclass that has a `key` is registered; its public parameters appear on the page as options of the picture.

    Attributes
    ----------
    key : str
        Name in links and in the registry. A class without a key is a base class and is not registered.
    title : str
        Heading of the picture.
    help : str
        One sentence or question that says what to look for.
    family : str
        The only method family the picture applies to, by the default `applies`; empty for all families.
    needs : type
        What the method must be able to do, by the protocols in `methods.capabilities`; by default any method will do.
    order : int
        Position on the page: smaller numbers come first. The first two pictures are always visible.
    hero : bool
        Whether this picture shows what its family is about. The first such picture of a run stands between the first
        two; where there is none, the next one in order does.
    editable : bool
        Whether the picture shows the training rows in the units of the file, so that a person can drag inducing
        points and add or remove rows in it.
    click : str
        A sentence that says what a click does; empty where a click does nothing.
    patience : float
        Seconds after which `data` may return what it has computed so far, in a view that implements `unfinished`.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    help: ClassVar[str] = ""
    family: ClassVar[str] = ""
    needs: ClassVar[type] = object
    order: ClassVar[int] = 100
    hero: ClassVar[bool] = False
    editable: ClassVar[bool] = False
    click: ClassVar[str] = ""
    patience: float = math.inf

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.key:
            return
        if cls.key in registry:
            raise TypeError(f"view key {cls.key!r} is taken by {registry[cls.key].__qualname__}")
        registry[cls.key] = cls

    def applies(self, run: Run) -> bool:
        """Return whether this picture means something for this run."""
        return self.family in ("", run.method.family) and isinstance(run.method, self.needs)

    @abstractmethod
    def data(self, run: Run, at: int) -> Layers:
        """Compute the frames of one record, in the units of the data file.

        It may run in a worker thread, so it must not touch a figure or a widget.

        Parameters
        ----------
        run : Run
            The run.
        at : int
            Index of the record in `run.trace`.

        Returns
        -------
        dict of str to DataFrame
            One frame per layer. The columns x and y (also lower, upper, x0, x1, y0, y1, value) are what is drawn; a
            column "row" with numbers of training rows links the layer to other pictures. `attrs` may contain
            "xlabel", "ylabel" and "title", "label" for a name in the legend that depends on the run, "loose" for a
            layer that the axes need not contain, "extent" and "colours" for the ends of the vertical axis and of the
            colour scale where they do not follow the values, and "map" where both axes are inputs, so that a unit is
            as long on both.
        """

    def unfinished(self, run: Run, at: int) -> bool:
        """Return whether `data` gave a part only, and computes more of it when it is called again."""
        return False

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """Return the step that a click at (x, y), in the units of the axes, asks for at record `at`; None for none."""
        return None

    def hyperparameters_clicked(self, run: Run, at: int, x: float, y: float) -> dict[str, float]:
        """Return the hyperparameters, by name and in the units of the file, that a click sets; none by default."""
        return {}

    @abstractmethod
    def plot(self, layers: Layers) -> hv.Overlay | hv.Element:
        """Draw these frames, each element wrapped in `layer`."""


class BrokenView(View):
    """Takes the place of a view that raised before it could say whether it applies.

    Parameters
    ----------
    kind : type
        Class of the view.
    error : Exception
        What it raised.
    """

    def __init__(self, kind: type[View], error: Exception) -> None:
        super().__init__()
        self.error = error
        for name in ("key", "title", "help", "family", "order", "hero"):
            setattr(self, name, getattr(kind, name))

    def data(self, run: Run, at: int) -> Layers:
        """Raise the error of the view."""
        raise self.error

    def plot(self, layers: Layers) -> hv.Overlay | hv.Element:
        """Raise the error of the view."""
        raise self.error


def layer(element: hv.Element, name: str, **style: Any) -> hv.Element:
    """Give an element the name of the frame that it draws: its Bokeh source gets this name, so it can be updated.

    Parameters
    ----------
    element : Element
        The element.
    name : str
        Name of its frame in `Layers`.
    **style : object
        Options of HoloViews for the element.
    """
    return element.opts(hooks=[partial(_name_source, name)], **style)


def _name_source(name: str, plot: Any, element: hv.Element) -> None:
    source = plot.handles.get("source")
    if source is not None:
        source.update(name=name, tags=[type(element).__name__])


def line(layers: Layers, name: str, label: str = "", **style: Any) -> hv.Element:
    """Draw a layer as a line. Without a label it has no entry in the legend.

    Parameters
    ----------
    layers : Layers
        The layers of a picture.
    name : str
        Name of the layer, with the columns x and y.
    label : str, default ""
        Words in the legend.
    **style : object
        Options of HoloViews.
    """
    return layer(hv.Curve(layers[name], "x", "y", label=label), name, **style)


def dots(layers: Layers, name: str, label: str = "", **style: Any) -> hv.Element:
    """Draw a layer as one mark per row; see `line`."""
    return layer(hv.Scatter(layers[name], "x", "y", label=label), name, **style)


def segments(layers: Layers, name: str, label: str = "", **style: Any) -> hv.Element:
    """Draw a layer as one segment per row, from (x0, y0) to (x1, y1); see `line`."""
    return layer(hv.Segments(layers[name], ["x0", "y0", "x1", "y1"], label=label), name, **style)


def band(layers: Layers, name: str, label: str = "", **style: Any) -> hv.Element:
    """Draw a layer as the area between its columns lower and upper; see `line`."""
    return layer(hv.Area(layers[name], "x", ["lower", "upper"], label=label), name, **style)


def image(layers: Layers, name: str, **style: Any) -> hv.Element:
    """Draw a layer with the columns x, y and value as a grid of colours, with a colour bar; see `line`."""
    frame = layers[name]
    x, y = np.unique(frame["x"]), np.unique(frame["y"])
    values = frame.sort_values(["y", "x"])["value"].to_numpy().reshape(len(y), len(x))
    element = hv.Image((x, y, values), ["x", "y"], "value")
    return layer(element, name, **{"cmap": SEQUENTIAL, "colorbar": True, **style})


def overlay(parts: Iterable[hv.Element], frame: pd.DataFrame, columns: int = 2, **options: Any) -> hv.Overlay:
    """Lay elements over each other, with a grid, the axis labels of a frame and the legend above them.

    Parameters
    ----------
    parts : iterable of Element
        The elements, the last one on top.
    frame : DataFrame
        The frame whose `attrs` have the labels and the title.
    columns : int, default 2
        Columns of the legend; 0 for no legend.
    **options : object
        Further options of HoloViews.
    """
    legend = {"legend_position": "top", "legend_cols": columns} if columns else {"show_legend": False}
    layers = hv.Overlay(list(parts))
    limits = {f"{axis}lim": _around(layers, axis) for axis in ("x", "y") if options.get(f"log{axis}")}
    shown = {name: limit for name, limit in limits.items() if limit is not None}
    look = {**legend, "responsive": True, "show_grid": True, "title": ""}  # HoloViews would name layers: "a Overlay"
    return layers.opts(**{**look, **labels(frame), **shown, **options})


def _around(layers: hv.Overlay, axis: str) -> tuple[float, float] | None:
    """Limits of a logarithmic axis with a single value, where HoloViews subtracts 1 and ends below zero; else None."""
    low, high = layers.range(axis)
    return (low / 2, 2 * high) if low is not None and low == high and low > 0 else None


def without_grid(plot: Any, element: hv.Element) -> None:
    """Hide the grid of a picture without axes; a hook of HoloViews, which draws it otherwise."""
    for grid in plot.state.grid:
        grid.visible = False


def legend_cols(names: Iterable[str]) -> int:
    """Return the number of legend columns that a narrow picture does not cut: two for short names, else one."""
    return 2 if max(map(len, names), default=0) <= SHORT_NAME else 1


def labels(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the axis labels and the title of a frame, as options of HoloViews."""
    return {option: frame.attrs[option] for option in ("xlabel", "ylabel", "title") if option in frame.attrs}


def arranged(views: Sequence[View], chosen: str = "") -> list[View]:
    """Return the views in the order of the page: the first one, the hero, the second one, and then the others.

    Parameters
    ----------
    views : sequence of View
        In their own order.
    chosen : str, default ""
        Key of the view to put in the place of the hero; a key that is not there means the hero of the family.
    """
    first, second, others = list(views[:1]), list(views[1:2]), list(views[2:])
    is_chosen = [view for view in others if view.key == chosen]
    hero = (is_chosen or [view for view in others if view.hero] or others)[:1]
    return [*first, *hero, *second, *(view for view in others if view not in hero)]
