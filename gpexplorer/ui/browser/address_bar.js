export function render({ model, el }) {
  el.style.display = "none"
  let backs = 0  // how often a person went Back or Forward: what the server wrote before it heard of that is too late
  const show = () => {
    const [query, isNew, heard] = model.entry
    if (query === undefined || query === location.search || heard < backs) return
    history[isNew ? "pushState" : "replaceState"](null, "", location.pathname + query)
  }
  const back = () => model.send_msg([location.search, ++backs])
  model.on("entry", show)
  show()
  addEventListener("popstate", back)
  model.on("remove", () => removeEventListener("popstate", back))
}
