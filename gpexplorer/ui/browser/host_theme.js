// The page around this component is dark where what lies behind it is: the first background that is not transparent.
const numbers = (colour) => (colour.match(/[\d.]+/g) ?? []).map(Number)
const isOpaque = (part) => {
  const [r, g, b, alpha = 1] = numbers(getComputedStyle(part).backgroundColor)
  return r !== undefined && b !== undefined && g !== undefined && alpha > 0.5
}
const above = (part) => part.assignedSlot ?? part.parentElement ?? part.getRootNode().host ?? null
const isDark = (el) => {
  for (let part = el; part; part = above(part)) {
    if (!isOpaque(part)) continue
    const [r, g, b] = numbers(getComputedStyle(part).backgroundColor)
    return 0.299 * r + 0.587 * g + 0.114 * b < 128
  }
  return getComputedStyle(document.documentElement).colorScheme === "dark"
}

export function render({ model, el }) {
  el.style.display = "none"
  const start = above(el) // the component itself may be painted by the theme that it reports
  let last = null
  const look = () => {
    // Panel does not pass on to the page what the server changes before all of the page is drawn.
    if (!window.Bokeh?.documents.every((document) => document.is_idle)) return setTimeout(look, 50)
    const dark = isDark(above(el) ?? start)
    if (dark !== last) model.send_msg((last = dark))
  }
  const observer = new MutationObserver(() => setTimeout(look, 50))
  for (const part of [document.documentElement, document.body])
    observer.observe(part, { attributes: true, attributeFilter: ["class", "style", "data-theme", "data-bs-theme"] })
  setTimeout(look)
  const late = setTimeout(look, 600) // a template may colour its page after its first components are drawn
  model.on("remove", () => { observer.disconnect(); clearTimeout(late) })
}
