const VERBS = {  // key: the path drawn on the button
  "m7 14 5-5 5 5z": "Increase",
  "M19 13h-6v6h-2v-6H5v-2h6V5h2v6h6z": "Increase",
  "m7 10 5 5 5-5z": "Decrease",
  "M19 13H5v-2h14z": "Decrease",
}

function name(root) {
  const label = root.querySelector("label")?.textContent.replace(/[:\s]+$/, "")
  if (!label) return
  for (const path of root.querySelectorAll("button:not([aria-label]) > svg > path")) {
    const verb = VERBS[path.getAttribute("d")]
    if (verb) path.closest("button").setAttribute("aria-label", `${verb} ${label}`)
  }
}

function look(root) {
  for (const host of root.querySelectorAll("*")) {
    if (!host.shadowRoot) continue
    name(host.shadowRoot)
    look(host.shadowRoot)
  }
}

export function render({ model, el }) {
  el.style.display = "none"
  const again = setInterval(() => document.hidden || look(document), 2000)
  model.on("remove", () => clearInterval(again))
}
