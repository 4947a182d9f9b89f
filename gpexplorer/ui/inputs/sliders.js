const SVG = "http://www.w3.org/2000/svg"
const PAUSE = 120 // milliseconds between two values that a slider sends while it moves
const digits = (value) => String(Number(value.toPrecision(4))).replace("-", "−")
const create = (tag, props = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), props)
  element.append(...children)
  return element
}
const lockIcon = () => {
  const svg = document.createElementNS(SVG, "svg")
  svg.setAttribute("viewBox", "0 0 16 16")
  svg.setAttribute("aria-hidden", "true")
  for (const [name, d] of [["body", "M3 7h10v7H3z"], ["shut", "M5 7V5a3 3 0 0 1 6 0v2"], ["open", "M5 7V4a3 3 0 0 1 6 0"]]) {
    const path = document.createElementNS(SVG, "path")
    path.setAttribute("d", d)
    path.setAttribute("class", name)
    svg.append(path)
  }
  return svg
}

export function render({ model, el }) {
  const lines = new Map()
  let moving = ""

  const line = (row) => {
    const label = create("span", { className: "name", textContent: row.label, title: row.name })
    const unit = create("span", { className: "unit" })
    const range = create("input", { type: "range", min: 0, max: 1000, step: 1 })
    const input = create("input", { type: "text", inputMode: "decimal", autocomplete: "off" })
    const lock = create("button", { type: "button" }, lockIcon())
    range.setAttribute("aria-label", `${row.label}, slider`)
    input.setAttribute("aria-label", row.unit ? `${row.label} in ${row.unit}` : row.label)
    const place = (value) => (1000 * Math.log(value / parts.row.low)) / Math.log(parts.row.high / parts.row.low)
    const valueAt = (at) => parts.row.low * (parts.row.high / parts.row.low) ** (at / 1000)
    let due = null
    const send = () => {
      due = null
      model.send_msg({ name: row.name, value: valueAt(Number(range.value)) })
    }
    range.oninput = () => {
      moving = row.name
      const value = valueAt(Number(range.value))
      input.value = digits(value)
      range.setAttribute("aria-valuetext", digits(value))
      due ??= setTimeout(send, PAUSE)
    }
    range.onchange = () => {
      clearTimeout(due)
      send()
      moving = ""
    }
    let isTyped = false // and not sent yet
    input.oninput = () => { isTyped = true }
    input.onblur = () => { isTyped = false }
    input.onchange = () => {
      isTyped = false
      const value = Number(input.value.trim().replace("−", "-").replace(",", ".") || NaN)
      if (Number.isFinite(value)) model.send_msg({ name: row.name, value })
      else show()
    }
    lock.onclick = () => model.send_msg({ name: row.name, fixed: !parts.row.fixed })
    const element = create("div", { className: "line" }, create("div", { className: "head" }, label, unit, lock),
      create("div", { className: "row" }, range, input))
    const show = () => {
      const { value, fixed, unit: words, partners, gradient } = parts.row
      const tied = partners.length ? `tied to ${partners.join(", ")}` : ""
      const derivative = gradient ? `gradient ${gradient.replace("-", "−")}` : ""
      unit.textContent = [words, tied, derivative].filter(Boolean).join(", ")
      unit.title = unit.textContent
      lock.setAttribute("aria-pressed", String(fixed))
      lock.setAttribute("aria-label", `Keep ${row.label} fixed`)
      lock.title = fixed ? "Fixed. Press to learn it" : "Learned. Press to keep it fixed"
      if (moving === row.name || isTyped) return
      range.value = place(value)
      range.setAttribute("aria-valuetext", digits(value))
      input.value = digits(value)
    }
    const parts = { row, element, show }
    return parts
  }

  const fill = () => {
    const names = model.rows.map((row) => row.name)
    if (names.join("\n") !== [...lines.keys()].join("\n")) {
      lines.clear()
      for (const row of model.rows) lines.set(row.name, line(row))
      el.replaceChildren(...[...lines.values()].map((parts) => parts.element))
    }
    for (const row of model.rows) {
      const parts = lines.get(row.name)
      parts.row = row
      parts.show()
    }
  }
  model.on("rows", fill)
  fill()
}
