let begun = false  // render runs again whenever the drawer is opened; only the first run closes it

const open = (shown) => {
  for (const page of window.Bokeh?.documents.flatMap((document) => document.roots()) ?? [])
    if (page.data && "sidebar_open" in page.data && page.data.sidebar_open !== shown) page.data.sidebar_open = shown
}

export function render({ model, el }) {
  const heading = document.createElement("div")
  const title = document.createElement("b")
  const button = document.createElement("button")
  title.textContent = "Data and settings"
  Object.assign(button, { type: "button", textContent: "✕", title: "Close", onclick: () => open(false) })
  button.setAttribute("aria-label", "Close data and settings")
  heading.append(title, button)
  const narrow = window.matchMedia(`(max-width: ${model.below - 0.05}px)`)
  const follow = () => {
    el.style.display = narrow.matches ? "" : "none"
    open(!narrow.matches)
  }
  el.append(heading)
  el.style.display = narrow.matches ? "" : "none"
  if (narrow.matches && !begun) for (const wait of [0, 100, 400]) setTimeout(follow, wait)  // once it is drawn
  begun = true
  narrow.addEventListener("change", follow)
  model.on("closings", () => narrow.matches && open(false))
  model.on("remove", () => narrow.removeEventListener("change", follow))
}
