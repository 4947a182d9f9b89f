export function render({ model, el }) {
  el.style.display = "none"
  const show = () => {
    const [query, isNew] = model.entry
    if (query === undefined || query === location.search) return
    history[isNew ? "pushState" : "replaceState"](null, "", location.pathname + query)
  }
  const back = () => model.send_msg(location.search)
  model.on("entry", show)
  show()
  addEventListener("popstate", back)
  model.on("remove", () => removeEventListener("popstate", back))
}
