"""A story is opened by its address and walked to its end; the page follows, and the story can be left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from gpexplorer.ui.stories import STORIES
from looks import BOXES, contrasts, faint, faults, violations
from pages import Seen, Served, new_page, until

pytestmark = pytest.mark.ui


def look_at(seen: Seen) -> None:
    """Nothing overlaps, nothing is cut, and all words can be read in both themes."""
    for width, height, theme in ((1440, 900, "light"), (390, 844, "dark"), (1440, 900, "dark")):
        seen.page.set_viewport_size({"width": width, "height": height})
        if (seen.page.locator(".mui-dark").count() > 0) != (theme == "dark"):
            seen.press("Toggle theme")
        wrong: list = []
        for _ in range(20):
            seen.page.wait_for_timeout(300)  # colours change over time, and figures are drawn again at their new size
            wrong = faults(seen.page.evaluate(BOXES)) + faint(contrasts(seen.page))
            if not wrong:
                break
        assert wrong == [], f"{theme}, {width} x {height}"
    assert violations(seen.page) == []


@pytest.fixture(scope="module")
def reader(served: Served, browser: Browser) -> Iterator[Seen]:
    """A page that has been opened by the address of a part of a story."""
    seen = Seen(new_page(browser), served.url, "?story=six-ways&part=4")
    yield seen
    assert seen.complaints == []
    assert seen.elsewhere == []
    seen.page.close()


def test_a_story_is_walked_to_its_end(reader: Seen):
    """From its fourth part on; `test_stories.py` goes from part to part without a browser."""
    parts, seen = STORIES["six-ways"].parts, reader
    until(lambda: seen.step == 2)
    assert seen.page.get_by_label("Method", exact=True).count() == 0  # the controls are left out
    said = seen.page.get_by_text(parts[3].answer)
    assert said.count() == 0
    seen.press("Show the answer")
    until(lambda: said.count() == 1)
    until(lambda: seen.step == 52)  # the page has moved to what the answer speaks of
    seen.page.locator(".main-content").evaluate("main => main.scrollTo(0, 200)")  # as a press may have scrolled it
    look_at(seen)

    for number, part in enumerate(parts[4:], 5):
        seen.press("Next")
        until(lambda part=part: seen.page.get_by_role("heading", name=part.title).count() == 1)
        assert seen.page.get_by_text(f"{number} of {len(parts)}").count() == 1
    until(lambda: seen.step == 17)
    assert f"{seen.number('SMSE'):.3f}" == "0.362"
    seen.page.set_viewport_size({"width": 390, "height": 844})
    until(lambda: seen.page.locator(".hero").bounding_box()["x"] < 20)  # one column
    prediction, hero = (seen.page.locator(f".{place}").bounding_box()["y"] for place in ("prediction", "hero"))
    assert prediction < hero  # the picture that this part is about comes first

    seen.press("Leave the story")
    until(lambda: seen.page.get_by_text("Race: several methods on these rows").is_visible())


def test_a_part_of_a_story_takes_little_of_a_small_screen(reader: Seen):
    seen = reader
    seen.visit("?story=swaps&part=1")
    seen.page.set_viewport_size({"width": 1024, "height": 768})
    title = seen.page.get_by_role("heading", name=STORIES["swaps"].parts[0].title)
    place = seen.page.get_by_text("Ten rows that stand for 180, 1 of 6")

    def are_on_one_line() -> bool:
        first, second = title.bounding_box(), place.bounding_box()
        if first is None or second is None:
            return False
        lower_edges = first["y"] + first["height"], second["y"] + second["height"]
        return abs(lower_edges[0] - lower_edges[1]) < 8 and first["x"] + first["width"] < second["x"]

    until(are_on_one_line)

    seen.page.set_viewport_size({"width": 1440, "height": 900})  # both pictures are whole, and so is the number
    until(lambda: 300 < sum(seen.page.locator(".hero").bounding_box()[side] for side in ("y", "height")) <= 900)
    expect(seen.page.locator(".course p")).to_contain_text("less than 0.05 nat from the exact model")
    number = seen.page.locator(".course p b")
    expect(number).to_have_count(0)
    seen.visit("?story=swaps&part=2")
    until(lambda: number.count() == 1 and float(number.inner_text()) >= 0.1)
    assert number.bounding_box()["height"] >= 30

    back, following = (seen.page.get_by_role("button", name=name) for name in ("Back: the", "Next: the"))
    back.hover()
    said = seen.page.locator(".MuiTooltip-tooltip")
    expect(said).to_have_text("Back: the part before.")
    until(lambda: round(said.bounding_box()["height"]) < 40)  # one line, although the button is narrow
    box, beside = said.bounding_box(), following.bounding_box()
    assert box["y"] >= beside["y"] + beside["height"]  # it covers neither the next button nor takes its clicks
    following.click(timeout=5000)
