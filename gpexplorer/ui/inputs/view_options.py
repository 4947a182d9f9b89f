"""Widgets for the options of a picture, such as its channel, axis and band."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import panel_material_ui as pmui
import param

ONLY = {"(1-D)": 1, "(2-D)": 2}  # an option whose label ends so applies to data with this number of inputs only
LETTER_WIDTH, PADDING = 7.2, 44  # pixels
LABEL_LETTER_WIDTH = 6.5  # pixels, of the label above a selector
MIN_WIDTH, MAX_WIDTH = 92, 250  # pixels of a selector
FONT = {".MuiSelect-select": {"fontSize": "0.8125rem"}}
LABEL_FONT = ".MuiFormControlLabel-root .MuiFormControlLabel-label { font-size: 0.8125rem; }"


def options(current: Callable[[], Any], inputs: int, on_change: Callable[[], None]) -> pmui.FlexBox | None:
    """Return a row of small widgets, one per public parameter of a view; None for a view without parameters.

    Parameters
    ----------
    current : returns the view whose options are shown and set; the view may be replaced during a session.
    inputs : number of input columns of the open data.
    on_change : called without arguments after a person changed an option.
    """
    view = current()
    shown = {
        name: setting
        for name, setting in view.param.objects("existing").items()
        if name != "name"
        and not name.startswith("_")
        and not setting.constant
        and (setting.precedence or 0) >= 0
        and ONLY.get(str(setting.label)[-5:], inputs) == inputs
    }
    widgets = [
        widget for name, setting in shown.items() if (widget := _widget(current, name, setting, on_change)) is not None
    ]
    return pmui.FlexBox(*widgets, flex_wrap="wrap", align_items="center", margin=(2, 6)) if widgets else None


def _widget(current: Callable[[], Any], name: str, setting: param.Parameter, on_change: Callable[[], None]) -> Any:
    common = {"label": setting.label, "value": getattr(current(), name), "description": setting.doc, "margin": (4, 5)}
    low, high = getattr(setting, "bounds", None) or (None, None)
    if isinstance(setting, param.Boolean):
        widget = pmui.Checkbox(size="small", stylesheets=[LABEL_FONT], **{**common, "margin": (0, 5)})
    elif isinstance(setting, param.Selector):
        names = setting.get_range()
        width = max(_width_for(names), PADDING + round(LABEL_LETTER_WIDTH * len(str(setting.label))))
        widget = pmui.Select(options=names, size="small", width=width, sx=FONT, **common)
    elif isinstance(setting, param.Integer):
        widget = pmui.IntInput(start=low, end=high, size="small", width=_width_for([str(setting.label)]), **common)
    elif isinstance(setting, param.Number):
        widget = pmui.FloatSlider(start=low, end=high, step=setting.step, width=150, **common)
    else:
        return None

    def choose(event: Any) -> None:
        try:
            setattr(current(), name, event.new)
        except ValueError:  # a browser can send any value; the view keeps the one it has
            return
        on_change()

    widget.param.watch(choose, "value_throttled" if hasattr(widget, "value_throttled") else "value")
    return widget


def _width_for(names: Iterable[str]) -> int:
    """Pixels that show the longest name completely, within the bounds."""
    return min(max(PADDING + round(LETTER_WIDTH * max(map(len, names), default=0)), MIN_WIDTH), MAX_WIDTH)
