"""What can be wrong with the looks of a page in a browser: parts that overlap or are cut, and words too faint."""

from __future__ import annotations

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

READABLE, VISIBLE = 4.5, 3.0  # contrasts of words and of the signs of controls that WCAG 2.2 asks for (AA)

# Seen from the top of the page: what a browser has scrolled away lies behind the title bar.
BOXES = """() => {
  const cards = [], parts = []
  const skipped = "[role=tooltip], .MuiTooltip-popper, .MuiBackdrop-root, [aria-hidden=true], style, .katex-html"
  const whole = "button, input, select, .MuiFormControl-root, .bk-Figure, [role=tab]"
  const walk = (root, path) => {
    for (const one of root.children) {
      const style = getComputedStyle(one)
      if (one.matches(skipped) || style.display === "none" || style.visibility === "hidden" || style.opacity === "0")
        continue
      if (one.matches(".main-content")) one.scrollTo({ top: 0, behavior: "instant" })
      const box = one.getBoundingClientRect()
      const words = [...one.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim())
      const control = one.matches(whole)
      const name = one.tagName.toLowerCase() + " " + (one.ariaLabel || one.innerText || one.className || "")
      const entry = { name: String(name).slice(0, 50), left: box.left, right: box.right, top: box.top,
                      bottom: box.bottom, path: [...path, parts.length],
                      cut: words && style.overflowX !== "visible" && one.scrollWidth > one.clientWidth + 1 }
      const seen = box.width > 2 && box.height > 2 && style.position !== "fixed"
      if (one.classList.contains("picture") && seen) cards.push(entry)
      const inside = seen && (words || control) ? entry.path : path
      if (seen && (words || control)) parts.push(entry)
      if (!control && !one.matches("svg, .katex")) {
        if (one.shadowRoot) walk(one.shadowRoot, inside)
        walk(one, inside)
      }
    }
  }
  walk(document.querySelector("body"), [])
  return { cards, parts, width: window.innerWidth }
}"""
CONTRASTS = """([readable, visible]) => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
  const once = (compute, known = new Map()) => (key) => {
    if (!known.has(key)) known.set(key, compute(key))
    return known.get(key)
  }
  const rgba = once((colour) => {  // any CSS colour, as the browser paints it
    canvas.clearRect(0, 0, 1, 1)
    canvas.fillStyle = colour
    canvas.fillRect(0, 0, 1, 1)
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
    return [r, g, b, a / 255]
  })
  const over = (top, below) => [0, 1, 2].map((k) => top[3] * top[k] + (1 - top[3]) * below[k])
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const parent = (one) => one.assignedSlot ?? one.parentElement ?? one.getRootNode().host ?? null
  const paper = once((one) =>
    one ? over(rgba(getComputedStyle(one).backgroundColor), paper(parent(one))) : [255, 255, 255])
  const opacity = once((one) =>
    one ? (Number(getComputedStyle(one).opacity) || 1) * opacity(parent(one)) : 1)  // 0: not pointed at
  const found = []
  const walk = (root) => {
    for (const one of root.children) {
      const style = getComputedStyle(one)
      if (style.display === "none" || style.visibility === "hidden") continue
      const box = one.getBoundingClientRect()
      const own = [...one.childNodes].filter((node) => node.nodeType === 3)
      const words = own.map((node) => node.textContent.trim()).join(" ").trim()
      const typed = one.matches("input[type=text], select") ? one.value || "value" : ""
      const disabled = one.closest("[disabled], [aria-disabled=true], .Mui-disabled, :disabled")
      const button = one.matches("button > svg") ? one.parentElement : null
      const icon = button ? "sign of " + (button.ariaLabel || button.title || button.innerText) : ""
      const hidden = (!icon && one.closest("[aria-hidden=true]")) || one.matches("style, script, option")
      const skipped = disabled || hidden || style.position === "fixed"
      if ((words || typed || icon) && box.width > 2 && box.height > 2 && !skipped) {
        const below = paper(one)
        const [r, g, b, a] = rgba(icon && style.fill !== "none" ? style.fill : style.color)
        const ink = over([r, g, b, a * opacity(one)], below)
        const [low, high] = [light(ink), light(below)].sort((p, q) => p - q)
        found.push([(words || typed || icon).slice(0, 40), (high + 0.05) / (low + 0.05), icon ? visible : readable])
      }
      if (one.shadowRoot) walk(one.shadowRoot)
      walk(one)
    }
  }
  walk(document.body)
  return found
}"""


def overlap(one: dict, other: dict, tolerance: float = 2.0) -> bool:
    """Whether two boxes intersect by more than a rounding, and neither is a part of the other."""
    if one["path"][: len(other["path"])] == other["path"] or other["path"][: len(one["path"])] == one["path"]:
        return False
    wide = min(one["right"], other["right"]) - max(one["left"], other["left"])
    high = min(one["bottom"], other["bottom"]) - max(one["top"], other["top"])
    return wide > tolerance and high > tolerance


def faults(boxes: dict) -> list[str]:
    """What intersects, and what reaches beyond the window."""
    found = [
        f"{one['name']} over {other['name']}"
        for listed in (boxes["cards"], boxes["parts"])
        for k, one in enumerate(listed)
        for other in listed[:k]
        if overlap(one, other)
    ]
    beyond = [part["name"] for part in boxes["parts"] if part["right"] > boxes["width"] + 1 or part["left"] < -1]
    cut = [part["name"] for part in boxes["parts"] if part["cut"]]
    return found + [f"{name} beyond the window" for name in beyond] + [f"{name} is cut" for name in cut]


def contrasts(page: Page) -> list[list]:
    """Each word and each sign of a button on this page, with its contrast and the least that it should have."""
    return page.evaluate(CONTRASTS, [READABLE, VISIBLE])


def faint(measured: list[list]) -> list[list]:
    """The words and signs that `contrasts` found with too little contrast."""
    return [entry for entry in measured if entry[1] < entry[2]]


def violations(page: Page) -> list[tuple[str, list[str]]]:
    """The rules of axe-core that a page breaks, with the elements.

    Without `preload`, which loads all style sheets a second time and takes longer than all rules together. Two rules
    need it: one is experimental and off, and one is about sound and films that begin by themselves, and there are none.
    """
    found = Axe().run(page, options={"preload": False}).response["violations"]
    return [(rule["id"], [node["html"][:160] for node in rule["nodes"]]) for rule in found]
