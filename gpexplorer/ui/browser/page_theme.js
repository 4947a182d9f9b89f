const NAME = "gpexplorer-theme"
const chosen = () => { try { return localStorage.getItem(NAME) } catch { return null } }
const remember = (dark) => { try { localStorage.setItem(NAME, dark ? "dark" : "light") } catch {} }
const pages = () => (window.Bokeh?.documents ?? []).flatMap((document) => document.roots())
  .map((root) => root.data).filter((data) => data && "dark_theme" in data)

const INKS = ["line_color", "fill_color", "text_color", "hatch_color"]
const AROUND = ["background_fill_color", "border_fill_color", "axis_line_color", "axis_label_text_color", "major_tick_line_color",
  "major_label_text_color", "grid_line_color", "label_text_color", "text_color"]  // of what lies around lines and marks
const parts = () => (window.Bokeh?.documents ?? []).flatMap((document) => document.roots())
  .flatMap((root) => [...root.references()])

export function render({ model, el }) {
  el.style.display = "none"
  const reversed = (pairs) => Object.fromEntries(Object.entries(pairs).map((pair) => pair.reverse()))
  const [on_light, around_on_light] = [model.on_dark, model.around_on_dark].map(reversed)
  // The server paints all of a figure too, but takes its time, in which words would be dark on dark.
  const paint = () => {
    const twins = dark ? model.on_dark : on_light, around = dark ? model.around_on_dark : around_on_light
    for (const part of new Set(parts())) {
      const changed = {}
      for (const [names, pairs] of [[INKS, twins], [AROUND, around]]) for (const name of names) {
        const ink = part.properties[name]?.get_value?.(), twin = pairs[ink?.value ?? ink]
        if (twin) changed[name] = ink.value ? { ...ink, value: twin } : twin
      }
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
