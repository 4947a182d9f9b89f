export function render({ model, el }) {
  const create = (tag, props = {}, ...children) => {
    const element = Object.assign(document.createElement(tag), props)
    element.append(...children)
    return element
  }
  const search = create("input", { type: "search", placeholder: "Search columns" })
  search.setAttribute("aria-label", "Search columns")
  const all = create("button", { type: "button", textContent: "Tick all" })
  const none = create("button", { type: "button", textContent: "Untick all" })
  const list = create("div", { className: "list" })
  list.setAttribute("role", "group")
  list.setAttribute("aria-label", "Input columns")
  const count = create("span", { className: "count" })
  el.append(create("div", { className: "top" }, search, all, none, count), list)
  let rows = []

  const shown = (index) => !rows[index].hidden && !rows[index].querySelector("input").disabled
  const send = (indices, use) => model.send_msg(indices.map((index) => [index, use]))
  const several = (use) => send(rows.map((_, index) => index).filter(shown), use)
  all.onclick = () => several(true)
  none.onclick = () => several(false)
  search.oninput = () => {
    const wanted = search.value.trim().toLowerCase()
    rows.forEach((row, index) => { row.hidden = !model.lines[index][0].toLowerCase().includes(wanted) })
  }
  const fill = () => {
    rows = model.lines.map(([name, kind, remark, cells, usable], index) => {
      const box = create("input", { type: "checkbox", onchange: () => send([index], box.checked) })
      const words = create("span", { className: "words" },
        create("b", { textContent: name }), create("i", { textContent: kind }),
        create("small", { textContent: remark }), create("code", { textContent: cells }))
      box.setAttribute("aria-label", name)
      return create("label", {}, box, words)
    })
    list.replaceChildren(...rows)
    search.oninput()
    show()
  }
  const show = () => {
    const ticked = new Set(model.ticked)
    rows.forEach((row, index) => {
      const box = row.querySelector("input")
      box.checked = ticked.has(index)
      box.disabled = index === model.target || index === model.group || !model.lines[index][4]
      row.classList.toggle("target", index === model.target)
      row.classList.toggle("group", index === model.group)
    })
    count.textContent = `${ticked.size} of ${rows.length} columns are inputs`
  }
  fill()
  model.on("lines", fill)
  for (const name of ["ticked", "target", "group"]) model.on(name, show)
}
