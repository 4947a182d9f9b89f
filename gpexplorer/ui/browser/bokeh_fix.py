"""Two changes of how Bokeh 3.9 and Panel 1.9 lay a page out in the browser.

Bokeh measures a newly added figure before the figure has a layout. It lays the figure out right afterwards, so the only
effect is an error in the browser's console: "reading 'top_panel'". Such a figure is not measured.

A part of the page asks for a layout when it is added, when it changes and when it is resized, and each time everything
inside it is measured and drawn again, at once. While a page opens, 180 such requests arrive within a few frames, for
parts that lie inside each other. They are kept until the next frame of the browser, and then each part is laid out
once. This takes a fifth of the browser's time for opening a page.
"""

from __future__ import annotations

from panel.custom import JSComponent


class BokehLayoutFix(JSComponent):
    """An invisible component that skips figures without a layout and lays parts of the page out once per frame."""

    _esm = """
    const models = window.Bokeh?.Models

    function viewOf(model) {
      try {
        return models.get(model).prototype.default_view.prototype
      } catch {
        return null
      }
    }

    function skipFiguresWithoutLayout() {
      const view = viewOf("Plot")
      if (!view || view.gpexplorer_mended) return
      for (const name of ["_measure_layout", "_after_layout"]) {
        const step = view[name]
        if (step) view[name] = function () { if (this.layout != null) step.call(this) }
      }
      view.gpexplorer_mended = true
    }

    function layOutOncePerFrame() {
      let view = viewOf("panel.models.esm.ReactComponent")
      while (view && !(Object.hasOwn(view, "invalidate_layout") && Object.hasOwn(view, "compute_layout")))
        view = Object.getPrototypeOf(view)
      if (!view || view.gpexplorer_mended) return
      const { invalidate_layout, compute_layout } = view
      let waiting = new Map()  // a part, and whether its rules of style have changed as well

      function layOut() {
        const parts = waiting
        waiting = new Map()
        const isInside = (part, others) => {
          for (let at = part.parent; at; at = at.parent) if (others(at)) return true
          return false
        }
        for (const [part, changed] of parts)
          if (changed && !part.is_destroyed && !isInside(part, (at) => parts.get(at))) part.update_layout()
        for (const part of parts.keys())
          if (!part.is_destroyed && !isInside(part, (at) => parts.has(at))) compute_layout.call(part)
      }

      function wait(part, changed) {
        if (waiting.size === 0) requestAnimationFrame(layOut)
        waiting.set(part, changed || waiting.get(part) === true)
        part._layout_computed = true
      }

      view.invalidate_layout = function () {
        if (this.is_managed || document.hidden) invalidate_layout.call(this)  // a hidden page has no frames
        else wait(this, true)
      }
      view.compute_layout = function () {
        if (this.is_managed || document.hidden) compute_layout.call(this)
        else wait(this, false)
      }
      view.gpexplorer_mended = true
    }

    skipFiguresWithoutLayout()
    layOutOncePerFrame()

    export function render({ el }) {
      el.style.display = "none"
    }
    """
