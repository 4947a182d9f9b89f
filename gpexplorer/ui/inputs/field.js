let count = 0
const written = (value) => {
  if (typeof value !== "number") return ""
  const size = Math.abs(value)
  const text = size && (size >= 1e7 || size < 1e-4) ? value.toExponential(6) : String(Number(value.toPrecision(10)))
  return text.replace(/\.?0+e\+?/, "e").replace("-", "−")
}
const read = (text) => {
  const typed = text.trim().replace("−", "-")
  const grouped = /^[+-]?[1-9]\d{0,2}([ ,]\d{3})+(\.\d*)?$/.test(typed)
  return Number((grouped ? typed.replace(/[ ,]/g, "") : typed.replace(/^([^.,]*),(\d+)$/, "$1.$2")) || NaN)
}
const create = (tag, props = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), props)
  element.append(...children)
  return element
}

export function render({ model, el }) {
  const id = `field${++count}`
  const slide = model.kind === "whole" && model.start != null && model.end != null
  const label = create("label", { htmlFor: id, textContent: model.label })
  const reset = create("button", { type: "button", className: "reset", textContent: "↺" })
  reset.title = "Reset to the default"
  reset.setAttribute("aria-label", `Reset ${model.label}`)
  const more = create("button", { type: "button", className: "more", textContent: "?", title: "What is this?" })
  more.setAttribute("aria-label", `About ${model.label}`)
  more.setAttribute("aria-expanded", "false")
  const head = create("div", { className: "head" }, label, ...(model.default == null ? [] : [reset]))
  const row = create("div", { className: "row" })
  const about = create("div", { className: "about", hidden: true })
  const zero = create("div", { className: "zero", id: `${id}zero`, hidden: true })
  const send = (value) => model.send_msg(value)
  let input, range, marks

  if (model.kind === "choice") {
    input = create("select", { id, onchange: () => send(Number(input.value)) })
    row.append(input)
  } else if (model.kind === "switch") {
    input = create("input", { id, type: "checkbox", onchange: () => send(input.checked) })
    head.prepend(input)
  } else {
    input = create("input", { id, type: "text", inputMode: "decimal", autocomplete: "off" })
    input.setAttribute("role", "spinbutton")
    input.setAttribute("aria-describedby", zero.id)
    const commit = () => {
      const value = read(input.value)
      if (Number.isFinite(value) && value !== model.shown) send(value)
      else show()
    }
    input.onchange = commit
    input.onkeydown = (event) => {
      const step = { ArrowUp: 1, ArrowDown: -1 }[event.key]
      if (event.key === "Enter") commit()
      if (!step) return
      event.preventDefault()
      const value = read(input.value)
      const size = model.kind === "whole" ? 1 : 10 ** Math.floor(Math.log10(Math.abs(value) || 1) - 0.5)
      input.value = written(Number((value + step * size).toPrecision(10)))
    }
    if (slide) {
      marks = create("datalist", { id: `${id}marks` })
      range = create("input", { type: "range", step: 1, title: "The mark is the default" })
      range.setAttribute("list", marks.id)
      range.setAttribute("aria-label", `${model.label}, slider`)
      range.oninput = () => { input.value = written(Number(range.value)) }
      range.onchange = () => send(Number(range.value))
      row.append(range, marks)
    }
    row.append(input)
    if (model.unit) row.append(create("span", { className: "unit", textContent: model.unit }))
  }

  const fill = () => {
    let index = 0
    input.replaceChildren(...model.groups.flatMap(([title, labels]) => {
      const options = labels.map((text) => create("option", { value: index++, textContent: text }))
      return title ? [create("optgroup", { label: title }, ...options)] : options
    }))
  }
  const show = () => {
    if (model.kind === "choice") input.value = model.shown == null ? "" : String(model.shown)
    else if (model.kind === "switch") input.checked = Boolean(model.shown)
    else {
      input.value = written(model.shown)
      input.setAttribute("aria-valuenow", model.shown ?? "")
      if (range) {
        range.min = Math.min(model.start, model.shown ?? model.start)
        range.max = Math.max(model.end, model.shown ?? model.end)
        range.value = model.shown
      }
    }
    const isBelow = model.kind === "whole" && model.shown < 0  // -1 and -2 are automatic as well
    zero.textContent = zero.title = isBelow ? "automatic" : model.zero
    zero.hidden = !zero.textContent || (model.shown !== 0 && !isBelow)
    const changed = model.default != null && model.shown !== model.default
    el.classList.toggle("changed", changed)
    reset.hidden = !changed || model.disabled
    for (const control of [input, range]) if (control) control.disabled = model.disabled
    if (marks) marks.replaceChildren(...(model.default == null ? [] : [create("option", { value: model.default })]))
  }
  const explain = () => {
    about.replaceChildren(...(model.hint ? [create("p", { textContent: model.hint })] : []))
    if (model.equation && window.katex) {
      const formula = create("div", { className: "formula" })
      formula.innerHTML = window.katex.renderToString(model.equation, { output: "mathml", throwOnError: false })
      about.append(formula)
    }
  }
  reset.onclick = () => send(model.default)
  more.onclick = () => {
    about.hidden = !about.hidden
    more.setAttribute("aria-expanded", String(!about.hidden))
    if (!about.hidden) explain()
  }
  if (model.kind === "whole" || model.kind === "number") head.append(zero)
  if (model.hint || model.equation) head.append(more)
  if (model.bare) el.classList.add("bare")
  el.append(head, ...(model.kind === "switch" ? [] : [row]), about)
  if (model.kind === "choice") fill()
  show()
  model.on("groups", () => { fill(); show() })
  for (const name of ["shown", "zero", "default", "disabled"]) model.on(name, show)
  model.on("label", () => { label.textContent = model.label })
  model.on("hint", () => about.hidden || explain())
}
