const picture_of = (svg) => {
  const picture = new DOMParser().parseFromString(svg, "image/svg+xml").documentElement
  picture.setAttribute("aria-hidden", "true")
  return picture
}

export function render({ model, el }) {
  const part = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more })
  const root = part("div", "", { className: "lesson side-by-side gallery" })
  const main = document.createElement("main")
  main.append(part("h1", model.notice || "Begin with a story or a question.", { className: "say" }))
  for (const [title, cards] of model.groups) {
    const list = part("div", "", { className: "cards" })
    for (const card of cards) {
      const link = part("a", "", { href: card.address, className: "card" })
      const words = part("div")
      words.append(part("b", card.title), part("span", card.line))
      link.append(...(card.picture ? [picture_of(card.picture)] : []), words)
      list.append(link)
    }
    main.append(part("h2", title), list)
  }
  const header = document.createElement("header")
  const nav = document.createElement("nav")
  nav.setAttribute("aria-label", "Pages")
  header.append(part("a", "gpexplorer", { className: "word", href: "?page=first" }), nav)
  root.append(header, main)
  el.append(root)
  const bar = gpexplorerShell.fill_bar(root, nav, model.links, () => {})
  root.dataset.ready = "yes"
  model.on("remove", bar.close)
}
