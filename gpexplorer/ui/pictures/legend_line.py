"""The legend and the caption of a picture as lines of words above it; a click on a word hides its layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from ...views.drawing.legend import Entry


class LegendLine(JSComponent):
    """Words in one or two lines, each with the sign and colour of its layer.

    Parameters
    ----------
    on_toggle
        Called with the position of the entry that a person clicked.
    **params
        Parameters of `panel.custom.JSComponent`.
    """

    entries = param.List(default=[], doc="Label, sign, colour, opacity and visibility of each entry.")
    caption = param.String("", doc="What the numbers of this step say.")

    _esm = """
    export function render({ model, el }) {
      const list = document.createElement("div")
      list.setAttribute("role", "group")
      list.setAttribute("aria-label", "Layers of the picture")
      const show = () => list.replaceChildren(...model.entries.map(([label, sign, colour, alpha, visible], index) => {
        const button = document.createElement("button")
        const mark = document.createElement("i")
        Object.assign(button, { type: "button", title: visible ? "Hide this layer" : "Show this layer" })
        button.setAttribute("aria-pressed", String(visible))
        mark.textContent = sign
        mark.setAttribute("aria-hidden", "true")
        Object.assign(mark.style, { color: colour, opacity: alpha })
        button.append(mark, label)
        button.onclick = () => model.send_msg(index)
        return button
      }))
      const caption = document.createElement("p")
      const say = () => { caption.textContent = model.caption; caption.hidden = !model.caption }
      model.on("entries", show)
      model.on("caption", say)
      show()
      say()
      el.append(list, caption)
    }
    """
    _stylesheets: ClassVar[list[str]] = [
        """
        :host { color: inherit; }
        div { display: flex; flex-wrap: wrap; gap: 0 10px; }
        p { margin: 2px 0 0; font-size: 12px; line-height: 17px; font-variant-numeric: tabular-nums; }
        p[hidden] { display: none; }
        button { font: 12px/18px inherit; font-family: inherit; font-size: 12px; line-height: 18px; padding: 0;
                 border: 0; background: none; color: inherit; cursor: pointer; white-space: nowrap; }
        button[aria-pressed=false] { text-decoration: line-through; opacity: .65; }
        button:focus-visible { outline: 2px solid var(--mui-palette-primary-main, #0b6e99); outline-offset: 1px; }
        i { font-style: normal; margin-right: 4px; }
        """
    ]

    def __init__(self, on_toggle: Callable[[int], None], **params: Any) -> None:
        super().__init__(**params)
        self._on_toggle = on_toggle

    def fill(self, entries: Sequence[Entry]) -> None:
        """Show these entries."""
        listed = [list(entry) for entry in entries]
        if listed != self.entries:
            self.entries = listed

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, int) and not isinstance(msg, bool) and 0 <= msg < len(self.entries):
            self._on_toggle(msg)
