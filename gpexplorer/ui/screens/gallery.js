const NAMESPACE = "http://www.w3.org/2000/svg"
const dots = (places, r) => places.map(([x, y]) => `M${x - r} ${y}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0`).join("")
const wave = (high, waves, level) => "M0 " + level + Array.from({ length: 41 }, (_, i) =>
  `L${3 * i} ${(level - high * Math.sin((Math.PI * waves * i) / 40)).toFixed(1)}`).join("")
const scattered = (count, shift) => Array.from({ length: count }, (_, i) => [(i * 47 + shift) % 116 + 2, (i * 31 + 7 * shift) % 56 + 4])
const triangles = (xs) => xs.map((x) => `M${x} 50l5 9h-10z`).join("")
const SKETCHES = {  // kind of method: [class, path] of each part of its picture
  swaps: [["soft", wave(18, 3, 26)], ["fill", triangles([30, 58, 84, 108])], ["line", "M12 48Q34 8 58 46"], ["hollow", triangles([12])]],
  blocks: [["dim", dots(scattered(40, 5), 1.6)], ["fill", dots(scattered(40, 5).filter((_, i) => i % 5 === 0), 4)]],
  eigenfunctions: [["soft", wave(20, 1, 34)], ["soft", wave(14, 2, 34)], ["soft", wave(9, 3, 34)], ["line", wave(24, 2.5, 34)]],
  folds: [["line", "M4 56C40 52 60 28 116 26"], ["soft", "M4 50C40 18 70 30 116 26"], ["soft", "M4 56C50 60 70 36 116 27"], ["soft", "M4 54C30 34 60 14 116 25"]],
  minibatches: [["dim", dots(scattered(40, 3), 1.6)], ["fill", dots(scattered(40, 11).slice(0, 7), 3)], ["line", "M4 8l10 26 10-8 10 18 12-6 12 10 14-3 14 5 14-1 16 2"]],
  neighbours: [["dim", dots(scattered(30, 9), 1.8)], ["soft", "M60 32L44 20M60 32L78 22M60 32L70 48M60 32L46 46"], ["fill", dots([[60, 32], [44, 20], [78, 22], [70, 48], [46, 46]], 3.4)]],
  all: [["soft", "M8 6V58H116"], ["line", "M12 12L40 44L112 52"], ["line", "M40 14L64 40L112 50"], ["dim", "M12 54H116"]],
}
const draw = (kind) => {
  const svg = document.createElementNS(NAMESPACE, "svg")
  svg.setAttribute("viewBox", "0 0 120 64")
  svg.setAttribute("aria-hidden", "true")
  svg.setAttribute("class", kind)
  for (const [look, path] of SKETCHES[kind] ?? SKETCHES.all) {
    const part = document.createElementNS(NAMESPACE, "path")
    part.setAttribute("class", look)
    part.setAttribute("d", path)
    svg.append(part)
  }
  return svg
}

export function render({ model, el }) {
  const part = (tag, text = "", more = {}) => Object.assign(document.createElement(tag), { textContent: text, ...more })
  const root = part("div", "", { className: "lesson side-by-side gallery" })
  const main = document.createElement("main")
  main.append(part("h1", model.notice || "Begin with a story or a question.", { className: "say" }))
  for (const [title, cards] of model.groups) {
    const list = part("div", "", { className: "cards" })
    for (const card of cards) {
      const link = part("a", "", { href: card.address, className: "card" })
      link.append(draw(card.kind), part("b", card.title), part("span", card.line))
      list.append(link)
    }
    main.append(part("h2", title), list)
  }
  const header = document.createElement("header")
  const nav = document.createElement("nav")
  nav.setAttribute("aria-label", "Pages")
  header.append(part("a", "gpexplorer", { className: "word", href: "?page=first" }), nav)
  root.append(header, main)
  el.append(root)
  const bar = gpexplorerShell.fill_bar(root, nav, model.links, () => {})
  root.dataset.ready = "yes"
  model.on("remove", bar.close)
}
