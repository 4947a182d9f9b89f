"""A tour of the page: cards that explain one part of the page each, shown once per browser.

A person can leave the tour at any time, and the page works normally while a card is shown. The part of the page that a
card explains is found by its text (a label or a title), also inside shadow roots.
"""

from __future__ import annotations

from typing import Any

import param
from panel.custom import JSComponent

STEPS = (
    ("Play", "Press Play", "A run advances step by step. You can pause, step back, or drag the bar to any earlier "
     "step. The space bar and the arrow keys do the same."),
    ("Data and prediction", "Look at the data", "Orange triangles are the inducing points. With “Move points” you "
     "can drag one and see how the bound changes. With “Edit rows” a click adds a row."),
    ("Swap landscape", "See why", "Each tab answers one question about the method. In the landscape, a click on a "
     "row forces its swap, and Undo restores the previous points."),
    ("Compare: runs you keep", "Compare", "Keep a run, change one setting, and keep the next run. The panels below "
     "race several methods in equal turns and predict the cost for larger data."),
    ("Link, code and files", "Save and share", "Here are a link that opens this screen, a program that "
     "reproduces its numbers, a notebook, and the pictures as files."),
)  # fmt: skip


class Tour(JSComponent):
    """The tour starts by itself in a browser that has not seen it; `begin` starts it again."""

    steps = param.List(default=[list(step) for step in STEPS], doc="Text to find, title and sentence of each card.")
    begun = param.Integer(0, doc="How often the tour was started on request.")
    welcome = param.Boolean(True, doc="Whether the tour starts by itself the first time.")

    _esm = """
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
      const close = () => {
        at = -1
        card.hidden = ring.hidden = true
        window.removeEventListener("scroll", place, true)
        window.removeEventListener("resize", place)
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
        marked?.scrollIntoView({ block: "center" })
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
        next.focus({ preventScroll: true })
        setTimeout(place, 60)
      }
      const begin = () => {
        focused = document.activeElement
        window.addEventListener("scroll", place, true)
        window.addEventListener("resize", place)
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
    """
    _stylesheets = [  # noqa: RUF012 - Panel declares it as a plain list
        """
        .card { position: fixed; right: 20px; bottom: 20px; z-index: 1300; width: min(340px, calc(100vw - 40px));
                box-sizing: border-box; padding: 16px 18px 12px; border-radius: 10px;
                font: 14px/1.5 system-ui, sans-serif;
                color: var(--mui-palette-text-primary, #22303c); background: var(--mui-palette-background-paper, #fff);
                box-shadow: 0 8px 30px rgba(0, 0, 0, .28); }
        .card b { font-size: 15px; } .card p { margin: 4px 0 12px; }
        .card div { display: flex; align-items: center; gap: 6px; }
        .card span { flex: 1; font-size: 12px; opacity: .7; }
        button { border: 0; border-radius: 6px; padding: 5px 12px; font: inherit; cursor: pointer; background: none;
                 color: var(--mui-palette-primary-main, #0b6e99); }
        button.next { background: var(--mui-palette-primary-main, #0b6e99);
                      color: var(--mui-palette-primary-contrastText, #fff); }
        button:focus-visible { outline: 2px solid var(--mui-palette-primary-main, #0b6e99); outline-offset: 2px; }
        .ring { position: fixed; z-index: 1299; pointer-events: none; border-radius: 8px;
                border: 2px solid var(--mui-palette-primary-main, #0b6e99); }
        [hidden] { display: none; }
        """
    ]

    def begin(self, _: Any = None) -> None:
        """Start the tour, whether or not this browser has seen it."""
        self.begun += 1
