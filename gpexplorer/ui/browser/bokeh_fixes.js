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

function updateOnce(renderer) {
  const { update_data } = renderer
  renderer.update_data = function (indices) {
    if (this.gpexplorer_update) this.gpexplorer_update.indices = undefined
    else {
      const update = this.gpexplorer_update = { indices }
      update.done = Promise.resolve().then(() => {
        this.gpexplorer_update = null
        return update_data.call(this, update.indices)
      })
    }
    return this.gpexplorer_update.done
  }
}

function keepLateRows(table) {
  const { setData, tableBuilt } = table
  table.setData = function () {
    this.gpexplorer_late = this._initializing || this._building || !this.tabulator.initialized
    return setData.call(this)
  }
  table.tableBuilt = function () {
    tableBuilt.call(this)
    if (this.gpexplorer_late) void this.setData()
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
  const renderer = window.Bokeh.Models.get("GlyphRenderer")?.prototype.default_view?.prototype
  if (renderer?.update_data) updateOnce(renderer)
  const table = window.Bokeh.Models.get("panel.models.tabulator.DataTabulator")?.prototype.default_view?.prototype
  if (table?.setData && table.tableBuilt) keepLateRows(table)
  view.gpexplorer_mended = true
}
