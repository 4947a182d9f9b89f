"""Three workarounds for Bokeh 3.9.

It measures a newly added figure before the figure has a layout, and lays it out right afterwards, so that the only
effect is an error in the browser's console: "reading 'top_panel'". And it asks the browser for the style of the figure
before each line and each surface that it draws, in case a style sheet has colours for them; the browser then computes
the styles of the page anew, which took two of the six seconds in which a page opens. Our own pages have none. And each
layout of a page empties and writes again the style sheets of all its parts, with five writes per part, although they
say what they said before: 21,000 writes while the laboratory opens. On our own pages a layout writes those that differ,
at its end and before anything is measured.
"""

from __future__ import annotations

import param
from panel.custom import JSComponent


class BokehFixes(JSComponent):
    """An invisible component: no figure without a layout is measured, and our pages write no style sheet twice."""

    own_page = param.Boolean(False, doc="Whether nobody else draws on this page.")

    _esm = """
    function writeOnce(sheet, layout) {
      const pending = new Map()
      let depth = 0
      const { _update } = sheet, { update_layout } = layout
      Object.defineProperty(sheet, "css", { get() { return pending.get(this) ?? this.el.textContent } })
      sheet._update = function (css) {
        if (depth > 0) pending.set(this, css)
        else if (this.el.textContent !== css) _update.call(this, css)
      }
      layout.update_layout = function () {
        depth += 1
        try { update_layout.call(this) } finally { depth -= 1 }
        if (depth > 0) return
        const changed = [...pending].filter(([{ el }, css]) => el.textContent !== css)
        pending.clear()
        for (const [one, css] of changed) _update.call(one, css)
      }
    }

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
      const sheet = window.Bokeh.require?.("core/dom")?.InlineStyleSheet?.prototype
      const layout = window.Bokeh.require?.("models/layouts/layout_dom")?.LayoutDOMView?.prototype
      if (model.own_page && sheet && layout) writeOnce(sheet, layout)
      view.gpexplorer_mended = true
    }
    """
