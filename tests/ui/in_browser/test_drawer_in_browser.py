"""On a narrow page the sidebar is a drawer: it opens, stays open, changes the run, closes, and hides no answer.

A finger moves a point there.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from pages import AT, DATA_FIGURE, PATIENCE, Seen, Served, listens, until

pytestmark = pytest.mark.ui


@pytest.fixture(scope="module")
def phone(served: Served, browser: Browser) -> Iterator[Seen]:
    """One page on a phone for the tests of this file."""
    context = browser.new_context(
        viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True, reduced_motion="reduce"
    )
    seen = Seen(context.new_page(), served.url)
    yield seen
    context.close()
    assert seen.complaints == []
    assert seen.elsewhere == []


def test_the_settings_of_a_narrow_page_can_be_reached(phone: Seen):
    seen = phone
    page = seen.page
    closing = page.get_by_role("button", name="Close data and settings")
    expect(page.get_by_role("tab", name="Calibration")).to_be_visible(timeout=PATIENCE)
    page.wait_for_timeout(800)  # the drawer closes itself three times while the page opens
    expect(closing).to_be_hidden()

    change_the_points(seen, 7)
    check_what_the_sidebar_opens(seen)
    page.set_viewport_size({"width": 768, "height": 1024})
    expect(closing).to_be_hidden(timeout=PATIENCE)
    change_the_points(seen, 9)
    seen.press("One step")
    until(lambda: seen.step >= 1)


def test_a_finger_drags_a_point(phone: Seen):
    seen = phone
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.press("Start again")
    until(lambda: seen.fact("step") == "0")
    seen.press("One step")
    until(lambda: seen.step == 1)
    before = seen.inducing()
    seen.press("Move points")
    until(lambda: listens(seen, "panstart"))
    height = seen.page.evaluate(f"""() => {{
      const figure = ({DATA_FIGURE})("")
      Bokeh.index.find_one(figure).el.scrollIntoView({{ block: "center" }})
      return figure.renderers.find((r) => r.data_source?.name === "inducing").data_source.get_column("y")[0]
    }}""")
    places = [seen.page.evaluate(AT, [before[0], height])]
    while places[-1:] != places[-2:-1]:  # until the page rests
        seen.page.wait_for_timeout(400)
        places.append(seen.page.evaluate(AT, [before[0], height]))
    x, y = places[-1]

    fingers, aside = seen.page.context.new_cdp_session(seen.page), 8 if x < 195 else -8
    for kind, steps in (("touchStart", [0]), ("touchMove", range(1, 9)), ("touchEnd", [])):
        for points in [[{"x": x + k * aside, "y": y}] for k in steps] or [[]]:
            fingers.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    until(lambda: seen.fact("phase") == "forced")
    until(lambda: len(set(before) - set(seen.inducing())) == 1)


def change_the_points(seen: Seen, points: int) -> None:
    """Open the drawer, which stays open, set the number of inducing points in it, and close it."""
    page = seen.page
    closing = page.get_by_role("button", name="Close data and settings")
    seen.press("Open drawer")
    page.wait_for_timeout(1000)
    expect(closing).to_be_visible(timeout=PATIENCE)
    field = page.get_by_label("Inducing points m", exact=True).locator("visible=true").last
    field.fill(str(points))
    field.press("Enter")
    expect(page.get_by_role("heading", name=f"Which {points} of 180 rows")).to_be_attached(timeout=PATIENCE)
    closing.click()
    expect(closing).to_be_hidden(timeout=PATIENCE)


def check_what_the_sidebar_opens(seen: Seen) -> None:
    """The drawer closes before the answer to its question, and a sidebar beside the page stays."""
    page = seen.page
    closing = page.get_by_role("button", name="Close data and settings")
    seen.press("Open drawer")
    expect(closing).to_be_visible(timeout=PATIENCE)

    seen.press("What should I use?")

    expect(closing).to_be_hidden(timeout=PATIENCE)
    expect(page.get_by_role("button", name="Find out")).to_be_in_viewport(timeout=PATIENCE)
    page.set_viewport_size({"width": 1400, "height": 900})
    expect(page.get_by_label("Method", exact=True)).to_be_visible(timeout=PATIENCE)
    seen.press("What should I use?")
    page.wait_for_timeout(1000)
    expect(page.get_by_label("Method", exact=True)).to_be_visible()  # a sidebar beside the page stays
