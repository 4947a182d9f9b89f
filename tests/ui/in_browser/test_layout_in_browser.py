"""At every size of the screen, nothing on the page overlaps and nothing is cut."""

from __future__ import annotations

import time

import pytest

from looks import BOXES, faults
from pages import Seen, until

pytestmark = pytest.mark.ui

SIZES = (
    (2560, 1440),
    (1920, 1080),
    (1440, 900),
    (1024, 768),
    (720, 450),
    (390, 844),
    (320, 400),
)  # 720 by 450 is 1440 by 900 at a zoom of 200 percent, and 320 by 400 is 1280 by 1600 at one of 400


LEFTS = """() => [...new Set(Bokeh.documents.flatMap((of) => [...of.all_models]))]
  .filter((model) => model.type === "Figure")
  .map((figure) => Bokeh.index.find_one(figure))
  .filter((view) => view && view.el.getBoundingClientRect().width > 0)
  .map((view) => view.el.getBoundingClientRect().left + view.frame.bbox.left)"""  # of the figures on the screen


LAPTOP = SIZES[2]


@pytest.mark.parametrize(
    ("method", "sizes"), [("cholqr", SIZES), ("gpcv-admm", SIZES[2::2]), ("gbcd", [LAPTOP]), ("grief", [LAPTOP])]
)
def test_nothing_overlaps_and_nothing_is_cut_and_the_controls_fit_a_laptop(anywhere: Seen, method: str, sizes: tuple):
    seen = anywhere
    seen.visit(f"?v=1&method={method}&data=snelson-like&data.n=60")
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
        if (width, height) == LAPTOP:
            last = seen.page.get_by_role("button", name="What should I use?").bounding_box()
            assert last["y"] + last["height"] < height


def test_the_first_screen_shows_the_prediction_the_hero_and_the_convergence(seen: Seen):
    places = ("prediction", "hero", "course")

    def boxes() -> list[dict]:
        return [seen.page.locator(f".{place}").bounding_box() for place in places]

    def lie_in_a_row(width: int, height: int, shortest: int) -> bool:
        prediction, hero, course = boxes()
        return (
            prediction["x"] < hero["x"] < course["x"]
            and prediction["y"] == hero["y"] == course["y"]
            and course["x"] + course["width"] <= width
            and shortest < hero["height"] < height - hero["y"]
        )

    def share_their_axis(width: int, height: int, shortest: int) -> bool:
        """One input: the hero stands under the data, and the convergence beside both."""
        prediction, hero, course = boxes()
        end = hero["y"] + hero["height"]
        return (
            (prediction["x"], prediction["width"]) == (hero["x"], hero["width"])
            and prediction["y"] + shortest < hero["y"] < end - 0.6 * shortest
            and prediction["x"] + prediction["width"] < course["x"] < width - course["width"]
            and abs(course["y"] - prediction["y"]) + abs(course["y"] + course["height"] - end) < 1
            and end < height
        )

    for size in ((1440, 900, 300), (1920, 1080, 400), (2560, 1440, 600)):
        seen.page.set_viewport_size({"width": size[0], "height": size[1]})
        until(lambda size=size: share_their_axis(*size))
    seen.page.set_viewport_size({"width": 390, "height": 844})
    until(lambda: (box := [each["y"] for each in boxes()])[1] < box[0] < box[2])  # one below the other
    hero = boxes()[1]
    play = seen.page.get_by_role("button", name="Play or pause").first.bounding_box()
    assert play["y"] < hero["y"] < 400
    assert hero["y"] < seen.page.locator(".status").bounding_box()["y"]
    seen.press("One step")
    until(lambda: seen.step == 1)
    until(lambda: len(seen.page.evaluate(LEFTS)) >= 3)
    lefts = seen.page.evaluate(LEFTS)
    assert max(lefts) - min(lefts) <= 6, "frames below each other have one left edge"

    seen.page.set_viewport_size({"width": 2560, "height": 1440})
    seen.visit("?v=1&data=sin-product&data.n=60")
    until(lambda: lie_in_a_row(2560, 1440, 700))
    seen.page.set_viewport_size({"width": 1440, "height": 900})
    until(lambda: lie_in_a_row(1440, 900, 480))
