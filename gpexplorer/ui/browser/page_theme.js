const NAME = "gpexplorer-theme"
const chosen = () => { try { return localStorage.getItem(NAME) } catch { return null } }
const remember = (dark) => { try { localStorage.setItem(NAME, dark ? "dark" : "light") } catch {} }
const pages = () => (window.Bokeh?.documents ?? []).flatMap((document) => document.roots())
  .map((root) => root.data).filter((data) => data && "dark_theme" in data)

export function render({ model, el }) {
  el.style.display = "none"
  const system = window.matchMedia("(prefers-color-scheme: dark)")
  let dark = system.matches
  const begin = () => {
    dark = chosen() ? chosen() === "dark" : system.matches
    for (const page of pages()) page.dark_theme = dark
  }
  const note = (page) => {
    if (page.dark_theme === dark) return
    dark = page.dark_theme
    remember(dark)
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
