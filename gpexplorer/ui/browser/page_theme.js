const NAME = "gpexplorer-theme"
const chosen = () => { try { return localStorage.getItem(NAME) } catch { return null } }
const remember = (dark) => { try { localStorage.setItem(NAME, dark ? "dark" : "light") } catch {} }
const pages = () => (window.Bokeh?.documents ?? []).flatMap((document) => document.roots())
  .map((root) => root.data).filter((data) => data && "dark_theme" in data)

const INKS = ["line_color", "fill_color", "text_color", "hatch_color"]
const AROUND = {  // what lies around lines and marks, by the name of its colour
  text: ["axis_label_text_color", "major_label_text_color", "label_text_color"], line: ["axis_line_color", "major_tick_line_color"],
  grid: ["grid_line_color"], background: ["background_fill_color", "border_fill_color"],
}
const parts = () => (window.Bokeh?.documents ?? []).flatMap((document) => document.roots())
  .flatMap((root) => [...root.references()])

export function render({ model, el }) {
  el.style.display = "none"
  const on_light = Object.fromEntries(Object.entries(model.on_dark).map((pair) => pair.reverse()))
  // The server paints all of a figure too, but takes its time, in which words would be dark on dark.
  const paint = () => {
    const twins = dark ? model.on_dark : on_light
    for (const part of new Set(parts())) {
      const changed = {}
      for (const name of INKS) {
        const ink = part.properties[name]?.get_value?.(), twin = twins[ink?.value ?? ink]
        if (twin) changed[name] = ink.value ? { ...ink, value: twin } : twin
      }
      for (const [colour, names] of Object.entries(AROUND)) for (const name of names)
        if (part.properties[name]?.get_value?.()) changed[name] = model.around[dark ? "dark" : "light"][colour]
      part.setv(changed, { sync: false })
      if ("entries" in part.properties) {
        const entries = part.entries.map((entry) => entry.map((value) => twins[value] ?? value))
        part.setv({ entries }, { sync: false })
      }
    }
  }
  const system = window.matchMedia("(prefers-color-scheme: dark)")
  let dark = system.matches
  const begin = () => {
    dark = chosen() ? chosen() === "dark" : system.matches
    for (const page of pages()) page.dark_theme = dark
    paint()
  }
  const note = (page) => {
    if (page.dark_theme === dark) return
    dark = page.dark_theme
    remember(dark)
    paint()
  }
  const start = () => {
    // Panel does not pass on to the page what the server changes before all of the page is drawn.
    if (!window.Bokeh?.documents.every((document) => document.is_idle)) return setTimeout(start, 20)
    begin()
    for (const page of pages()) page.properties.dark_theme.change.connect(() => note(page))
  }
  setTimeout(start)
  system.addEventListener("change", begin)
  model.on("remove", () => system.removeEventListener("change", begin))
}
