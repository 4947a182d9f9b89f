"""The pictures of a run: two on top, the rest in tabs of which only the open one is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ..views.live import Live
from .escape import text
from .options import options
from .player import Frame
from .stage import Layers, Opened
from .steps import Steps

ON_TOP = 2


class Picture(pn.viewable.Viewer):
    """One view: its title, what to look for, its options, and a figure that lives as long as its axes mean the same."""

    def __init__(self, view: Any, inputs: int, changed: Callable[[], None], height: int, **params: Any) -> None:
        super().__init__(**params)
        self.view, self._live, self._again, self._changed = view, None, True, changed
        self.pane = pn.pane.Bokeh(None, sizing_mode="stretch_width", height=height, margin=(0, 6))
        title = pn.pane.HTML(
            f'<b style="font-size:15px">{text(view.title)}</b><br>'
            f'<span style="font-size:12.5px;opacity:.75">{text(view.help)}</span>',
            margin=(8, 12, 2, 12),
            sizing_mode="stretch_width",
        )
        chosen = options(view, inputs, self._chosen)
        self._layout = pmui.Paper(title, *([chosen] if chosen else []), self.pane, sizing_mode="stretch_width", margin=6)

    def adopt(self, view: Any) -> None:
        """Go on with the same view of another run, options kept."""
        kept = {name: value for name, value in self.view.param.values().items() if name != "name"}
        view.param.update(**{k: v for k, v in kept.items() if not view.param[k].constant and not view.param[k].readonly})
        self.view, self._again = view, True

    def update(self, layers: Layers, theme: str) -> None:
        """Draw once, then only replace the numbers."""
        if self._live is None or self._again:
            self._live, self._again = Live(self.view, layers, theme), False
            self._live.figure.output_backend = "canvas"  # WebGL needs a GPU to be the faster one for so few glyphs
            self.pane.object = self._live.figure
        else:
            self._live.update(layers)

    def set_theme(self, theme: str) -> None:
        """Light or dark."""
        if self._live is not None:
            self._live.set_theme(theme)

    def _chosen(self) -> None:
        self._again = True
        self._changed()

    def __panel__(self) -> Any:
        return self._layout


class Pictures(pn.viewable.Viewer):
    """All pictures of the open run. `show` is told which views can be seen, `again` that they must be drawn anew."""

    def __init__(self, show: Callable[[list[str]], None], again: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._show, self._again = show, again
        self._opening, self.theme = -1, "light"
        self._kind: tuple[Any, ...] = ()
        self.pictures: dict[str, Picture] = {}
        self.steps = Steps()
        self.top = pmui.FlexBox(sizing_mode="stretch_width", flex_wrap="wrap")
        self.tabs = pmui.Tabs(sizing_mode="stretch_width", dynamic=True, margin=(4, 6))
        self.tabs.param.watch(lambda _: self._tell(), "active")
        self._layout = pmui.Column(self.top, self.tabs, sizing_mode="stretch_width")

    @property
    def visible(self) -> list[str]:
        """Keys of the views on the screen: those on top, and the one in the open tab."""
        keys = list(self.pictures)
        under = keys[ON_TOP:]
        return keys[:ON_TOP] + under[self.tabs.active : self.tabs.active + 1]

    def update(self, frame: Frame) -> None:
        """Show this frame."""
        if frame.opened is not None and frame.opening != self._opening:
            self._opening = frame.opening
            self._adopt(frame.opened)
        for key, layers in frame.layers.items():
            if key in self.pictures:
                self.pictures[key].update(layers, self.theme)
        if frame.table is not None and self.tabs.active >= len(self.pictures) - ON_TOP:
            self.steps.update(frame.table, hurry=not frame.playing)

    def set_theme(self, theme: str) -> None:
        """Light or dark, for every figure there is."""
        self.theme = theme
        for picture in self.pictures.values():
            picture.set_theme(theme)

    def _adopt(self, opened: Opened) -> None:
        """Keep the layout where the same views apply; lay out anew where others do."""
        same = (opened.inputs, *(view.key for view in opened.views))
        if same == self._kind:
            for view in opened.views:
                self.pictures[view.key].adopt(view)
            return
        self._kind = same
        tall = [330] * ON_TOP + [300] * len(opened.views)
        self.pictures = {
            view.key: Picture(view, opened.inputs, self._again, height) for view, height in zip(opened.views, tall, strict=False)
        }
        shown = list(self.pictures.values())
        grow = ({"flex": "3 1 420px", "min-width": "0"}, {"flex": "2 1 340px", "min-width": "0"})
        self.top[:] = [pmui.Column(p, styles=style, margin=0) for p, style in zip(shown, grow, strict=False)]
        self.tabs[:] = [*((text(p.view.title), p) for p in shown[ON_TOP:]), ("Steps", self.steps)]
        self._tell()

    def _tell(self) -> None:
        self._show(self.visible)
        self._again()

    def __panel__(self) -> Any:
        return self._layout
