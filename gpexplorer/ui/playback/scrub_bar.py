"""The scrub bar: a native range input that speaks only when a person moves it.

A slider whose value is synced both ways sends back what the page set a moment ago, which reads as a scrub and pauses
the run; messages instead of a shared value leave no echo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import param
from panel.custom import JSComponent


class Scrub(JSComponent):
    """`moved(at)` is called with the step a person dragged to; `at` and `last` only show where the run is."""

    at = param.Integer(0, bounds=(0, None), doc="Step shown.")
    last = param.Integer(0, bounds=(0, None), doc="Newest step.")

    _esm = """
    export function render({ model, el }) {
      const box = document.createElement("label")
      const words = document.createElement("span")
      const range = document.createElement("input")
      Object.assign(range, { type: "range", min: 0, step: 1, title: "Drag to see any earlier step" })
      range.setAttribute("aria-label", "Step shown")
      box.append(words, range)
      let held = false
      const show = () => {
        range.max = Math.max(model.last, 1)
        range.disabled = model.last < 1
        if (!held) range.value = model.at
        words.textContent = `Step ${range.value} of ${model.last}`
      }
      range.addEventListener("input", () => {
        held = true
        words.textContent = `Step ${range.value} of ${model.last}`
        model.send_msg(Number(range.value))
      })
      range.addEventListener("change", () => { held = false; model.send_msg(Number(range.value)) })
      model.on("at", show)
      model.on("last", show)
      show()
      el.append(box)
    }
    """
    _stylesheets: ClassVar[list[str]] = [
        """
        :host { color: inherit; }
        label { display: flex; flex-direction: column; gap: 2px; font-size: 13px; color: inherit; }
        span { opacity: 0.8; font-variant-numeric: tabular-nums; }
        input { width: 100%; margin: 0; accent-color: var(--mui-palette-primary-main, #0b6e99); }
        """
    ]

    def __init__(self, moved: Callable[[int], None], **params: Any) -> None:
        super().__init__(**params)
        self._moved = moved

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, int | float) and not isinstance(msg, bool) and 0 <= msg <= self.last:
            self._moved(int(msg))
