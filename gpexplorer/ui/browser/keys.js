export function render({ model, el }) {
  el.style.display = "none"
  const commands = [" ", "ArrowLeft", "ArrowRight", "r", "s", "u", "?", "Escape"]
  const typed = "input, textarea, select, [role=slider], [role=tab], [role=combobox], [contenteditable=true]"
  const listen = (event) => {
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key
    const target = event.composedPath()[0]
    const typing = target.closest?.(key === " " ? `${typed}, button` : typed)  // space presses a button
    if (!commands.includes(key) || typing || event.ctrlKey || event.metaKey || event.altKey) return
    event.preventDefault()
    model.send_msg(key)
  }
  document.addEventListener("keydown", listen)
  model.on("remove", () => document.removeEventListener("keydown", listen))
}
