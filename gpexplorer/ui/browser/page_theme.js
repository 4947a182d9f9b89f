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

const system = window.matchMedia("(prefers-color-scheme: dark)")
const wantsDark = () => (chosen() ? chosen() === "dark" : system.matches)

// The server paints all of a figure too, but takes its time, in which words would be dark on dark.
const paint = ({ on_dark, around }, dark) => {
  const twins = dark ? on_dark : Object.fromEntries(Object.entries(on_dark).map((pair) => pair.reverse()))
  for (const part of new Set(parts())) {
    const changed = {}
    for (const name of INKS) {
      const ink = part.properties[name]?.get_value?.(), twin = twins[ink?.value ?? ink]
      if (twin) changed[name] = ink.value ? { ...ink, value: twin } : twin
    }
    for (const [colour, names] of Object.entries(AROUND)) for (const name of names)
      if (part.properties[name]?.get_value?.()) changed[name] = around[dark ? "dark" : "light"][colour]
    part.setv(changed, { sync: false })
    if ("entries" in part.properties) {
      const entries = part.entries.map((entry) => entry.map((value) => twins[value] ?? value))
      part.setv({ entries }, { sync: false })
    }
  }
}

// The server builds a page light, and Panel draws it so and each of its parts, before they hear of the theme.
function drawInTheme() {
  const component = window.Bokeh?.Models?.get("panel.models.esm.ReactiveESM")?.prototype.default_view?.prototype
  if (!component) return
  const { initialize } = component
  component.initialize = function () {
    const { data } = this.model, page = this.root.model.data
    if (data && "dark_theme" in data && this === this.root) {
      const theme = [...this.model.references()].find((model) => model.data && "on_dark" in model.data)
      if (theme && wantsDark()) {
        data.setv({ dark_theme: true }, { sync: false })
        paint(theme.data, true)
      }
    } else if (data && "dark_theme" in data && page && "dark_theme" in page) {
      data.setv({ dark_theme: page.dark_theme }, { sync: false })
    }
    return initialize.call(this)
  }
  if (wantsDark()) document.documentElement.style.background = "#14181d"  // until the page has a colour of its own
}

export function render({ model, el }) {
  el.style.display = "none"
  const system = window.matchMedia("(prefers-color-scheme: dark)")
  let dark = system.matches
  const begin = () => {
    dark = wantsDark()
    for (const page of pages()) {
      if (dark) page.setv({ dark_theme: false }, { silent: true })  // so that the server hears of what is drawn already
      page.dark_theme = dark
    }
    document.documentElement.style.removeProperty("background")
    paint(model, dark)
  }
  const note = (page) => {
    if (page.dark_theme === dark) return
    dark = page.dark_theme
    remember(dark)
    paint(model, dark)
  }
  let pressed = false  // the button, before the page listens to it
  const press = (event) => { pressed ||= event.composedPath().some((part) => part.ariaLabel === "Toggle theme") }
  window.addEventListener("click", press, true)
  const start = () => {
    // Panel does not pass on to the page what the server changes before all of the page is drawn.
    if (!window.Bokeh?.documents.every((document) => document.is_idle)) return setTimeout(start, 20)
    window.removeEventListener("click", press, true)
    if (pressed) for (const page of pages()) remember(page.dark_theme)
    begin()
    for (const page of pages()) page.properties.dark_theme.change.connect(() => note(page))
  }
  setTimeout(start)
  system.addEventListener("change", begin)
  model.on("remove", () => system.removeEventListener("change", begin))
}
