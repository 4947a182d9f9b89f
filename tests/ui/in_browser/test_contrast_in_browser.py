"""Words and controls have the contrast that WCAG 2.2 asks for (AA), measured from computed colours in both themes."""

from __future__ import annotations

import time

import pytest

from pages import Seen, until

pytestmark = pytest.mark.ui

CONTRASTS = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true })
  const rgba = (colour) => {  // any CSS colour, as the browser paints it
    canvas.clearRect(0, 0, 1, 1)
    canvas.fillStyle = colour
    canvas.fillRect(0, 0, 1, 1)
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data
    return [r, g, b, a / 255]
  }
  const over = (top, below) => [0, 1, 2].map((k) => top[3] * top[k] + (1 - top[3]) * below[k])
  const light = (colour) => {
    const [r, g, b] = colour.map((v) => (v /= 255, v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    return 0.2126 * r + 0.7152 * g + 0.0722 * b
  }
  const parent = (one) => one.assignedSlot ?? one.parentElement ?? one.getRootNode().host ?? null
  const paper = (one) => {
    const layers = []
    for (let at = one; at; at = parent(at)) layers.push(rgba(getComputedStyle(at).backgroundColor))
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255])
  }
  const opacity = (one) => {
    let all = 1
    for (let at = one; at; at = parent(at)) all *= Number(getComputedStyle(at).opacity)
    return all
  }
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
      const skipped = disabled || one.closest("[aria-hidden=true]") || style.position === "fixed"
      if ((words || typed) && box.width > 2 && box.height > 2 && !skipped && !one.matches("style, script, option")) {
        const below = paper(one)
        const [r, g, b, a] = rgba(style.color)
        const ink = over([r, g, b, a * opacity(one)], below)
        const [low, high] = [light(ink), light(below)].sort((p, q) => p - q)
        found.push([(words || typed).slice(0, 40), (high + 0.05) / (low + 0.05)])
      }
      if (one.shadowRoot) walk(one.shadowRoot)
      walk(one)
    }
  }
  walk(document.body)
  return found
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_in_both_themes(seen: Seen, theme: str):
    def is_dark() -> bool:
        return seen.page.locator(".mui-dark").count() > 0

    seen.page.get_by_role("tab", name="Calibration").wait_for()
    seen.page.get_by_label("Device", exact=True).wait_for()
    if is_dark() != (theme == "dark"):
        seen.press("Toggle theme")
        until(lambda: is_dark() == (theme == "dark"))
    end = time.monotonic() + 10  # colours change over time
    while True:
        measured = seen.page.evaluate(CONTRASTS)
        faint = [entry for entry in measured if entry[1] < 4.5]
        if (len(measured) > 60 and not faint) or time.monotonic() > end:
            break
        seen.page.wait_for_timeout(300)

    assert len(measured) > 60
    assert faint == []
    assert {"gpexplorer", "Play", "Method", "Data and prediction", "Calibration"} <= {words for words, _ in measured}
    if theme == "dark":
        seen.press("Toggle theme")
        until(lambda: not is_dark())
