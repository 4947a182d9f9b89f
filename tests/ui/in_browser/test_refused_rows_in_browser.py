"""A file that is refused and then opened: its message can be read, and the pictures after it are not faded."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import FloatRect, Locator, expect

from pages import Seen, until

pytestmark = pytest.mark.ui
# the product of the opacities of an element and of everything around it, also outside its shadow root
OPACITY = """(element) => {
  let product = 1
  for (let e = element; e; e = e.parentElement || e.getRootNode().host) product *= getComputedStyle(e).opacity
  return product
}"""
BACKGROUND_ALPHA = """(element) => {
  const parts = (e) => getComputedStyle(e).backgroundColor.match(/[\\d.]+/g).map(Number)
  const alpha = (e) => parts(e).length > 3 ? parts(e)[3] : 1
  return Math.max(alpha(element), alpha(element.getRootNode().host))
}"""
GERMAN = "Temperatur [°C];Preis (€)\n" + "".join(f"{i * 37 % 101},{i % 9}5;{i * 53 % 97 - 40},25\n" for i in range(60))


def opacity(part: Locator) -> float:
    """How much of an element is seen, with the opacity of all that contains it."""
    return float(part.evaluate(OPACITY))


def test_pictures_are_not_faded_after_a_refused_file_was_corrected(anywhere: Seen, tmp_path: Path):
    seen, page = anywhere, anywhere.page
    (tmp_path / "deutsch.csv").write_text(GERMAN)
    picture = page.get_by_role("heading", name="Data and prediction")
    expect(picture).to_be_visible()

    page.locator("input[type=file]").first.set_input_files(tmp_path / "deutsch.csv")
    seen.press("Use these columns")
    expect(page.get_by_text("54 training rows, 6 test rows, 1 input")).to_be_visible()
    target = page.get_by_label("Target", exact=True).locator("visible=true").first
    target.select_option("logarithm")  # some targets are negative
    expect(page.get_by_text("This run could not be opened")).to_be_visible()
    until(lambda: opacity(picture) < 0.5)
    target.select_option("as it is")

    until(lambda: opacity(picture) == 1.0, seconds=20.0)


def at_rest(seen: Seen, parts: dict[str, Locator]) -> dict[str, FloatRect]:
    """Where these parts are, once two looks find the same: figures are drawn again after the window has changed."""
    boxes: list[dict[str, FloatRect | None]] = []
    while len(boxes) < 2 or boxes[-1] != boxes[-2] or None in boxes[-1].values():
        seen.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 50)))")
        boxes.append({name: part.bounding_box() for name, part in parts.items()})
        assert len(boxes) < 200, f"the page does not come to rest: {boxes[-2:]}"
    return boxes[-1]


def test_a_message_is_opaque_and_covers_nothing_in_both_themes(seen: Seen):
    page = seen.page
    page.locator("body").press("?")
    message = page.locator(".MuiAlert-root").first
    expect(message).to_be_visible()
    below = {
        "Play": page.get_by_role("button", name="Play or pause").first,
        "the numbers": page.locator(".facts").first,
        "the title of the picture": page.get_by_role("heading", name="Data and prediction"),
    }

    for dark in (True, False):
        seen.press("Toggle theme")
        until(lambda dark=dark: (page.locator(".mui-dark").count() > 0) == dark)
        for width in (1366, 390):
            page.set_viewport_size({"width": width, "height": 768})
            until(lambda: message.evaluate(BACKGROUND_ALPHA) == 1.0, seconds=10.0)
            boxes = at_rest(seen, {"message": message, **below})
            box = boxes.pop("message")
            assert box["x"] >= 0
            assert box["x"] + box["width"] <= width
            bottom = box["y"] + box["height"]
            assert [name for name, part in boxes.items() if part["y"] < bottom] == [], f"covered at {width}, {dark=}"


def lies_between(part: Locator, highest: float, below: Locator) -> bool:
    """Whether an element begins at this height or lower, and ends where the other one begins, or above."""
    box, line = part.bounding_box(), below.bounding_box()
    return box is not None and line is not None and highest <= box["y"] <= line["y"] - box["height"]


def test_the_tooltip_of_a_button_does_not_cover_the_numbers_of_the_run(seen: Seen):
    page = seen.page
    numbers = page.locator(".facts").first
    for name in ("Play or pause", "One step"):
        page.mouse.move(5, 5)
        expect(page.locator(".MuiTooltip-tooltip")).to_have_count(0)
        page.get_by_role("button", name=name).first.hover()
        tip = page.locator(".MuiTooltip-tooltip").first
        expect(tip).to_be_visible()
        until(lambda tip=tip: lies_between(tip, 48, numbers))  # below the header; it moves while it opens
    page.get_by_role("button", name="One step").first.click()  # its tooltip lay over the heading while the mouse rested
    expect(page.locator(".MuiTooltip-tooltip").locator("visible=true")).to_have_count(0)
    page.mouse.move(5, 5)
    page.get_by_role("button", name="One step").first.hover()
    expect(page.locator(".MuiTooltip-tooltip").first).to_be_visible()


def test_the_tooltips_of_the_title_bar_cover_no_message_and_take_no_click(seen: Seen):
    """Below the theme's button its tooltip took every click, so that the theme was changed once, or never."""
    page = seen.page
    page.locator("body").press("?")
    message = page.locator(".MuiAlert-root").first
    expect(message).to_be_visible()
    for name in ("Close drawer", "A tour of the page", "Keys (?)", "Toggle theme"):
        page.mouse.move(700, 600)
        expect(page.locator(".MuiTooltip-tooltip")).to_have_count(0)
        page.get_by_role("button", name=name).first.hover()
        tip = page.locator(".MuiTooltip-tooltip").first
        expect(tip).to_be_visible()
        until(lambda tip=tip: lies_between(tip, 24, message))
    message.get_by_role("button", name="Close", exact=True).click()  # not "Close drawer"
    dark, button = page.locator(".mui-dark"), page.get_by_role("button", name="Toggle theme").bounding_box()
    page.mouse.move(button["x"] + button["width"] / 2, button["y"] + button["height"] / 2)
    for is_dark in (True, False):  # the mouse rests on the button
        expect(page.locator(".MuiTooltip-tooltip").first).to_be_visible()
        page.mouse.down()
        page.mouse.up()
        until(lambda is_dark=is_dark: (dark.count() > 0) == is_dark)
