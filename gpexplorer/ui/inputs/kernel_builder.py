"""Kernels put together by clicks: the first part, and after it as many sums and products as one can still read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import panel as pn
import panel_material_ui as pmui

from ...kernels.base import registry
from ..text.escape import text
from .method_settings import SIZE

MOST = 5  # parts
SIGNS = {"+": "+", "×": "*"}
Parts = list[tuple[str, str]]  # sign (of the first: none) and a key, or a sum in parentheses


class KernelPicker(pn.viewable.Viewer):
    """Holds a kernel's text in `value`, never a wrong one; `changed` is called after a person chose another."""

    def __init__(self, kernel: str, changed: Callable[[], None], **params: Any) -> None:
        super().__init__(**params)
        self._changed, self._disabled = changed, False
        self.parts: Parts = []
        self._rows = pn.Column(sizing_mode="stretch_width", margin=0)
        self.add = pmui.Button(
            label="Combine with another kernel", icon="add", variant="text", size="small", margin=(0, 6),
            on_click=lambda _: self._append(),
        )  # fmt: skip
        self.said = pn.pane.HTML("", margin=(0, 14), sizing_mode="stretch_width", visible=False)
        self._layout = pn.Column(self._rows, self.said, self.add, sizing_mode="stretch_width", margin=0)
        self.adopt(kernel)

    @property
    def value(self) -> str:
        """The kernel as its text."""
        return "".join(f"{sign}{key}" for sign, key in self.parts)

    @property
    def disabled(self) -> bool:
        """Whether the method brings a kernel of its own."""
        return self._disabled

    @disabled.setter
    def disabled(self, disabled: bool) -> None:
        self._disabled = disabled
        self._lay_out()

    def adopt(self, kernel: str) -> None:
        """Show this kernel; nobody is told."""
        self.parts = parts(kernel)
        self._lay_out()

    def _append(self) -> None:
        if len(self.parts) < MOST:
            self._set([*self.parts, ("+", self._alike()[0])])

    def _set(self, changed: Parts) -> None:
        self.parts = changed
        self._lay_out()
        self._changed()

    def _alike(self) -> list[str]:
        """Keys of the kernels that take the inputs the first part takes, the periodic one first."""
        wanted = _inputs(self.parts[0][1])
        keys = [key for key in sorted(registry) if registry[key].inputs == wanted]
        return sorted(keys, key=lambda key: key != "periodic")

    def _lay_out(self) -> None:
        self._rows[:] = [self._first(), *(self._row(k) for k in range(1, len(self.parts)))]
        self.add.visible = len(self.parts) < MOST and not self._disabled
        shown = self.value.replace("*", " × ").replace("+", " + ")
        self.said.object = f'<span style="font-size:12px;opacity:.75">k = {text(shown)}</span>'
        self.said.visible = len(self.parts) > 1

    def _first(self) -> pmui.Select:
        select = pmui.Select(
            label="Kernel", options=_titled(sorted(registry), self.parts[0][1]), value=self.parts[0][1],
            searchable=True, disabled=self._disabled,
            description="How alike two inputs make two values; “-ard” has a lengthscale an input.", **SIZE,
        )  # fmt: skip
        select.param.watch(lambda event: self._choose(0, key=event.new), "value")
        return select

    def _row(self, k: int) -> Any:
        """Sign, kernel, and a way to take the part out."""
        sign, key = self.parts[k]
        small = {"size": "small", "disabled": self._disabled}
        signs = pmui.Select(label="", options=SIGNS, value=sign, width=64, margin=(4, 0, 4, 10), **small)
        keys = pmui.Select(
            label=f"Kernel {k + 1}", options=_titled(self._alike(), key), value=key, searchable=True,
            sizing_mode="stretch_width", margin=(4, 6), **small,
        )  # fmt: skip
        out = pmui.IconButton(
            icon="close", description=f"Take out kernel {k + 1}", size="small", disabled=self._disabled,
            margin=(6, 6, 0, 0), on_click=lambda _: self._set(self.parts[:k] + self.parts[k + 1 :]),
        )  # fmt: skip
        signs.param.watch(lambda event: self._choose(k, sign=event.new), "value")
        keys.param.watch(lambda event: self._choose(k, key=event.new), "value")
        return pn.Row(signs, keys, out, sizing_mode="stretch_width", margin=0)

    def _choose(self, k: int, sign: str | None = None, key: str | None = None) -> None:
        """Another sign or key for one part; what a browser may not send changes nothing."""
        if k >= len(self.parts) or (sign or "+") not in SIGNS.values() or (key or "se") not in registry:
            return
        changed = list(self.parts)
        changed[k] = (changed[k][0] if sign is None else sign, key or changed[k][1])
        if k == 0 and registry[changed[0][1]].inputs != _inputs(self.parts[0][1]):
            changed = changed[:1]  # the others take other inputs
        self._set(changed)

    def __panel__(self) -> Any:
        return self._layout


def parts(kernel: str) -> Parts:
    """A kernel's text cut at the signs that stand outside parentheses."""
    found, depth, sign, begin = [], 0, "", 0
    for at, letter in enumerate(kernel):
        depth += {"(": 1, ")": -1}.get(letter, 0)
        if letter in "+*" and depth == 0:
            found.append((sign, kernel[begin:at].strip()))
            sign, begin = letter, at + 1
    return [*found, (sign, kernel[begin:].strip())]


def _inputs(key: str) -> str:
    """What a part takes; that of the first kernel in a sum in parentheses."""
    first = parts(key.strip("()"))[0][1].strip("()")
    return registry[first].inputs


def _titled(keys: list[str], own: str) -> dict[str, str]:
    """Title -> key, with this one where it is a sum of its own."""
    known = {f"{registry[key].title} ({key})": key for key in keys}
    return known | ({} if own in known.values() else {own: own})
