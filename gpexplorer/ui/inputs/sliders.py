"""Sliders of hyperparameters, also for a notebook cell, and the fold of the sidebar with those of the open run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import panel as pn
import panel_material_ui as pmui
import param
from panel.custom import JSComponent

from ...hyperparameters import Hyperparameter, Hyperparameters
from ..browser.callbacks import at_end
from ..browser.components import is_number
from ..page import guest_sheet
from ..playback.open_run import Frame
from ..session import Session
from ..styles import beside
from ..text import text
from ..widgets import WIDE, WithLayout, column, line_of_text
from .method_settings import SLIM

REACH = 50.0  # a slider goes from the value at its first appearance, divided by this, to the value times this


class Sliders(JSComponent):
    """One slider, one number and one lock per hyperparameter, in the units of the file.

    The browser sends what a person moved, typed or locked; the rows change only when the page says so.

    Parameters
    ----------
    on_value : callable
        Called with the name and the new value of a hyperparameter.
    on_fixed : callable
        Called with the name of a hyperparameter, and whether it is to be fixed.
    **params : object
        Parameters of a component.
    """

    rows = param.List(default=[], doc="What is shown of each hyperparameter.")

    _esm = beside(__file__, "sliders.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "sliders.css")]

    def __init__(
        self, on_value: Callable[[str, float], None], on_fixed: Callable[[str, bool], None], **params: Any
    ) -> None:
        super().__init__(**{"margin": (2, 12), "sizing_mode": "stretch_width", **params})
        self._on_value, self._on_fixed = on_value, on_fixed
        self._ends: dict[str, tuple[float, float]] = {}

    def adopt(self, table: Hyperparameters, is_new: bool = False) -> None:
        """Show these hyperparameters; `is_new` lets the sliders begin and end around their present values."""
        if is_new:
            self._ends = {}
        parts = {row.part for row in table if row.part}
        self.rows = [self._row(row, len(parts) > 1) for row in table]

    def _row(self, row: Hyperparameter, with_part: bool) -> dict[str, Any]:
        low, high = self._ends.get(row.name, (row.value / REACH, row.value * REACH))
        least, most = row.bounds
        low = max(low, least) if least else min(low, row.value)
        high = max(high, row.value) if most is None else min(high, most)
        self._ends[row.name] = (low, high)
        own = row.what if not row.input else f"{row.what} of {row.input}"
        return {
            "name": row.name, "label": f"{row.part}: {own}" if with_part and row.part else own, "value": row.value,
            "low": low, "high": high if high > low else low * (1.0 + 1e-9), "unit": row.unit, "fixed": row.fixed,
            "partners": row.partners, "gradient": "" if math.isnan(row.gradient) else f"{row.gradient:.3g}",
        }  # fmt: skip

    def _handle_msg(self, msg: Any) -> None:
        """Take a value or a lock from the browser, if it is one of a row that is shown."""
        row = next((row for row in self.rows if isinstance(msg, dict) and row["name"] == msg.get("name")), None)
        if row is None:
            return
        value, fixed = msg.get("value"), msg.get("fixed")
        if isinstance(fixed, bool):
            self._on_fixed(row["name"], fixed)
        elif is_number(value):  # what no hyperparameter can be is refused with a sentence
            self._on_value(row["name"], float(value))


def pane_of_table(table: Hyperparameters) -> pn.Column:
    """Return the sliders of a table, which set `value` and `fixed` of its rows and follow them.

    Parameters
    ----------
    table : Hyperparameters
        Its rows are Param objects: watch or bind them to act on what a person sets. `table.kernel()` is the kernel of
        a spec with these values.
    """

    words = line_of_text()

    def set_value(name: str, value: float) -> None:
        sliders.rows = [row | {"value": value} if row["name"] == name else row for row in sliders.rows]  # as typed
        try:
            for each in (name, *table[name].partners):
                table[each].value = value
        except ValueError:
            show()
            words.object = text(f"The value of {name} is {value:g}; give a number above 0.")

    def show(*_: Any) -> None:
        words.object = ""
        sliders.adopt(table)

    sliders = Sliders(set_value, lambda name, fixed: setattr(table[name], "fixed", fixed))
    show()
    watchers = [(row, row.param.watch(show, ["value", "fixed", "bounds"])) for row in table]

    def end() -> None:
        for row, watcher in watchers:
            row.param.unwatch(watcher)

    at_end(end)
    return guest_sheet([words, sliders], lambda dark: None)


HINT = (
    '<p class="hint">Move one: the run pauses, every picture shows what it would do, and learning goes on from there. '
    "Undo (U) takes it back. A lock keeps a value fixed. The gradient is that of the objective in the logarithm "
    "of the value; learning goes against it.</p>"
)
OWN_FEATURES = '<p class="hint">This method learns features of its own in place of the kernel.</p>'


class HyperparameterBox(WithLayout):
    """Sliders and locks of the hyperparameters at the step shown; while the fold is closed, nothing is computed.

    Parameters
    ----------
    session : Session
        Whose run is shown, and which carries out what a person sets.
    """

    def __init__(self, session: Session) -> None:
        self._session, self._opening, self._asked = session, -1, 0
        self.sliders = Sliders(self._set_value, self._set_fixed)
        self.words = line_of_text(HINT)
        content = column(self.words, self.sliders, margin=0)
        # It is built with the page: a content that was sent when the fold opened stayed away on a busy machine.
        look = {"title_variant": "subtitle2", "margin": (0, 10), "sx": SLIM}
        self.fold = self._layout = pmui.Accordion(("Hyperparameters", content), active=[], **WIDE, **look)
        self.fold.param.watch(lambda event: session.player.show_hyperparameters(bool(event.new)), "active")

    def update(self, frame: Frame) -> None:
        """Show the values of the step shown; those of a frame from before what a person set last do not replace it."""
        if frame.run is None or frame.hyperparameters is None or frame.answered < self._asked:
            return
        is_new, self._opening = frame.opening != self._opening, frame.opening
        own = not len(frame.hyperparameters)
        self.words.object = OWN_FEATURES if own else HINT
        self.sliders.adopt(frame.hyperparameters, is_new)

    def _set_value(self, name: str, value: float) -> None:
        together = self._show(name, value=value)
        self._session.set_hyperparameters(dict.fromkeys(together, value))
        self._asked = self._session.player.asked

    def _set_fixed(self, name: str, fixed: bool) -> None:
        partners = self._show(name, fixed=fixed)[1:]  # one number, fixed or learned as a whole
        kept = {row["name"]: row["value"] for row in self.sliders.rows if row["fixed"] and row["name"] not in partners}
        self._session.fix_hyperparameters(kept)
        self._asked = self._session.player.asked

    def _show(self, name: str, **changes: Any) -> list[str]:
        """Show what a person set before the run has it, and return all names of it: what they set next keeps it."""
        together = next([name, *row["partners"]] for row in self.sliders.rows if row["name"] == name)
        self.sliders.rows = [row | changes if row["name"] in together else row for row in self.sliders.rows]
        return together
