// Each repair is given `sheetOf`: view -> the view of the sheet that the repairs are for, around this view; null where
// the view is not on one. On a page of our own, everything is on a sheet; in a host, only what stands on one of ours.
const managing = (view) => {
  while (view.is_managed) view = view.parent
  return view
}

const sheets = new WeakMap()
const sheetInHost = (view) => {
  if (view == null) return null
  if (!sheets.has(view)) sheets.set(view, view.model?.tags?.includes("gpexplorer") ? view : sheetInHost(view.parent))
  return sheets.get(view)
}

function writeOnce(sheet, layout, sheetOf) {
  const pending = new Map()
  let depth = 0
  const { _update } = sheet, { update_layout } = layout
  Object.defineProperty(sheet, "css", { get() { return pending.get(this) ?? this.el.textContent } })
  sheet._update = function (css) {
    if (depth > 0) pending.set(this, css)
    else if (sheetOf !== managing || this.el.textContent !== css) _update.call(this, css)
  }
  layout.update_layout = function () {
    if (!sheetOf(this)) return update_layout.call(this)
    depth += 1
    try { update_layout.call(this) } finally { depth -= 1 }
    if (depth > 0) return
    const changed = [...pending].filter(([{ el }, css]) => el.textContent !== css)
    pending.clear()
    for (const [one, css] of changed) _update.call(one, css)
  }
}

function layOutTogether(layouts, sheetOf) {
  const waiting = new Map()  // view -> whether its styles have changed, not only its size
  const layOut = () => {
    const views = new Map([...waiting].filter(([view]) => view.el?.isConnected))
    waiting.clear()
    const outermost = (view) => (view == null ? null : outermost(view.parent) ?? (views.has(view) ? view : null))
    const restyled = new Set([...views].flatMap(([view, isRestyled]) => (isRestyled ? [outermost(view)] : [])))
    for (const view of restyled) view.update_layout()
    for (const view of new Set([...views.keys()].map((one) => managing(outermost(one))))) {
      view.compute_layout()
      view.root.notify_finished()
    }
  }
  const wait = (view, isRestyled) => {
    if (waiting.size === 0) {
      const timer = setTimeout(layOut, 100)  // a page in the background draws no frames
      requestAnimationFrame(() => { clearTimeout(timer); layOut() })
    }
    waiting.set(view, isRestyled || (waiting.get(view) ?? false))
  }
  for (const layout of layouts) {
    const { invalidate_layout } = layout
    layout.invalidate_layout = function () {
      if (sheetOf(this) !== this) return invalidate_layout.call(this)
      wait(this, true)
    }
  }
  const { _after_resize } = layouts[0]
  layouts[0]._after_resize = function () {
    if (!sheetOf(this) || (this.is_layout_root && !this._was_built)) return _after_resize.call(this)
    wait(sheetOf(this), false)
  }
}

function compileOnce(component) {
  const { compile } = component, compiled = new Map()
  component.compile = function () {
    const code = compiled.get(this.esm) ?? compile.call(this)
    compiled.set(this.esm, code)
    return code
  }
}

function readFontOnce(plot, sheetOf) {
  const { get } = Object.getOwnPropertyDescriptor(plot, "base_font_size")
  const read = function () { return sheetOf(this) ? this.gpexplorer_font ??= get.call(this) : get.call(this) }
  Object.defineProperty(plot, "base_font_size", { get: read })
}

function forgetRemoved(plot) {
  const { connect_signals, remove } = plot, heard = new WeakMap()
  plot.connect_signals = function () {
    const listeners = []
    visualViewport.addEventListener = function (...listener) {
      listeners.push(listener)
      EventTarget.prototype.addEventListener.apply(this, listener)
    }
    try { connect_signals.call(this) } finally { delete visualViewport.addEventListener }
    heard.set(this, listeners)
  }
  plot.remove = function () {
    for (const listener of heard.get(this) ?? []) visualViewport.removeEventListener(...listener)
    remove.call(this)
  }
}

function forgetModels(document) {
  const { _schedule_recompute_all_models } = document
  document._schedule_recompute_all_models = function () {
    this._recompute_timeout = 5000
    if (this._recompute_timer == null) _schedule_recompute_all_models.call(this)  // else each change would put it off
  }
}

function keepColours(visual, sheetOf) {
  const { _get_css_value } = visual
  visual._get_css_value = function (name) { return sheetOf(this.obj) ? "" : _get_css_value.call(this, name) }
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

function colourBeforeLayout(bar) {
  const { lazy_initialize } = bar
  bar.lazy_initialize = async function () {
    await lazy_initialize.call(this)
    const axis = this._axis_view.parent, { request_layout } = axis
    axis.request_layout = () => { if (this.layout != null) request_layout.call(axis) }
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

function importNatively(shim) {
  const { addImportMap } = shim
  let isMapped = false
  const load = (url) => isMapped ? shim(url) : import(new URL(url, document.baseURI).href)
  shim.addImportMap = (map) => { isMapped = true; addImportMap(map) }
  window.importShim = Object.assign(load, shim)
}

function mend(sheetOf) {
  const view = window.Bokeh?.Models?.get("Plot")?.prototype.default_view?.prototype
  if (!view || view.gpexplorer_mended) return
  for (const name of ["_measure_layout", "_after_layout"]) {
    const step = view[name]
    if (step) view[name] = function () { if (this.layout != null) step.call(this) }
  }
  const component = window.Bokeh.Models.get("panel.models.esm.ReactiveESM")?.prototype
  if (component?.compile) compileOnce(component)
  const renderer = window.Bokeh.Models.get("GlyphRenderer")?.prototype.default_view?.prototype
  if (renderer?.update_data) updateOnce(renderer)
  const bar = window.Bokeh.Models.get("ColorBar")?.prototype.default_view?.prototype
  if (bar?.lazy_initialize) colourBeforeLayout(bar)
  const table = window.Bokeh.Models.get("panel.models.tabulator.DataTabulator")?.prototype.default_view?.prototype
  if (table?.setData && table.tableBuilt) keepLateRows(table)
  view.gpexplorer_mended = true
  const visual = window.Bokeh.require?.("core/visuals/visual")?.VisualProperties?.prototype
  if (visual?._get_css_value) keepColours(visual, sheetOf)
  const sheet = window.Bokeh.require?.("core/dom")?.InlineStyleSheet?.prototype
  const layout = window.Bokeh.require?.("models/layouts/layout_dom")?.LayoutDOMView?.prototype
  if (sheet && layout) writeOnce(sheet, layout, sheetOf)
  const parts = component?.default_view?.prototype
  if (layout && parts) layOutTogether([layout, parts], sheetOf)
  const plot = window.Bokeh.require?.("models/plots/plot_canvas")?.PlotView?.prototype
  if (plot && "base_font_size" in plot) readFontOnce(plot, sheetOf)
  if (plot && window.visualViewport) forgetRemoved(plot)
  const document = window.Bokeh.require?.("document/document")?.Document?.prototype
  if (sheetOf === managing && document?._schedule_recompute_all_models) forgetModels(document)
  if (sheetOf === managing && window.importShim?.addImportMap) importNatively(window.importShim)
}

export function initialize() {
  mend(sheetInHost)
}

export function render({ el }) {
  el.style.display = "none"
}
