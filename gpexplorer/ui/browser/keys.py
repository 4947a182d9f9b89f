"""Keyboard shortcuts of the page: space, arrow keys, R, S, U and ?. Notebooks use these keys themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from panel.custom import JSComponent

HELP = "Space: play or pause. Left and right arrow: step back or forward. R: reset. S: stop. U: undo. ?: this help."


class Keys(JSComponent):
    """Listens for keys unless a person types or moves a control."""

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      const commands = [" ", "ArrowLeft", "ArrowRight", "r", "s", "u", "?"]
      const typed = "input, textarea, select, [role=slider], [role=tab], [role=combobox], [contenteditable=true]"
      const listen = (event) => {
        const key = event.key.length === 1 ? event.key.toLowerCase() : event.key
        const target = event.composedPath()[0]
        const typing = target.closest?.(key === " " ? `${typed}, button` : typed)  // space presses a button
        if (!commands.includes(key) || typing || event.ctrlKey || event.metaKey || event.altKey) return
        event.preventDefault()
        model.send_msg(key)
      }
      document.addEventListener("keydown", listen)
      model.on("remove", () => document.removeEventListener("keydown", listen))
    }
    """

    def __init__(self, on_key: Callable[[str], None], **params: Any) -> None:
        super().__init__(**params)
        self._on_key = on_key

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, str) and len(msg) <= 16:
            self._on_key(msg)
