"""The sidebar of a narrow page: a drawer over the page, which starts closed and has a button to close it."""

from __future__ import annotations

from typing import Any, ClassVar

import param
from panel.custom import JSComponent

from ..styles import DRAWER_BELOW


class Drawer(JSComponent):
    """The heading of the drawer with its button; invisible where the sidebar stands beside the page."""

    below = param.Integer(DRAWER_BELOW, constant=True, doc="Width of the window below which it is a drawer.")
    closings = param.Integer(0, doc="How often it was asked to close.")

    def close(self, _event: Any = None) -> None:
        """Close the drawer over a narrow page; a sidebar beside the page stays."""
        self.closings += 1

    _esm = """
    let begun = false  // render runs again whenever the drawer is opened; only the first run closes it

    const open = (shown) => {
      for (const page of window.Bokeh?.documents.flatMap((document) => document.roots()) ?? [])
        if (page.data && "sidebar_open" in page.data && page.data.sidebar_open !== shown) page.data.sidebar_open = shown
    }

    export function render({ model, el }) {
      const heading = document.createElement("div")
      const title = document.createElement("b")
      const button = document.createElement("button")
      title.textContent = "Data and settings"
      Object.assign(button, { type: "button", textContent: "✕", title: "Close", onclick: () => open(false) })
      button.setAttribute("aria-label", "Close data and settings")
      heading.append(title, button)
      const narrow = window.matchMedia(`(max-width: ${model.below - 0.05}px)`)
      const follow = () => {
        el.style.display = narrow.matches ? "" : "none"
        open(!narrow.matches)
      }
      el.append(heading)
      el.style.display = narrow.matches ? "" : "none"
      if (narrow.matches && !begun) for (const wait of [0, 100, 400]) setTimeout(follow, wait)  // once it is drawn
      begun = true
      narrow.addEventListener("change", follow)
      model.on("closings", () => narrow.matches && open(false))
      model.on("remove", () => narrow.removeEventListener("change", follow))
    }
    """
    _stylesheets: ClassVar[list[str]] = [
        """
        :host { color: inherit; }
        div { display: flex; justify-content: space-between; align-items: center; padding: 6px 6px 0 12px; }
        b { font-size: 15px; }
        button { width: 40px; height: 40px; border: 0; border-radius: 20px; background: none; color: inherit;
                 font-size: 16px; cursor: pointer; }
        button:focus-visible { outline: 2px solid var(--mui-palette-primary-main, #0b6e99); }
        """
    ]
