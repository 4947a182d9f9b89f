"""Lines over the steps of a run: a picture that declares its lines and axes, and computes nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import holoviews as hv
import numpy as np
import pandas as pd

from ..runs.run import Run
from .base import Layers, View, line, overlay
from .drawing.palette import cycled


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


def points(x: Any, y: Any, log10: bool = False) -> pd.DataFrame:
    """Return the points of a line, as columns x and y, without values that are not finite.

    Parameters
    ----------
    x, y : object
        Numbers of the same length.
    log10 : bool, default False
        Take log10 of y, and omit values that are not positive.
    """
    x, y = np.asarray(x, float), np.asarray(y, float)
    drawable = np.isfinite(y) & ((y > 0.0) | (not log10))
    return pd.DataFrame({"x": x[drawable], "y": np.log10(y[drawable]) if log10 else y[drawable]})
