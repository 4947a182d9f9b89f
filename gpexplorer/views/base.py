"""A picture is two functions: `data`, where tensors end and units return, and `plot`, which knows only frames."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import holoviews as hv
import pandas as pd
import param

from ..problem import Step
from ..runs.run import Run

SHORT = 18  # letters of a name that fits twice into a picture on a telephone
Layers = dict[str, pd.DataFrame]
registry: dict[str, type[View]] = {}


class View(param.ParameterizedABC):
    """One picture of a run at one of its records. A subclass with a `key` is registered; parameters are its options.

    `data` gives one frame a layer and is safe in a worker thread. In a frame, x and y (lower, upper, ...) are what is
    drawn, and `attrs` may hold "xlabel", "ylabel" and "title".
    """

    key: ClassVar[str] = ""
    title: ClassVar[str] = ""
    help: ClassVar[str] = ""  # one sentence: what to look for
    family: ClassVar[str] = ""  # "" is any
    order: ClassVar[int] = 100  # where it stands on the page
    hands: ClassVar[bool] = False  # whether it shows the data, for points to be moved and rows to be edited
    patience: float = math.inf  # seconds after which `data` may return what there is so far, where it is drawn in parts
    click: ClassVar[str] = ""  # what a click does; empty where it does nothing

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not cls.key:
            return
        if cls.key in registry:
            raise TypeError(f"view key {cls.key!r} is taken by {registry[cls.key].__qualname__}")
        registry[cls.key] = cls

    def applies(self, run: Run) -> bool:
        """Whether this picture means something for this run."""
        return self.family in ("", run.method.family)

    @abstractmethod
    def data(self, run: Run, at: int) -> Layers:
        """The frames of record `at`, in the units of the file."""

    def unfinished(self, run: Run, at: int) -> bool:
        """Whether `data` returned a part, and goes on with the rest when it is called again."""
        return False

    def clicked(self, run: Run, at: int, x: float, y: float) -> Step | None:
        """The step that a click at (x, y), in the units of the axes, asks for at record `at`; None for no step."""
        return None

    @abstractmethod
    def plot(self, layers: Layers) -> hv.Overlay | hv.Element:
        """The picture of these frames, each element wrapped in `layer`."""


def layer(element: hv.Element, name: str, **style: Any) -> hv.Element:
    """An element that draws the frame called `name`: its Bokeh source carries that name, so it can be updated."""
    return element.opts(hooks=[partial(_tag, name)], **style)


def _tag(name: str, plot: Any, element: hv.Element) -> None:
    source = plot.handles.get("source")
    if source is not None:
        source.update(name=name, tags=[type(element).__name__])


def legend_cols(names: Iterable[str]) -> int:
    """Columns of a legend that a narrow picture does not cut: two for short names, else one."""
    return 2 if max(map(len, names), default=0) <= SHORT else 1


def labels(frame: pd.DataFrame) -> dict[str, Any]:
    """The axis labels and title a frame brings, as HoloViews options."""
    return {word: frame.attrs[word] for word in ("xlabel", "ylabel", "title") if word in frame.attrs}
