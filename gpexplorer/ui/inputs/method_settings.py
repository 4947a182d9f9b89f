"""Widgets made from a method's parameters: tooltips from `doc`, sliders from softbounds, equations beside them.

What a browser sends is not believed: `values` goes through Spec, which checks every bound again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param

from ...methods.base import Method

SIZE = {"size": "small", "sizing_mode": "stretch_width", "margin": (6, 10)}
LONGEST = 24  # characters of a label


class Settings(pn.viewable.Viewer):
    """The settings of one method; `changed` is called with no argument after a person moved one."""

    def __init__(self, method: type[Method], given: dict[str, Any], changed: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self.method, self._changed = method, changed
        self.widgets = {
            name: _widget(name, setting, given.get(name, setting.default))
            for name, setting in method.param.objects().items()
            if name not in ("name", "seed")
        }
        for widget in self.widgets.values():
            widget.param.watch(self._tell, "value_throttled" if hasattr(widget, "value_throttled") else "value")
        self._layout = self._arrange()

    @property
    def values(self) -> dict[str, Any]:
        """What the widgets hold now, unchecked."""
        return {name: widget.value for name, widget in self.widgets.items()}

    def _tell(self, _: Any) -> None:
        self._changed()

    def _arrange(self) -> pn.Column:
        """Settings with an equation first, the equation under each; the rest folded away, the method's own on top."""
        equations, own = self.method.equations, vars(self.method)
        first = [name for name in self.widgets if name in equations]
        others = [name for name in self.widgets if name not in equations]
        rest = [self.widgets[name] for name in sorted(others, key=lambda name: name not in own)]
        shown: list[Any] = []
        for name in first:
            shown += [self.widgets[name], equation(equations[name])]
        if rest:
            more = pmui.Accordion(
                ("More settings", pn.Column(*rest)), title_variant="subtitle2", dynamic=True,
                sizing_mode="stretch_width", margin=(8, 10),
            )  # fmt: skip
            shown.append(more)
        return pn.Column(*shown, sizing_mode="stretch_width")

    def __panel__(self) -> Any:
        return self._layout


def equation(latex: str) -> pn.pane.LaTeX:
    """A formula, from this package's own constants only: KaTeX runs what it is given."""
    styles = {"font-size": "11px", "opacity": "0.8", "overflow-x": "auto", "overflow-y": "hidden"}
    return pn.pane.LaTeX(f"$${latex}$$", styles=styles, margin=(0, 10, 6, 10), sizing_mode="stretch_width")


def label_of(name: str, doc: str = "") -> str:
    """What the doc calls the setting before its colon, where that is short; its name in words otherwise."""
    head = doc.partition(":")[0]
    short = ":" in doc and len(head) <= LONGEST
    return head if short else name.removeprefix("num_").replace("_", " ").capitalize()


def _widget(name: str, setting: param.Parameter, value: Any) -> Any:
    held = {"label": label_of(name, setting.doc or ""), "value": value, "description": setting.doc, **SIZE}
    if isinstance(setting, param.Boolean):
        held.pop("size")
        return pmui.Checkbox(**held)
    if isinstance(setting, param.Selector):
        return pmui.Select(options=list(setting.objects), **held)
    soft = setting.softbounds or setting.bounds or (None, None)
    whole = isinstance(setting, param.Integer)
    if whole and None not in soft:
        low, high = min(soft[0], value), max(soft[1], value)
        return pmui.EditableIntSlider(start=low, end=high, fixed_start=(setting.bounds or (None,))[0], **held)
    if whole:
        return pmui.IntInput(**held)
    return pmui.FloatInput(format="0[.][0000000000]", **held)
