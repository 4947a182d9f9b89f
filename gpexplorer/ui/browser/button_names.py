"""Names for the buttons that raise and lower a number: panel-material-ui 0.16 leaves them as "button" and no more."""

from __future__ import annotations

from panel.custom import JSComponent


class Naming(JSComponent):
    """Looks through the widgets now and then, for they come and go; nothing to see."""

    _esm = """
    const VERBS = {  // by what is drawn on the button
      "m7 14 5-5 5 5z": "Increase",
      "M19 13h-6v6h-2v-6H5v-2h6V5h2v6h6z": "Increase",
      "m7 10 5 5 5-5z": "Decrease",
      "M19 13H5v-2h14z": "Decrease",
    }

    function name(root) {
      const label = root.querySelector("label")?.textContent.replace(/[:\\s]+$/, "")
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
    """
