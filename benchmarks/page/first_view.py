"""What a newcomer sees before a click: how much there is to press and to read, where the data begin, what ten swaps do.

Words are tokens with a letter, those that pictures draw among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..hammer.measurement import Measurement

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SIZES = ((1440, 900), (390, 844))
SHOWN = 5  # the swap at which words are counted: all labels are there
STEPS = 10
LEAST_SHARE, MOST_CONTROLS, MOST_WORDS, MOST_PIXELS = 80.0, 15, 60, 150

SEEN = """() => {
  const shown = (box) => box.width > 1 && box.height > 1 && box.bottom > 0 && box.right > 0 &&
    box.top < window.innerHeight && box.left < window.innerWidth
  const pressed = "button, a[href], input, select, textarea, [role=button], [role=slider], [tabindex='0']"
  let controls = 0
  const texts = []
  const walk = (root) => {
    for (const part of root.children) {
      const style = getComputedStyle(part)
      if (style.display === "none" || style.visibility === "hidden" || part.matches("style, script")) continue
      const visible = shown(part.getBoundingClientRect())
      if (visible && part.matches(pressed)) controls += 1
      if (visible) for (const node of part.childNodes) if (node.nodeType === 3) texts.push(node.textContent)
      if (part.shadowRoot) walk(part.shadowRoot)
      walk(part)
    }
  }
  walk(document.body)
  for (const figure of Bokeh.documents.flatMap((drawn) => drawn.roots()).filter((root) => root.type === "Figure")) {
    if (!figure.left) continue
    const axes = [...figure.below, ...figure.left].filter((axis) => axis.visible && axis.axis_label)
    texts.push(...axes.map((axis) => axis.axis_label))
    for (const renderer of figure.renderers)
      if (renderer.data_source.name === "labels") texts.push(...(renderer.data_source.data.text ?? []))
  }
  return [controls, texts.join(" ").split(/\\s+/).filter((word) => /\\p{L}/u.test(word)).length]
}"""


def measured_screens(browser: Browser, address: str) -> list[Measurement]:
    """Measure the first screen of a server at both sizes.

    Parameters
    ----------
    browser : playwright Browser
        Where it is opened.
    address : str
        Of the explorer.

    Returns
    -------
    list of Measurement
        Four per size.
    """
    rows = []
    for width, height in SIZES:
        page = browser.new_page(viewport={"width": width, "height": height})
        page.goto(f"{address}?page=first")
        page.locator("[data-ready=yes]").wait_for()
        rows += measured_view(page, f"first view at {width} x {height}")
        page.close()
    return rows


def measured_view(page: Page, name: str) -> list[Measurement]:
    """Measure a first screen that is open; it is left at swap `SHOWN`."""
    start, later = (distance(page, swap) for swap in (0, STEPS))
    distance(page, SHOWN)
    controls, words = page.evaluate(SEEN)
    box = page.locator(".picture.data").bounding_box()
    top, share = box["y"] if box else float("inf"), 100 * (1 - later / start)
    return [
        Measurement(
            f"{name}: share of the distance to the exact model that {STEPS} swaps close", f"{share:.0f} %",
            f"{LEAST_SHARE:.0f} %", share >= LEAST_SHARE,
        ),
        Measurement(f"{name}: things to press", str(controls), f"at most {MOST_CONTROLS}", controls <= MOST_CONTROLS),
        Measurement(f"{name}: words", str(words), f"at most {MOST_WORDS}", words <= MOST_WORDS),
        Measurement(f"{name}: pixels above the data", f"{top:.0f}", f"at most {MOST_PIXELS}", top <= MOST_PIXELS),
    ]  # fmt: skip


def distance(page: Page, swap: int) -> float:
    """Go to this swap and return the distance to the exact model, in nat."""
    page.locator("input[type=range]").fill(str(swap))
    page.wait_for_timeout(200)
    return float(page.locator(".number b").inner_text())
