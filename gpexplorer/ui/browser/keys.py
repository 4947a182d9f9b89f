"""Keys of the page: space, arrows, R, S, U and ?. Not for notebooks, whose own keys these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from panel.custom import JSComponent

HELP = "Space plays or pauses. Left and right step back and on. R starts again, S stops, U undoes, ? shows these keys."


class Keys(JSComponent):
    """Listens on the document, but not while a person types or moves a control; folds the sidebar of a narrow page."""

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      const known = [" ", "ArrowLeft", "ArrowRight", "r", "s", "u", "?"]
      const typed = "input, textarea, select, [role=slider], [role=tab], [role=combobox], [contenteditable=true]"
      const listen = (event) => {
        const key = event.key.length === 1 ? event.key.toLowerCase() : event.key
        const target = event.composedPath()[0]
        const typing = target.closest?.(key === " " ? `${typed}, button` : typed)  // space presses a button
        if (!known.includes(key) || typing || event.ctrlKey || event.metaKey || event.altKey) return
        event.preventDefault()
        model.send_msg(key)
      }
      const shut = () => {
        for (const page of window.Bokeh?.documents.flatMap((held) => held.roots()) ?? [])
          if (page.data?.sidebar_open) page.data.sidebar_open = false
      }
      document.addEventListener("keydown", listen)
      if (window.innerWidth < 900) setTimeout(shut, 400)  // the controls would lie over the pictures
      model.on("remove", () => document.removeEventListener("keydown", listen))
    }
    """

    def __init__(self, pressed: Callable[[str], None], **params: Any) -> None:
        super().__init__(**params)
        self._pressed = pressed

    def _handle_msg(self, msg: Any) -> None:
        if isinstance(msg, str) and len(msg) <= 16:
            self._pressed(msg)
