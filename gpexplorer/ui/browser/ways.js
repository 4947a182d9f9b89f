const every = (selector, root = document) => [...root.querySelectorAll(selector),
  ...[...root.querySelectorAll("*")].flatMap((part) => (part.shadowRoot ? every(selector, part.shadowRoot) : []))]

const FILLS = 4000  // milliseconds in which the content of a panel arrives
const bring = (title, waits = 20) => {  // scroll to the panel with this title while it opens and is filled
  const heading = every("button").find((part) => part.textContent.trim() === title)
  const scroll = () => heading?.scrollIntoView({ block: "start", behavior: "smooth" })
  if (heading?.getAttribute("aria-expanded") !== "true") {
    scroll()
    if (waits) setTimeout(() => bring(title, waits - 1), 200)
    return
  }
  const filled = new ResizeObserver(scroll), end = () => filled.disconnect()
  filled.observe(heading.closest(".MuiAccordion-root"))
  for (const act of ["wheel", "pointerdown", "keydown"]) window.addEventListener(act, end, { once: true })
  setTimeout(end, FILLS)
  heading.focus({ preventScroll: true })
}

export function render({ model, el }) {
  const part = (tag, text, more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more })
  const skip = part("button", "Skip to Play", { type: "button", className: "skip" })
  skip.onclick = () => every("button").find((one) => /^Play or pause|^Play|^Pause/.test(one.ariaLabel ?? ""))?.focus()
  const nav = document.createElement("nav")
  nav.setAttribute("aria-label", "Pages and tools")
  const menu = part("button", "Menu", { type: "button", className: "menu" })
  const open = (shown) => { nav.classList.toggle("open", shown); menu.setAttribute("aria-expanded", String(shown)) }
  open(false)
  menu.onclick = () => open(!nav.classList.contains("open"))
  const list = document.createElement("div")
  for (const [label, address] of Object.entries(model.pages)) list.append(part("a", label, { href: address }))
  model.tools.forEach((title, index) => list.append(part("button", title.split(":")[0], {
    type: "button", title, onclick: () => { open(false); model.send_msg(index); bring(title) } })))
  nav.append(menu, list)
  nav.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !nav.classList.contains("open")) return
    open(false)
    menu.focus()
  })
  el.append(skip, nav)
}
