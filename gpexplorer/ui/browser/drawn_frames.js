export function render({ model, el }) {
  el.style.display = "none"
  model.on("beat", () => {
    const beat = model.beat
    requestAnimationFrame(() => setTimeout(() => model.send_msg(beat), 0))
  })
}
