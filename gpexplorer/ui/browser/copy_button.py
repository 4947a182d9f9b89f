"""A button that copies a text and confirms it."""

from __future__ import annotations

from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from ..styles import TEXT


class CopyButton(JSComponent):
    """A button that puts a text on the clipboard of the person who presses it.

    Parameters
    ----------
    what
        What is copied, such as "the link": the button is named after it.
    **params
        Parameters of `panel.custom.JSComponent`.
    """

    copied = param.String("", doc="The text to copy; the button is disabled where it is empty.")
    what = param.String("", doc="What is copied.")

    # Outside a secure context, as on a page of another machine without TLS, there is no navigator.clipboard.
    _esm = """
    export function render({ model, el }) {
      const button = document.createElement("button")
      button.type = "button"
      const name = `Copy ${model.what}`
      const say = (words) => { button.textContent = words }
      const show = () => { button.disabled = !model.copied; say(name) }
      const byHand = () => {
        const area = document.createElement("textarea")
        area.value = model.copied
        document.body.append(area)
        area.select()
        const done = document.execCommand("copy")
        area.remove()
        return done
      }
      const copy = async () => {
        try {
          await navigator.clipboard.writeText(model.copied)
          return true
        } catch { return byHand() }
      }
      button.onclick = async () => {
        say(await copy() ? "Copied" : "Select the text and press Ctrl+C")
        setTimeout(show, 1500)
      }
      model.on("copied", show)
      show()
      el.append(button)
    }
    """
    _stylesheets: ClassVar[list[str]] = [
        TEXT,
        """
        button { font: 13px/1.2 inherit; font-family: inherit; padding: 6px 10px; border-radius: 4px; cursor: pointer;
                 border: 1px solid currentColor; background: none; color: inherit; min-height: 32px; }
        button:disabled { opacity: .5; cursor: default; }
        button:focus-visible { outline: 2px solid var(--mui-palette-primary-main, #0b6e99); outline-offset: 1px; }
        """,
    ]

    def __init__(self, what: str, **params: Any) -> None:
        super().__init__(what=what, **params)
