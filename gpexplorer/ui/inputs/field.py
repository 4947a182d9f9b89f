"""The controls of the sidebar, all in one form.

The label stands above; below it a slider and a number, a list or a switch fill one row, with the unit at its end. A
value that was changed from its default is marked and can be reset. The explanation and the equation unfold from the
label.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import param
from panel.custom import JSComponent
from param.parameterized import no_instance_params

from ..browser.components import is_number
from ..styles import beside
from ..text import with_minus_signs

WHOLE, NUMBER, CHOICE, SWITCH = "whole", "number", "choice", "switch"
LARGEST = 1e300  # a number typed by a person is at most this
Choices = Mapping[str, Any] | Mapping[str, Mapping[str, Any]]  # {label: value}, or {group: {label: value}}


@no_instance_params  # else Panel copies all parameters of each field, in a third of the time that its model takes
class Field(JSComponent):
    """One control.

    The browser sends what a person typed or chose; it is checked here, and only then becomes `value`.

    Parameters
    ----------
    label : str
        Name of the value.
    value : object
        The value shown first.
    on_change : callable, optional
        Called without arguments after a person changed the value.
    choices : Choices, optional
        What can be chosen from, as {label: value} or {group: {label: value}}; None for a number or a switch.
    **params : object
        `hint`, `equation`, `unit`, `zero`, `default`, `start`, `end`, `disabled`, `bare` and those of a component. A
        field without `default` has no mark and no reset. A whole number with `start` and `end` has a slider.

    Raises
    ------
    TypeError
        Where `value` is neither a number nor a switch and there are no choices.
    """

    kind = param.Selector(default=NUMBER, objects=[WHOLE, NUMBER, CHOICE, SWITCH], doc="What is set.")
    label = param.String("", doc="Name of the value.")
    hint = param.String("", doc="What the value does, in a sentence or two.")
    equation = param.String("", doc="The formula in which the value stands, as LaTeX.")
    unit = param.String("", doc="Unit of the number.")
    zero = param.String("", doc="What 0 stands for, beside the label while the number is 0.")
    start = param.Number(None, allow_None=True, doc="Left end of the slider.")
    end = param.Number(None, allow_None=True, doc="Right end of the slider.")
    default = param.Parameter(None, doc="What a reset restores: a number, a truth value, or the index of a choice.")
    shown = param.Parameter(None, doc="What the browser shows: a number, a truth value, or the index of a choice.")
    groups = param.List(default=[], doc="Groups of labels, each [title, labels].")
    disabled = param.Boolean(False, doc="Whether the value cannot be changed.")
    bare = param.Boolean(False, doc="Whether the label is only read aloud, as a heading above says the same.")

    _esm = beside(__file__, "field.js")
    _stylesheets: ClassVar[list[str]] = [beside(__file__, "field.css")]

    def __init__(
        self,
        label: str,
        value: Any,
        on_change: Callable[[], None] = lambda: None,
        choices: Choices | None = None,
        **params: Any,
    ) -> None:
        kind = _kind(value, choices)
        self._values: list[Any] = []
        default = params.pop("default", None)
        if "hint" in params:
            params["hint"] = with_minus_signs(params["hint"])
        super().__init__(label=label, kind=kind, **{"margin": (2, 12), "sizing_mode": "stretch_width", **params})
        self._on_change = on_change
        if choices is not None:
            self.choose_from(choices, value)
        else:
            self.value = value
        if default is not None:
            self.default = self._index(default) if kind == CHOICE else default

    @property
    def value(self) -> Any:
        """The value: a number, a truth value, or one of the choices."""
        if self.kind != CHOICE:
            return self._value
        return None if self._value is None else self._values[self._value]

    @value.setter
    def value(self, value: Any) -> None:
        self._value = self._index(value) if self.kind == CHOICE else value
        self.shown = self._value

    @property
    def chosen_label(self) -> str:
        """The label of the choice that is shown, "" for none."""
        labels = [label for _, group in self.groups for label in group]
        return "" if self._value is None else labels[self._value]

    def choose_from(self, choices: Choices, value: Any) -> None:
        """Offer other choices, and show this one; None shows no choice."""
        is_grouped = all(isinstance(entry, Mapping) for entry in choices.values())
        groups = choices if is_grouped else {"": choices}
        self._values = [entry for group in groups.values() for entry in group.values()]
        self.groups = [[title, list(group)] for title, group in groups.items()]
        self.value = value

    def enter(self, value: Any) -> None:
        """Set the value as a person would: it is checked, and `on_change` is called."""
        self._handle_msg(self._index(value) if self.kind == CHOICE else value)

    def _index(self, value: Any) -> int | None:
        return self._values.index(value) if value in self._values else None

    def _handle_msg(self, msg: Any) -> None:
        """Take a value from the browser, if it is one that this control can have."""
        if self.disabled or not self._accepts(msg):
            self.param.trigger("shown")
            return
        self._value = int(msg) if self.kind in (WHOLE, CHOICE) else msg
        self.shown = self._value
        self._on_change()

    def _accepts(self, msg: Any) -> bool:
        if self.kind == SWITCH:
            return isinstance(msg, bool)
        if self.kind == CHOICE:
            return is_number(msg) and msg == int(msg) and 0 <= msg < len(self._values)
        return is_number(msg) and abs(msg) <= LARGEST and (self.kind == NUMBER or msg == int(msg))


def _kind(value: Any, choices: Choices | None) -> str:
    if choices is not None:
        return CHOICE
    if isinstance(value, bool):
        return SWITCH
    if isinstance(value, int | float):
        return WHOLE if isinstance(value, int) else NUMBER
    raise TypeError(f"A field shows a number, a switch or choices, not {value!r}.")
