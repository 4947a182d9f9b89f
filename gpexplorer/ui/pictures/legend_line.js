export function render({ model, el }) {
  const list = document.createElement("div")
  list.setAttribute("role", "group")
  list.setAttribute("aria-label", "Layers of the picture")
  const fill = () => list.replaceChildren(...model.entries.map(([label, sign, colour, alpha, visible], index) => {
    const button = document.createElement("button")
    const mark = document.createElement("i")
    Object.assign(button, { type: "button", title: visible ? "Hide this layer" : "Show this layer" })
    button.setAttribute("aria-pressed", String(visible))
    mark.textContent = sign
    mark.setAttribute("aria-hidden", "true")
    Object.assign(mark.style, { color: colour, opacity: alpha })
    button.append(mark, label)
    button.onclick = () => model.send_msg(index)
    return button
  }))
  const show = () => {
    fill()
    list.hidden = !model.entries.length
  }
  const caption = document.createElement("p")
  const say = () => {
    const number = document.createElement("b")
    number.textContent = model.caption.startsWith(model.number) ? model.number : ""
    caption.replaceChildren(...(number.textContent ? [number] : []), model.caption.slice(number.textContent.length))
    caption.hidden = !model.caption
  }
  model.on("entries", show)
  for (const name of ["caption", "number"]) model.on(name, say)
  show()
  say()
  el.append(list, caption)
}
