"""Two workarounds for Bokeh 3.9.

It measures a newly added figure before the figure has a layout, and lays it out right afterwards, so that the only
effect is an error in the browser's console: "reading 'top_panel'". And it asks the browser for the style of the figure
before each line and each surface that it draws, in case a style sheet has colours for them; the browser then computes
the styles of the page anew, which took two of the six seconds in which a page opens. Our own pages have none.
"""

from __future__ import annotations

import param
from panel.custom import JSComponent


class BokehFixes(JSComponent):
    """An invisible component: figures without a layout are not measured, nor styles asked for on a page of our own."""

    own_page = param.Boolean(False, doc="Whether nobody else draws on this page.")

    _esm = """
    export function render({ model, el }) {
      el.style.display = "none"
      const view = window.Bokeh?.Models?.get("Plot")?.prototype.default_view?.prototype
      if (!view || view.gpexplorer_mended) return
      for (const name of ["_measure_layout", "_after_layout"]) {
        const step = view[name]
        if (step) view[name] = function () { if (this.layout != null) step.call(this) }
      }
      const visual = window.Bokeh.require?.("core/visuals/visual")?.VisualProperties?.prototype
      if (model.own_page && visual?._get_css_value) visual._get_css_value = () => ""
      view.gpexplorer_mended = true
    }
    """
