"""The base class of all pictures, and the functions by which a picture names its layers.

A picture has two halves. `data` turns a record of a run into one data frame per layer, in the units of the data file;
tensors end here. `plot` turns these frames into a HoloViews element and knows nothing of runs. After the first
drawing only the frames are replaced (see `drawing/live.py`).

A `Series` shows lines over the steps of a run: it declares its lines and axes, and computes nothing else.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import holoviews as hv
import numpy as np
import pandas as pd
import param

from ..problem import Step
from ..runs.run import Run
from .drawing.palette import SEQUENTIAL, cycled

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
        The only method family the picture applies to, by the default `applies`; empty for all families, and where
        `needs` says enough.
    needs : type
        What the method must be able to do, by the protocols in `methods.capabilities`; by default any method will do.
    order : int
        Position on the page: smaller numbers come first. The first two pictures are always visible.
    hero : bool
        Whether this picture shows what its family is about. The first such picture of a run stands between the first
        two; where there is none, the next one in order does.
    over_input : bool
        Whether its horizontal axis is the input where the rows have one: as a hero it then stands under the prediction.
    editable : bool
        Whether the picture shows the training rows in the units of the file, so that a person can drag inducing
        points and add or remove rows in it.
    choice : str
        A sentence that says what else the options show, for where the options are.
    click : str
        A sentence that says what a click does; empty where a click does nothing.
    patience : float
        Seconds after which `data` may return what it has computed so far, in a view that implements `unfinished`.
    computed : mapping of Run to dict
        What a view keeps of each run, so that it is computed once.
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    help: ClassVar[str] = ""
    family: ClassVar[str] = ""
    needs: ClassVar[type] = object
    order: ClassVar[int] = 100
    hero: ClassVar[bool] = False
    over_input: ClassVar[bool] = False
    editable: ClassVar[bool] = False
    choice: ClassVar[str] = ""
    click: ClassVar[str] = ""
    patience: float = math.inf

    def __init__(self, **params: Any) -> None:
        super().__init__(**params)
        self.computed: WeakKeyDictionary[Run, dict[Any, Any]] = WeakKeyDictionary()

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
            "xlabel", "ylabel" and "title", "number" for the beginning of the title where that is what the picture is
            about, "label" for a name in the legend that depends on the run, "loose" for a layer that the axes need not
            contain, "extent", "along" and "colours" for the ends of the vertical axis, of the horizontal one and of
            the colour scale where they do not follow the values, "at_least" for two numbers that the vertical axis
            contains besides them, and "map" where both axes are inputs, so that a unit is as long on both.
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

    def saved_as(self, method: str, step: int | None = None) -> str:
        """Return the name of a file with this picture of a method, at this step if there is one."""
        return f"{self.title}, {method}" + ("" if step is None else f", step {step}")


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
    layers = hv.Overlay(list(parts))
    look: dict[str, Any] = {"responsive": True, "show_grid": True, "title": ""}  # HoloViews would name it: "a Overlay"
    look |= {"legend_position": "top", "legend_cols": columns} if columns else {"show_legend": False}
    for axis in (axis for axis in ("x", "y") if options.get(f"log{axis}")):
        low, high = layers.range(axis)
        if low is not None and 0 < low == high:  # HoloViews would subtract 1 of a single value, and end below zero
            look[f"{axis}lim"] = (low / 2, 2 * high)
    return layers.opts(**{**look, **labels(frame), **options})


def without_grid(plot: Any, element: hv.Element) -> None:
    """Hide the grid of a picture without axes; a hook of HoloViews, which draws it otherwise."""
    for grid in plot.state.grid:
        grid.visible = False


def legend_cols(names: Iterable[str]) -> int:
    """Return the number of legend columns that a narrow picture does not cut: two for short names, else one."""
    return 2 if max(map(len, names), default=0) <= SHORT_NAME else 1


def named(frame: pd.DataFrame, xlabel: str, ylabel: str, title: str | None = None, **more: Any) -> pd.DataFrame:
    """Give a frame the labels of both axes, the sentence above the picture, and further `attrs`; returns the frame.

    Parameters
    ----------
    frame : DataFrame
        The layer that says what the axes are.
    xlabel, ylabel : str
        The labels.
    title : str, optional
        The sentence.
    **more : object
        Other `attrs`, as `View.data` lists them.
    """
    frame.attrs |= {"xlabel": xlabel, "ylabel": ylabel, **({} if title is None else {"title": title}), **more}
    return frame


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


class Line(NamedTuple):
    """One line of a `Series`.

    Attributes
    ----------
    label : str
        Words in the legend.
    colour : str
        From the palette.
    column : str
        Which column of `Series.table` is drawn; by default the one with the name of the layer.
    style : mapping
        Options of HoloViews that differ from a solid line of two pixels.
    """

    label: str
    colour: str
    column: str = ""
    style: Mapping[str, Any] = {}


class Series(View):
    """A picture of lines over the steps of a run.

    A subclass declares `lines` and `axes`. It overrides `series` where its lines do not come from the table of the
    run, `caption` for a sentence above the picture, and `plot` to add other marks to `curves`.

    Attributes
    ----------
    lines : mapping of str to Line
        For each layer, its line. A layer that is not declared has its name as label and the next colour of the cycle.
    axes : tuple of str
        Labels of both axes.
    over : str
        Column of the table along x.
    log10 : bool
        Whether log10 of the values is drawn, and values that are not positive are omitted.
    columns : int
        Columns of the legend; 0 for no legend.
    shortest : int
        Points that a line needs to be seen: 1 where `plot` marks each of them. With shorter ones only there is nothing
        to draw.
    options : mapping
        Further options of HoloViews for the picture.
    """

    lines: ClassVar[Mapping[str, Line]] = {}
    axes: ClassVar[tuple[str, str]] = ("step", "")
    over: ClassVar[str] = "index"
    log10: ClassVar[bool] = False
    columns: ClassVar[int] = 3
    shortest: ClassVar[int] = 2
    options: ClassVar[Mapping[str, Any]] = {}

    def table(self, run: Run, at: int) -> pd.DataFrame:
        """Return the rows that are drawn: those of the run up to record `at`."""
        return run.table().iloc[: at + 1]

    def series(self, run: Run, at: int) -> Layers:
        """Return one frame per line, without the values that are not finite."""
        table = self.table(run, at)
        return {
            name: points(table[self.over], table[declared.column or name], self.log10)
            for name, declared in self.lines.items()
        }

    def caption(self, run: Run, at: int, layers: Layers) -> str | None:
        """Return the sentence above the picture; None for no sentence."""
        return None

    def data(self, run: Run, at: int) -> Layers:
        """Return the lines, the first of them with the labels of the axes and the title."""
        layers = self.series(run, at)
        if all(len(frame) < self.shortest for frame in layers.values()):
            layers = {name: frame.iloc[:0] for name, frame in layers.items()}
        attrs = next(iter(layers.values())).attrs
        attrs |= {"xlabel": self.axes[0], "ylabel": self.axes[1]} | attrs
        title = self.caption(run, at, layers)
        if title is not None:
            attrs["title"] = title
        return layers

    def curves(self, layers: Layers) -> list[hv.Element]:
        """Return the lines as elements."""
        elements = []
        for number, name in enumerate(layers):
            declared = self.lines.get(name)
            style = cycled(number) if declared is None else {"color": declared.colour, **declared.style}
            label = name if declared is None else declared.label
            elements.append(line(layers, name, label, **{"line_width": 2, **style}))
        return elements

    def plot(self, layers: Layers) -> hv.Overlay:
        """Draw the lines."""
        return overlay(self.curves(layers), next(iter(layers.values())), self.columns, **self.options)


def on_plane(places: Any) -> pd.DataFrame:
    """Return places [k, 2] as columns x and y."""
    return pd.DataFrame(np.asarray(places, float).reshape(-1, 2), columns=["x", "y"])


def points(x: Any, y: Any, log10: bool = False, positive: bool = False) -> pd.DataFrame:
    """Return the points of a line, as columns x and y, without values that are not finite.

    Parameters
    ----------
    x, y : object
        Numbers of the same length.
    log10 : bool, default False
        Take log10 of y, and omit values that are not positive.
    positive : bool, default False
        Omit values that are not positive, as a logarithmic axis does.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    drawable = np.isfinite(y) & ((y > 0.0) | (not (log10 or positive)))
    return pd.DataFrame({"x": x[drawable], "y": np.log10(y[drawable]) if log10 else y[drawable]})
