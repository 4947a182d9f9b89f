const SEEN = "gpexplorer-tour"
const seen = () => { try { return localStorage.getItem(SEEN) } catch { return "seen" } }
const remember = () => { try { localStorage.setItem(SEEN, "seen") } catch {} }

function* partsWith(words, root = document) {
  for (const element of root.querySelectorAll("*")) {
    if (element.shadowRoot) yield* partsWith(words, element.shadowRoot)
    const matches = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim().startsWith(words))
    if (matches && element.getClientRects().length) yield element.closest("button") ?? element
  }
}
const find = (words) => {
  const parts = [...partsWith(words)]
  return parts.find((part) => part.tagName === "BUTTON") ?? parts[0] ?? null
}

export function render({ model, el }) {
  let at = -1, marked = null, focused = null
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
    const box = marked?.isConnected ? marked.getBoundingClientRect() : null
    ring.hidden = !box
    if (!box) return
    Object.assign(ring.style, { left: `${box.left - 8}px`, top: `${box.top - 6}px`,
                                width: `${box.width + 16}px`, height: `${box.height + 12}px` })
  }
  const main = () => {  // the part of the page that scrolls, beyond the roots around this element
    let part = el
    while (part && !part.matches("main")) part = part.parentElement ?? part.getRootNode().host
    return part
  }
  const make_room = () => {  // a card over the whole width takes its height from the page, so that it covers nothing
    const docked = !card.hidden && card.offsetWidth === window.innerWidth
    main()?.style.setProperty("padding-bottom", docked ? `${card.offsetHeight}px` : "")
    place()
  }
  const close = () => {
    at = -1
    card.hidden = ring.hidden = true
    window.removeEventListener("scroll", place, true)
    window.removeEventListener("resize", make_room)
    make_room()
  }
  const leave = () => {
    remember()
    close()
    focused?.focus?.()
  }
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
    focused = document.activeElement
    window.addEventListener("scroll", place, true)
    window.addEventListener("resize", make_room)
    show(0)
  }
  card.addEventListener("keydown", (event) => {
    const moves = { Escape: leave, ArrowRight: () => show(at + 1), ArrowLeft: () => show(at - 1) }
    if (moves[event.key]) { event.preventDefault(); moves[event.key]() }
    event.stopPropagation()
  })
  model.on("begun", begin)
  // A page that is still being drawn has the word of the first step in a sentence before it has its button.
  const welcome = (waits) => {
    if (at >= 0 || !el.isConnected) return
    if (waits && find(model.steps[0][0])?.tagName !== "BUTTON") setTimeout(() => welcome(waits - 1), 300)
    else begin()
  }
  if (model.welcome && !seen()) setTimeout(() => welcome(40), 1500)
  model.on("remove", close)
}
