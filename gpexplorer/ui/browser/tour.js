function* partsWith(words, root = document) {
  for (const element of root.querySelectorAll("*")) {
    if (element.shadowRoot) yield* partsWith(words, element.shadowRoot)
    const matches = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim().startsWith(words))
    if (matches && element.getClientRects().length) yield element.closest("button") ?? element
  }
}
const above = (part, selector) => {  // the nearest part around this one that matches, beyond the roots between them
  while (part && !part.matches(selector)) part = part.parentElement ?? part.getRootNode().host
  return part ?? null
}
const find = (words) => {  // the button with these words, or the picture with this title
  const parts = [...partsWith(words)]
  const part = parts.find((part) => part.tagName === "BUTTON") ?? parts[0] ?? null
  return above(part, ".picture") ?? part
}

const GAP = 18, EDGE = 12, BAR = 60  // pixels: to what is marked, to the edge of the window, and of the title bar
function besides(box, width, height) {  // where a card of this size covers neither what is marked nor the title bar
  const [right, bottom] = [window.innerWidth - EDGE - width, window.innerHeight - EDGE - height]
  const [x, y] = [Math.max(EDGE, Math.min(box.left, right)), Math.max(BAR, Math.min(box.top, bottom))]
  const places = [[x, box.bottom + GAP], [box.right + GAP, y], [x, box.top - GAP - height], [box.left - GAP - width, y]]
  return places.find(([x, y]) => x >= EDGE && x <= right && y >= BAR && y <= bottom)
}

export function render({ model, el }) {
  let at = -1, marked = null, focused = null, timer = 0
  const card = document.createElement("div")
  const ring = document.createElement("div")
  card.setAttribute("role", "dialog")
  card.setAttribute("aria-label", "Tour")
  card.hidden = ring.hidden = true
  ring.className = "ring"
  card.className = "card"
  el.append(ring, card)
  const button = (words, act, kind = "") => {
    const control = document.createElement("button")
    Object.assign(control, { textContent: words, className: kind, type: "button", onclick: act })
    return control
  }
  const place = () => {
    if (at >= 0 && !marked?.isConnected) marked = find(model.steps[at][0])  // a picture that was still being drawn
    const box = marked?.isConnected ? marked.getBoundingClientRect() : null
    ring.hidden = !box
    const docked = card.offsetWidth === window.innerWidth
    const [left, top] = (box && !docked && besides(box, card.offsetWidth, card.offsetHeight)) || []
    Object.assign(card.style, top === undefined ? { left: "", top: "", bottom: "" }
                                                : { left: `${left}px`, top: `${top}px`, bottom: "auto" })
    if (!box) return
    Object.assign(ring.style, { left: `${box.left - 8}px`, top: `${box.top - 6}px`,
                                width: `${box.width + 16}px`, height: `${box.height + 12}px` })
  }
  const make_room = () => {  // a card over the whole width takes its height from the page, so that it covers nothing
    const docked = !card.hidden && card.offsetWidth === window.innerWidth
    above(el, "main")?.style.setProperty("padding-bottom", docked ? `${card.offsetHeight}px` : "")
    place()
  }
  const close = () => {
    at = -1
    marked = null
    clearInterval(timer)
    card.hidden = ring.hidden = true
    document.removeEventListener("keydown", escape)
    window.removeEventListener("scroll", place, true)
    window.removeEventListener("resize", make_room)
    make_room()
  }
  const leave = () => {
    close()
    focused?.focus?.()
  }
  const escape = (event) => { if (event.key === "Escape") leave() }  // also where the keyboard has left the card
  const show = (to) => {
    if (to >= model.steps.length) return leave()
    at = Math.max(to, 0)
    const [words, title, sentence] = model.steps[at]
    marked = find(words)
    const [head, body, row] = ["b", "p", "div"].map((tag) => document.createElement(tag))
    head.textContent = title
    body.textContent = sentence
    const count = document.createElement("span")
    count.textContent = `${at + 1} of ${model.steps.length}`
    const last = at === model.steps.length - 1
    const next = button(last ? "Done" : "Next", () => show(at + 1), "next")
    row.append(count, button("Leave", leave), ...(at ? [button("Back", () => show(at - 1))] : []), next)
    card.replaceChildren(head, body, row)
    card.hidden = false
    make_room()
    marked?.scrollIntoView({ block: "center" })
    next.focus({ preventScroll: true })
    setTimeout(place, 60)
  }
  const begin = () => {
    document.addEventListener("keydown", escape)
    focused = document.activeElement
    while (focused?.shadowRoot?.activeElement) focused = focused.shadowRoot.activeElement
    window.addEventListener("scroll", place, true)
    window.addEventListener("resize", make_room)
    clearInterval(timer)
    timer = setInterval(place, 400)  // the page may still be growing
    show(0)
  }
  card.addEventListener("keydown", (event) => {
    const moves = { Escape: leave, ArrowRight: () => show(at + 1), ArrowLeft: () => show(at - 1) }
    if (moves[event.key]) { event.preventDefault(); moves[event.key]() }
    event.stopPropagation()
  })
  model.on("begun", begin)
  model.on("remove", close)
}
