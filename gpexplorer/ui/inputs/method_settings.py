"""Widgets for the settings of a method: tooltips from `doc`, slider ranges from the soft bounds, equations below.

Values from the browser are not trusted: they go into a Spec, which checks every bound again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param

from ...methods.base import Method

SIZE = {"size": "small", "sizing_mode": "stretch_width", "margin": (6, 10)}
MAX_LABEL = 24  # characters


class Settings(pn.viewable.Viewer):
    """The widgets for the settings of one method.

    Parameters
    ----------
    method : the class whose parameters are shown.
    given : values by the name of the setting; the others start at their defaults.
    on_change : called without arguments after a person changed a setting.
    """

    def __init__(
        self, method: type[Method], given: dict[str, Any], on_change: Callable[[], None], **params: Any
    ) -> None:
        super().__init__(**params)
        self.method, self._on_change = method, on_change
        self.widgets = {
            name: _widget(name, setting, given.get(name, setting.default))
            for name, setting in method.param.objects().items()
            if name not in ("name", "seed")
        }
        for widget in self.widgets.values():
            widget.param.watch(self._report, "value_throttled" if hasattr(widget, "value_throttled") else "value")
        self._layout = self._arrange()

    @property
    def values(self) -> dict[str, Any]:
        """The current values of the widgets, not checked."""
        return {name: widget.value for name, widget in self.widgets.items()}

    def _report(self, _: Any) -> None:
        self._on_change()

    def _arrange(self) -> pn.Column:
        """Settings with an equation come first, with the equation below; the others are in a closed accordion.

        In the accordion, the settings declared by the method itself come before those it shares with its family.
        """
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
    """Return a formula as a pane; only constants of this package may be passed, because KaTeX interprets its input."""
    styles = {"font-size": "11px", "opacity": "0.8", "overflow-x": "auto", "overflow-y": "hidden"}
    return pn.pane.LaTeX(f"$${latex}$$", styles=styles, margin=(0, 10, 6, 10), sizing_mode="stretch_width")


def label_of(name: str, doc: str = "") -> str:
    """Return the label of a setting: the text before the colon of its doc if that is short, else its name in words."""
    heading = doc.partition(":")[0]
    is_short = ":" in doc and len(heading) <= MAX_LABEL
    return heading if is_short else name.removeprefix("num_").replace("_", " ").capitalize()


def _widget(name: str, setting: param.Parameter, value: Any) -> Any:
    common = {"label": label_of(name, setting.doc or ""), "value": value, "description": setting.doc, **SIZE}
    if isinstance(setting, param.Boolean):
        common.pop("size")
        return pmui.Checkbox(**common)
    if isinstance(setting, param.Selector):
        return pmui.Select(options=list(setting.objects), **common)
    soft = setting.softbounds or setting.bounds or (None, None)
    whole = isinstance(setting, param.Integer)
    if whole and None not in soft:
        low, high = min(soft[0], value), max(soft[1], value)
        return pmui.EditableIntSlider(start=low, end=high, fixed_start=(setting.bounds or (None,))[0], **common)
    if whole:
        return pmui.IntInput(**common)
    return pmui.FloatInput(format="0[.][0000000000]", **common)
