export function render({ model, el }) {
  const button = document.createElement("button")
  button.type = "button"
  const name = `Copy ${model.what}`
  const say = (words) => { button.textContent = words }
  const show = () => { button.disabled = !model.copied; say(name) }
  const byHand = () => {
    const area = document.createElement("textarea")
    area.value = model.copied
    document.body.append(area)
    area.select()
    const done = document.execCommand("copy")
    area.remove()
    return done
  }
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(model.copied)
      return true
    } catch { return byHand() }
  }
  button.onclick = async () => {
    say(await copy() ? "Copied" : "Select the text and press Ctrl+C")
    setTimeout(show, 1500)
  }
  model.on("copied", show)
  show()
  el.append(button)
}
