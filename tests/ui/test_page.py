"""The page in a real browser, as a stranger uses it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from ui.pages import Seen, Served, until

pytestmark = pytest.mark.ui


def test_play_lowers_the_objective_and_moves_the_points_and_the_transport_answers(seen: Seen):
    begin = seen.inducing()
    seen.press("Play or pause")
    until(lambda: seen.step >= 14)
    seen.press("Play or pause")
    paused = seen.rest()
    lowest = seen.number("objective")
    assert len(begin) == 10
    assert seen.inducing() != begin
    assert paused < 60

    seen.press("Step back")
    until(lambda: seen.step == paused - 1)

    scrub = seen.page.locator("input[type=range][aria-label='Step shown']")
    scrub.fill("1")
    until(lambda: seen.step == 1)
    assert seen.number("objective") > lowest + 100

    seen.press("One step")
    until(lambda: seen.step == 2)
    seen.press("Start again")
    until(lambda: seen.fact("step") == "0")
    seen.rest()
    assert seen.inducing() == begin


def test_m_changes_while_it_runs(seen: Seen):
    seen.press("Play or pause")
    until(lambda: seen.step >= 5)

    field = seen.page.get_by_role("textbox").first
    field.fill("6")
    field.press("Enter")

    until(lambda: len(seen.inducing()) == 6)
    expect(seen.page.get_by_text("Which 6 of 180 rows")).to_be_visible()
    until(lambda: seen.step >= 3)


def test_two_sessions_play_apart(open_page: Callable[..., Seen]):
    one, other = open_page(), open_page()

    one.press("Play or pause")
    until(lambda: one.step >= 5)

    assert other.step == 0


def test_widgets_answer_while_a_run_goes_on(seen: Seen):
    seen.press("Play or pause")
    until(lambda: seen.step >= 3)
    button = seen.page.get_by_role("button", name="Play or pause")
    took = []
    for k in range(10):
        want = "Pause" if k % 2 else "Play"
        begin = time.monotonic()
        button.click()
        expect(button).to_have_text(want)
        took.append(time.monotonic() - begin)
        time.sleep(0.3)
    print(f"\nwidget latency while running: median {statistics.median(took):.3f} s, worst {max(took):.3f} s")
    assert statistics.median(took) < 1.0


def test_closed_sessions_leave_no_thread_and_no_run(served: Served, open_page: Callable[..., Seen]):
    for _ in range(2):
        seen = open_page()
        seen.press("Play or pause")
        until(lambda seen=seen: seen.step >= 2)
        seen.page.close()

    until(lambda: served.count() | {"explorers": 0} == {"explorers": 0, "runs": 0, "threads": 0}, seconds=60)
    assert served.count()["explorers"] <= 1  # Panel's busy indicator keeps the context of the first session it saw


def test_keys_and_the_dark_theme(seen: Seen):
    seen.page.locator("body").press(" ")
    until(lambda: seen.step >= 3)
    seen.page.locator("body").press(" ")
    at = seen.rest()
    seen.page.locator("body").press("ArrowLeft")
    until(lambda: seen.step == at - 1)
    seen.page.locator("body").press("?")
    expect(seen.page.locator(".MuiAlert-message")).to_contain_text("Space plays")

    seen.press("Toggle theme")

    papers = "() => [...Bokeh.documents[0].all_models].map((m) => m.background_fill_color).filter(Boolean)"
    until(lambda: "#1c2229" in str(seen.page.evaluate(papers)))


def test_on_a_narrow_screen_the_pictures_come_first(open_page: Callable[..., Seen]):
    seen = open_page(width=420)

    seen.press("Play or pause")

    until(lambda: seen.step >= 2)
    assert seen.page.evaluate("document.documentElement.scrollWidth") <= 420
