"""Widgets for the parameters of a view: which channel, which axis, which band."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import panel_material_ui as pmui
import param

FLAT = "(2-D)"  # ends the label of an option that is for two inputs only
LETTER, FRAME = 8.2, 46  # pixels: the width of a letter, what stands around a name
WIDTHS = 104, 280  # least and most of a selector
FINE = {".MuiSelect-select": {"fontSize": "0.875rem"}}


def options(current: Callable[[], Any], inputs: int, changed: Callable[[], None]) -> pmui.FlexBox | None:
    """One small widget a public parameter of the view that `current` gives, or None where it has none."""
    view = current()
    found = {
        name: setting
        for name, setting in view.param.objects("existing").items()
        if name != "name"
        and not name.startswith("_")
        and not setting.constant
        and (setting.precedence or 0) >= 0
        and (inputs == 2 or not str(setting.label).endswith(FLAT))
    }
    widgets = [
        made for name, setting in found.items() if (made := _widget(current, name, setting, changed)) is not None
    ]
    return pmui.FlexBox(*widgets, flex_wrap="wrap", align_items="center", margin=(2, 6)) if widgets else None


def _widget(current: Callable[[], Any], name: str, setting: param.Parameter, changed: Callable[[], None]) -> Any:
    held = {"label": setting.label, "value": getattr(current(), name), "description": setting.doc, "margin": (4, 5)}
    low, high = getattr(setting, "bounds", None) or (None, None)
    if isinstance(setting, param.Boolean):
        widget = pmui.Checkbox(**held)
    elif isinstance(setting, param.Selector):
        names = setting.get_range()
        widget = pmui.Select(options=names, size="small", width=_room(names), sx=FINE, **held)
    elif isinstance(setting, param.Integer):
        widget = pmui.IntInput(start=low, end=high, size="small", width=110, **held)
    elif isinstance(setting, param.Number):
        widget = pmui.FloatSlider(start=low, end=high, step=setting.step, width=150, **held)
    else:
        return None

    def choose(event: Any) -> None:
        setattr(current(), name, event.new)
        changed()

    widget.param.watch(choose, "value_throttled" if hasattr(widget, "value_throttled") else "value")
    return widget


def _room(names: Iterable[str]) -> int:
    """Pixels in which the longest name is whole."""
    least, most = WIDTHS
    return min(max(FRAME + round(LETTER * max(map(len, names), default=0)), least), most)
