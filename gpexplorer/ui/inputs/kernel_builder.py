"""The kernel builder: a first kernel, to which up to four others can be added or multiplied."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ...kernels.base import registry
from ..text import text
from ..widgets import button, column, line_of_text
from .field import Field

MAX_PARTS = 5
HINT = "The covariance of f at two inputs. Kernels that end in “-ard” have one lengthscale per input."
SIGNS = {"+": "+", "×": "*"}
Parts = list[tuple[str, str]]  # (sign, kernel key or sum in parentheses); the first part has the sign ""


class KernelPicker(pn.viewable.Viewer):
    """A kernel as a list of parts with a sign each; its text is in `value` and is always a valid kernel.

    Parameters
    ----------
    kernel : str
        Text of the kernel that is shown first, such as "se * periodic + linear".
    on_change : callable
        Called without arguments after a person chose another kernel.
    """

    def __init__(self, kernel: str, on_change: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._on_change, self._disabled = on_change, False
        self.parts: Parts = []
        self._rows = pn.Column(sizing_mode="stretch_width", margin=0)
        look = {"variant": "text", "size": "small", "margin": (0, 4)}
        self.add = button("Combine with another kernel", "add", self._append, **look)
        self.message = line_of_text(margin=(0, 14))
        self._layout = column(self._rows, self.message, self.add, margin=0)
        self.adopt(kernel)

    @property
    def value(self) -> str:
        """The text of the kernel, as `kernels.make` reads it."""
        return "".join(f"{sign}{key}" for sign, key in self.parts)

    @property
    def disabled(self) -> bool:
        """Whether the widgets are disabled because the method has a kernel of its own."""
        return self._disabled

    @disabled.setter
    def disabled(self, disabled: bool) -> None:
        self._disabled = disabled
        self._rebuild()

    def adopt(self, kernel: str) -> None:
        """Show this kernel without calling `on_change`."""
        self.parts = parts(kernel)
        self._rebuild()

    def _append(self) -> None:
        if len(self.parts) < MAX_PARTS:
            self._set([*self.parts, ("+", self._compatible_keys()[0])])

    def _set(self, new_parts: Parts) -> None:
        self.parts = new_parts
        self._rebuild()
        self._on_change()

    def _compatible_keys(self) -> list[str]:
        """Keys of the kernels with the same kind of inputs as the first part, the periodic kernel first."""
        input_kind = _inputs(self.parts[0][1])
        keys = [key for key in sorted(registry) if registry[key].inputs == input_kind]
        return sorted(keys, key=lambda key: key != "periodic")

    def _rebuild(self) -> None:
        self._rows[:] = [self._first(), *(self._row(k) for k in range(1, len(self.parts)))]
        self.add.visible = len(self.parts) < MAX_PARTS and not self._disabled
        kernel_text = self.value.replace("*", " × ").replace("+", " + ")
        self.message.object = f'<span style="font-size:12px;opacity:.75">k = {text(kernel_text)}</span>'
        self.message.visible = len(self.parts) > 1

    def _first(self) -> Field:
        field: Field
        key, look = self.parts[0][1], {"disabled": self._disabled, "heading": True, "hint": HINT}
        options = _options(sorted(registry), key)
        field = Field("Kernel", key, lambda: self._choose(0, key=field.value), options, **look)
        return field

    def _row(self, k: int) -> Any:
        """The controls of part k: sign, kernel, and a button that removes it."""
        sign, key = self.parts[k]
        signs: Field
        keys: Field
        look = {"disabled": self._disabled, "width": 64, "sizing_mode": None, "margin": (3, 0, 3, 12)}
        signs = Field("Sign", sign, lambda: self._choose(k, sign=signs.value), SIGNS, **look)
        options, narrow = _options(self._compatible_keys(), key), {"disabled": self._disabled, "margin": (3, 6)}
        keys = Field(f"Kernel {k + 1}", key, lambda: self._choose(k, key=keys.value), options, **narrow)
        remove = pmui.IconButton(
            icon="close",
            description=f"Remove kernel {k + 1}",
            size="small",
            disabled=self._disabled,
            margin=(20, 8, 0, 0),
            on_click=lambda _: self._set(self.parts[:k] + self.parts[k + 1 :]),
        )
        return pn.Row(signs, keys, remove, sizing_mode="stretch_width", margin=0)

    def _choose(self, k: int, sign: str | None = None, key: str | None = None) -> None:
        """Choose another sign or key for part k; values that the widgets do not offer are ignored."""
        if k >= len(self.parts) or (sign or "+") not in SIGNS.values() or (key or "se") not in registry:
            return
        new_parts = list(self.parts)
        new_parts[k] = (new_parts[k][0] if sign is None else sign, key or new_parts[k][1])
        if k == 0 and registry[new_parts[0][1]].inputs != _inputs(self.parts[0][1]):
            new_parts = new_parts[:1]  # the other parts need another kind of inputs
        self._set(new_parts)

    def __panel__(self) -> Any:
        return self._layout


def parts(kernel: str) -> Parts:
    """Split the text of a kernel at the signs outside parentheses and outside the brackets of column names."""
    result, depth, sign, start = [], 0, "", 0
    in_brackets = in_quotes = False
    for position, letter in enumerate(kernel):
        if in_brackets:
            in_quotes ^= letter == '"'
            in_brackets = in_quotes or letter != "]"
            continue
        in_brackets = letter == "["
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter in "+*" and depth == 0:
            result.append((sign, kernel[start:position].strip()))
            sign, start = letter, position + 1
    return [*result, (sign, kernel[start:].strip())]


def _inputs(key: str) -> str:
    """The kind of inputs of a part; for a sum in parentheses, that of its first kernel."""
    first = parts(key.strip("()"))[0][1].strip("()")
    return registry[first.partition("[")[0]].inputs


def _options(keys: list[str], current: str) -> dict[str, str]:
    """Return {title: key} for a selector, with the current part added when it is a sum in parentheses."""
    options = {f"{registry[key].title} ({key})": key for key in keys}
    return options | ({} if current in options.values() else {current: current})
