"""Sliders of hyperparameters, by the keyboard: what a lengthscale would do, a lock, and undo."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from looks import violations
from pages import PATIENCE, Seen, until

pytestmark = pytest.mark.ui


def test_a_lengthscale_is_set_by_the_keyboard_and_taken_back(seen: Seen):
    page = seen.page
    seen.unfold("Kernel")
    page.get_by_role("button", name="Hyperparameters", exact=True).click()
    slider = page.get_by_role("slider", name="lengthscale, slider")
    slider.wait_for()
    number = page.get_by_role("textbox", name="lengthscale in x")
    before = number.input_value()
    steps = seen.step

    slider.press("ArrowLeft")
    until(lambda: seen.step == steps + 1)
    for _ in range(4):
        slider.press("ArrowLeft")
    until(lambda: float(number.input_value()) < float(before))
    page.wait_for_timeout(500)
    assert seen.step == steps + 1  # one step, however far the slider moves
    lock = page.get_by_role("button", name="Keep noise fixed")
    lock.press("Enter")
    expect(lock).to_have_attribute("aria-pressed", "true", timeout=PATIENCE)
    page.wait_for_timeout(2000)  # names that are missing are completed every two seconds
    assert violations(page) == []

    seen.press("Take back the last click (U)")
    until(lambda: seen.step == steps)
    expect(number).to_have_value(before, timeout=PATIENCE)
    number.fill("−1")
    number.press("Enter")
    assert "The value of se.lengthscale is −1" in seen.alert()
    expect(number).to_have_value(before, timeout=PATIENCE)
    page.get_by_role("button", name="Hyperparameters", exact=True).click()
