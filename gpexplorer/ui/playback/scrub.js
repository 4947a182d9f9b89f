export function render({ model, el }) {
  const box = document.createElement("label")
  const caption = document.createElement("span")
  const range = document.createElement("input")
  Object.assign(range, { type: "range", min: 0, step: 1, title: "Drag to see any earlier step" })
  range.setAttribute("aria-label", "Step shown")
  box.append(caption, range)
  let dragging = false
  const show = () => {
    range.max = Math.max(model.last, 1)
    range.disabled = model.last < 1
    if (!dragging) range.value = model.at
    caption.textContent = `Step ${range.value} of ${model.last}`
  }
  range.addEventListener("input", () => {
    dragging = true
    caption.textContent = `Step ${range.value} of ${model.last}`
    model.send_msg(Number(range.value))
  })
  range.addEventListener("change", () => { dragging = false; model.send_msg(Number(range.value)) })
  model.on("at", show)
  model.on("last", show)
  show()
  el.append(box)
}
