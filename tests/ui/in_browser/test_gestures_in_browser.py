"""A hand on the picture of the data: a point dragged and put back, a row added and taken back."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from pages import AT, DATA_FIGURE, ON_PAGE, Seen, listens, until

pytestmark = pytest.mark.ui


def test_a_point_is_dragged_and_the_bound_splits(seen: Seen):
    seen.press("One step")
    until(lambda: seen.step == 1)
    before = seen.inducing()
    seen.press("Move points")
    until(lambda: listens(seen, "panstart"))
    shelf = seen.page.evaluate(f"() => ({DATA_FIGURE})('').renderers.find((r) => r.data_source?.name === 'inducing')"
                               ".data_source.get_column('y')[0]")  # fmt: skip

    x, y = seen.page.evaluate(AT, [before[0], shelf])
    seen.page.mouse.move(x, y)
    seen.page.mouse.down()
    seen.page.mouse.move(x + 60 if before[0] < 3 else x - 60, y, steps=8)
    until(lambda: seen.fact("phase") == "forced")
    until(lambda: seen.page.locator(".split b").count() == 4)
    seen.page.mouse.up()

    assert seen.step == 2
    until(lambda: len(set(before) - set(seen.inducing())) == 1)
    seen.press("Take back the last click")
    until(lambda: seen.step == 1)
    until(lambda: seen.inducing() == before)
    seen.press("Look")


HEIGHT = f"() => ({DATA_FIGURE})('').inner_height"


def test_a_row_is_added_by_a_click_and_taken_back(seen: Seen):
    height = seen.page.evaluate(HEIGHT)
    seen.press("Edit rows")
    until(lambda: listens(seen, "tap"))
    expect(seen.page.get_by_text("Click a free place to add a row")).to_be_visible()
    assert seen.page.evaluate(HEIGHT) == height  # the words above the picture make the card higher

    x, y = seen.page.evaluate(AT, [3.0, 1.5])
    seen.page.mouse.click(x, y)

    until(lambda: seen.page.get_by_text("181 training rows").count() == 1)
    seen.press("Take back the last edit")
    until(lambda: seen.page.get_by_text("180 training rows").count() == 1)
    assert seen.page.evaluate(HEIGHT) == height
    seen.press("Look")
    until(lambda: seen.page.evaluate(HEIGHT) == height)


MARKED = f"""(name) => {ON_PAGE}.filter((m) => m.type === "ColumnDataSource" && m.name === name)
    .flatMap((m) => [...m.inspected.indices].map((i) => m.get_column("row")[i]))"""


def test_a_row_under_the_pointer_is_marked_in_the_other_picture(seen: Seen):
    seen.press("One step")
    until(lambda: seen.step == 1)
    rows = f"""(name) => {ON_PAGE}.filter((m) => m.type === "ColumnDataSource" && m.name === name)
        .map((m) => [...m.get_column("row")])[0] ?? []"""
    until(lambda: len(seen.page.evaluate(rows, "exact")) > 100)
    shared = set(seen.page.evaluate(rows, "exact"))
    source = f"({DATA_FIGURE})('').renderers.find((r) => r.data_source?.name === 'train').data_source"
    row = next(row for row in seen.page.evaluate(rows, "train") if row in shared)
    spot = seen.page.evaluate(f"(k) => [{source}.get_column('x')[k], {source}.get_column('y')[k]]", row)

    x, y = seen.page.evaluate(AT, spot)
    seen.page.mouse.move(x - 30, y)
    seen.page.mouse.move(x, y, steps=4)

    until(lambda: seen.page.evaluate(MARKED, "exact") == seen.page.evaluate(MARKED, "train") != [])
    until(lambda: seen.page.get_by_text("nearest inducing point").count() > 0)


TOUCH = """(place) => {
  const within = (root, name) => {
    for (const one of root.querySelectorAll("*")) {
      const found = one.matches(name) ? one : one.shadowRoot && within(one.shadowRoot, name)
      if (found) return found
    }
    return null
  }
  const box = within(document, place)
  return getComputedStyle(within(box.shadowRoot ?? box, ".bk-events")).touchAction
}"""


def test_a_wheel_over_a_picture_scrolls_the_page_and_zooms_with_the_control_key(seen: Seen):
    seen.press("One step")
    until(lambda: seen.step >= 1)
    main = seen.page.locator(".main-content")
    figures = ".prediction", ".hero", ".course"
    ends = f"() => {{ const range = ({DATA_FIGURE})('').x_range; return range.end - range.start }}"
    width = seen.page.evaluate(ends)
    for figure in figures:
        main.evaluate("main => main.scrollTo(0, 0)")
        box = seen.page.locator(f"{figure} .bk-Figure").first.bounding_box()
        middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        seen.page.mouse.move(*middle)
        seen.page.mouse.wheel(0, 200)
        until(lambda: main.evaluate("main => main.scrollTop") > 100)
        assert "pan-y" in seen.page.evaluate(TOUCH, figure)  # a finger scrolls as well
        hint = seen.page.get_by_text("use ctrl + scroll to zoom").first
        expect(hint).to_have_css("color", "rgb(28, 34, 41)")  # on white, in both themes
    assert seen.page.evaluate(ends) == width

    main.evaluate("main => main.scrollTo(0, 0)")
    x, y = seen.page.evaluate(AT, [3.0, 0.0])
    seen.page.mouse.move(x, y)
    seen.page.keyboard.down("Control")
    seen.page.mouse.wheel(0, -200)
    seen.page.keyboard.up("Control")
    until(lambda: seen.page.evaluate(ends) < width)
    assert main.evaluate("main => main.scrollTop") == 0
