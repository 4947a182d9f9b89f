"""A workaround for Bokeh 3.9, which measures a newly added figure before the figure has a layout.

Bokeh lays the figure out right afterwards, so the only effect is an error in the browser's console: "reading
'top_panel'".
"""

from __future__ import annotations

from panel.custom import JSComponent


class BokehLayoutFix(JSComponent):
    """An invisible component that skips the measurement of figures without a layout."""

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
