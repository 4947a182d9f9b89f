"""At every size of the screen, nothing on the page overlaps and nothing is cut."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from pages import Seen, until

pytestmark = pytest.mark.ui

SIZES = ((2560, 1440), (1920, 1080), (1440, 900), (1024, 768), (700, 900), (390, 844))
BOXES = """() => {
  const cards = [], parts = []
  const skipped = "[role=tooltip], .MuiTooltip-popper, .MuiBackdrop-root, [aria-hidden=true], style, .katex-html"
  const whole = "button, input, select, .MuiFormControl-root, .bk-Figure, [role=tab]"
  const walk = (root, path) => {
    for (const one of root.children) {
      const style = getComputedStyle(one)
      if (one.matches(skipped) || style.display === "none" || style.visibility === "hidden" || style.opacity === "0")
        continue
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


@pytest.mark.parametrize(("method", "sizes"), [("cholqr", SIZES), ("gpcv-admm", SIZES[2::3])])
def test_nothing_overlaps_and_nothing_is_cut(open_page: Callable[..., Seen], method: str, sizes: tuple):
    seen = open_page(query=f"?v=1&method={method}&data=snelson-like&data.n=60")
    seen.press("One step")
    until(lambda: seen.step == 1)
    for width, height in sizes:
        seen.page.set_viewport_size({"width": width, "height": height})
        end = time.monotonic() + 10
        seen.page.wait_for_timeout(300)
        while faults(boxes := seen.page.evaluate(BOXES)) and time.monotonic() < end:
            seen.page.wait_for_timeout(300)  # drawers move, and figures are drawn again at their new size
        assert len(boxes["cards"]) == 4
        assert len(boxes["parts"]) > 40
        assert faults(boxes) == [], f"at {width} x {height}"


def test_the_first_screen_shows_the_prediction_the_hero_and_the_convergence(seen: Seen):
    places = ("prediction", "hero", "course")

    def boxes(width: int, height: int) -> list[dict]:
        seen.page.set_viewport_size({"width": width, "height": height})
        seen.page.wait_for_timeout(600)
        return [seen.page.locator(f".{place}").bounding_box() for place in places]

    for width, height, shortest in ((1440, 900, 480), (1920, 1080, 560), (2560, 1440, 700)):
        prediction, hero, course = boxes(width, height)
        assert prediction["x"] < hero["x"] < course["x"]
        assert prediction["y"] == hero["y"] == course["y"]
        assert course["x"] + course["width"] <= width
        assert shortest < hero["height"] < height - hero["y"]

    prediction, hero, course = boxes(390, 844)
    assert hero["y"] < prediction["y"] < course["y"]
    play = seen.page.get_by_role("button", name="Play or pause").first.bounding_box()
    assert play["y"] < hero["y"] < 400
    assert hero["y"] < seen.page.locator(".status").bounding_box()["y"]
    seen.page.set_viewport_size({"width": 1400, "height": 900})
