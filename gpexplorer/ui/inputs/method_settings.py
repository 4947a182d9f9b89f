"""Controls for the settings of a method: hints from `doc`, slider ranges from the soft bounds, equations in the hint.

Values from the browser are not trusted: they go into a Spec, which checks every bound again.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui
import param

from ...methods.base import Method
from ...methods.capabilities import HasInducingPoints
from ...runs.studies.setting_labels import label_of
from ..widgets import WIDE, WithLayout, column
from .field import Field

_ZERO = re.compile(r"(?:^|[.;] )((?:With 0,|0(?! does)) [^.;:]*)")  # what a doc says 0 stands for, in short
ONE_LINE = 41  # characters of a label and of what 0 stands for, for which a line of the sidebar has room

MOST_OPEN = 5  # settings that are shown outside the accordion where a method has no equations
SLIM = {
    "& .MuiAccordionSummary-root": {"minHeight": "26px !important", "padding": "0 8px"},
    "& .MuiAccordionSummary-content": {"margin": "0 !important"},
    "& .MuiAccordionDetails-root": {"padding": "0 0 6px"},
}


class Settings(WithLayout):
    """The controls for the settings of one method.

    Parameters
    ----------
    method : type
        The class whose parameters are shown.
    given : dict
        Values by the name of the setting; the others start at their defaults.
    on_change : callable
        Called without arguments after a person changed a setting.
    rows : int, default 0
        Number of training rows, from which a method chooses its number of inducing points; 0 if it is not known.
    """

    def __init__(
        self, method: type[Method], given: dict[str, Any], on_change: Callable[[], None], rows: int = 0
    ) -> None:
        self.method, self._on_change = method, on_change
        self._texts: dict[str, Any] = {}  # kept, without a control
        self.widgets: dict[str, Field] = {}
        for name, setting in method.param.objects().items():
            value = given.get(name, setting.default)
            if name in ("name", "seed"):
                continue
            if name in method.used_settings() and not isinstance(setting, param.String):
                self.widgets[name] = self._field(name, setting, value)
            else:
                self._texts[name] = value
        self._layout = self._arrange()
        self.describe(rows)

    def describe(self, rows: int) -> None:
        """Say beside the number of inducing points how many 0 is for so many training rows."""
        if rows and "num_inducing" in self.widgets and issubclass(self.method, HasInducingPoints):
            m = self.method(num_inducing=0).num_points(rows)
            self.widgets["num_inducing"].zero = f"0 is automatic: {m:,}"

    @property
    def values(self) -> dict[str, Any]:
        """The current values of the widgets, not checked."""
        return self._texts | {name: widget.value for name, widget in self.widgets.items()}

    def _field(self, name: str, setting: param.Parameter, value: Any) -> Field:
        doc = setting.doc or ""
        common: dict[str, Any] = {
            "hint": f"{doc} In Python: {name}.".strip(),
            "equation": self.method.equations.get(name, ""),
        }
        choices = None
        if isinstance(setting, param.Selector):
            choices = {plain(str(choice)): choice for choice in setting.objects}
            if value not in choices.values():  # a list of rows or points, which no page can type
                choices[f"{len(value):,} rows or points of a spec"] = value
        elif not isinstance(setting, param.Boolean):
            low, high = setting.softbounds or setting.bounds or (None, None)
            clause = _ZERO.search(doc)
            fits = clause and len(label_of(name, doc)) + len(clause[1]) <= ONE_LINE
            common |= {"start": low, "end": high, "zero": clause[1] if clause and fits else ""}
            value = value if isinstance(setting, param.Integer) else float(value)
        return Field(label_of(name, doc), value, self._on_change, choices, default=setting.default, **common)

    def _arrange(self) -> pn.Column:
        """Settings with an equation come first; the others are in a closed accordion.

        A method without equations shows the first settings that it declares itself.
        In the accordion, the settings declared by the method itself come before those it shares with its family.
        """
        equations, own = self.method.equations, vars(self.method)
        primary = [name for name in self.widgets if name in equations]
        primary = primary or [name for name in self.widgets if name in own][:MOST_OPEN]
        secondary = [name for name in self.widgets if name not in primary]
        secondary_fields = [self.widgets[name] for name in sorted(secondary, key=lambda name: name not in own)]
        widgets: list[Any] = [self.widgets[name] for name in primary]
        if secondary_fields:
            more = ("More settings", column(*secondary_fields, margin=0))
            look = {"title_variant": "subtitle2", "dynamic": True, "margin": (2, 10), "sx": SLIM}
            widgets.append(pmui.Accordion(more, **WIDE, **look))
        return column(*widgets)


def plain(choice: str) -> str:
    """Return the words of a choice: underscores are spaces."""
    return choice.replace("_", " ")
