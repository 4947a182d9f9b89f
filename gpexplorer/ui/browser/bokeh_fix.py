"""Bokeh 3.9 put right on the page: a figure added a moment ago is measured, and finished, before it has a layout.

Bokeh lays such a figure out right afterwards, but the browser's console says "reading 'top_panel'" in between.
"""

from __future__ import annotations

from panel.custom import JSComponent


class Mending(JSComponent):
    """Leaves figures alone that are not laid out yet; nothing to see."""

    _esm = """
    export function render({ el }) {
      el.style.display = "none"
      const view = window.Bokeh?.Models?.get("Plot")?.prototype.default_view?.prototype
      if (!view || view.gpexplorer_mended) return
      for (const name of ["_measure_layout", "_after_layout"]) {
        const step = view[name]
        if (step) view[name] = function () { if (this.layout != null) step.call(this) }
      }
      view.gpexplorer_mended = true
    }
    """
