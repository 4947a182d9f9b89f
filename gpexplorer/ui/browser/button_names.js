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

const MORE = {  // what else would be announced without a name or a role: selector -> attributes
  ".MuiAccordion-region[role=region]": { role: "presentation" },  // a landmark without a name
  ".tabulator-col.empty": { "aria-hidden": "true" },  // what is left of a table beside its columns
  "[role=progressbar]:not([aria-label])": { "aria-label": "Progress" },
  "span[aria-label]:not([role])": { role: "img" },
  "div[aria-label]:not([role])": { role: "separator" },
  ".MuiToolbar-root > h5:not([role]), .MuiAccordionSummary-content > h6:not([role])": { role: "presentation" },
}

function complete(root) {
  for (const [selector, attributes] of Object.entries(MORE))
    for (const part of root.querySelectorAll(selector))
      for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value)
}

// A table calls all of itself a grid, also the buttons of its pages, which are none of a grid's rows.
function nameTables(root) {
  for (const table of root.querySelectorAll(".tabulator[role=grid]")) {
    const head = table.querySelector(".tabulator-header"), rows = table.querySelector(".tabulator-tableholder")
    if (!head || !rows) continue
    head.id ||= "tabulator-table-head"
    table.setAttribute("role", "group")
    table.removeAttribute("aria-owns")
    rows.setAttribute("role", "grid")
    rows.setAttribute("aria-label", "Table")
    rows.setAttribute("aria-owns", head.id)
  }
  for (const filter of root.querySelectorAll("input[type=search]:not([aria-label])")) {
    const column = filter.closest(".tabulator-col")?.querySelector(".tabulator-col-title")?.textContent
    filter.setAttribute("aria-label", column ? `Rows whose ${column} contains` : "Search")
  }
}

function look(root) {
  for (const host of root.querySelectorAll("*")) {
    if (!host.shadowRoot) continue
    name(host.shadowRoot)
    complete(host.shadowRoot)
    nameTables(host.shadowRoot)
    look(host.shadowRoot)
  }
}

// Who has pressed a button knows what it does: its tooltip would lie over the page for as long as the mouse rests on it.
function quieten(event) {
  const host = event.composedPath().find((part) => part.shadowRoot)
  if (!host) return
  host.toggleAttribute("pressed", true)
  host.addEventListener("pointerleave", () => host.removeAttribute("pressed"), { once: true })
}

export function render({ model, el }) {
  el.style.display = "none"
  const again = setInterval(() => document.hidden || look(document), 2000)
  document.addEventListener("pointerdown", quieten)
  model.on("remove", () => {
    clearInterval(again)
    document.removeEventListener("pointerdown", quieten)
  })
}
