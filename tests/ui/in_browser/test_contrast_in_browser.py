"""Words and controls have the contrast that WCAG 2.2 asks for (AA), in both themes, and pictures have names."""

from __future__ import annotations

import time

import pytest
from playwright.sync_api import expect

from looks import contrasts, faint, violations
from pages import ON_PAGE, PATIENCE, Seen, until

pytestmark = pytest.mark.ui


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_words_can_be_read_in_both_themes(seen: Seen, theme: str):
    def is_dark() -> bool:
        return seen.page.locator(".mui-dark").count() > 0

    seen.page.get_by_role("tab", name="Calibration").wait_for()
    seen.page.get_by_label("Method", exact=True).wait_for()
    if is_dark() != (theme == "dark"):
        seen.press("Toggle theme")
        until(lambda: is_dark() == (theme == "dark"))
    wanted = {
        "gpexplorer",
        "Play",
        "Method",
        "Data and prediction",
        "Calibration",
        "sign of Increase Sample paths (1-D)",
    }
    end = time.monotonic() + 10  # the page is drawn bit by bit, and colours change over time
    while True:
        measured = contrasts(seen.page)
        names = {name for name, *_ in measured}
        if (wanted <= names and not faint(measured)) or time.monotonic() > end:
            break
        seen.page.wait_for_timeout(300)

    assert len(measured) > 60
    assert faint(measured) == []
    assert wanted <= names
    section = seen.page.locator(".MuiAccordion-root").first  # drawn before it knows the theme: no colour of its own
    assert section.evaluate("(part) => getComputedStyle(part).backgroundColor") == "rgba(0, 0, 0, 0)"
    seen.press("One step")  # there is no line of convergence before
    for title in ("Data and prediction", "Swap landscape", "Convergence"):  # what a screen reader says of a canvas
        expect(seen.page.get_by_role("figure", name=f"{title}. ")).to_have_count(1, timeout=PATIENCE)
    if theme == "dark":
        seen.press("Toggle theme")
        until(lambda: not is_dark())


TOGGLED = f"""() => {{
  const page = {ON_PAGE}.map((model) => model.data).find((data) => data && "dark_theme" in data)
  const colours = () => {ON_PAGE}.flatMap((model) => ["axis_label_text_color", "major_label_text_color"]
    .map((name) => model.properties[name]?.get_value()).filter((ink) => ink !== undefined)
    .map((ink) => ink.value ?? ink))
  return [0, 1, 2, 3].map(() => {{
    page.dark_theme = !page.dark_theme
    return [page.dark_theme, [...new Set(colours())], colours().length]
  }})
}}"""  # the colours of words beside axes, within one turn of the browser, in which no message of a server arrives


def test_words_of_pictures_follow_the_theme_before_the_server_has_heard_of_it(seen: Seen):
    seen.page.get_by_role("tab", name="Calibration").wait_for()
    for dark, colours, count in seen.page.evaluate(TOGGLED):
        assert count >= 8
        assert colours == ["#dfe6ec" if dark else "#22303c"]


def test_axe_finds_nothing_on_the_laboratory_and_beside_a_recommendation(seen: Seen):
    seen.page.get_by_label("Method", exact=True).wait_for()
    seen.press("What should I use?")
    seen.page.get_by_role("button", name="Find out").wait_for()
    seen.page.wait_for_timeout(2500)  # names that are missing are completed every two seconds

    assert violations(seen.page) == []

    close = seen.page.get_by_role("button", name="Close", exact=True)
    close.click()
    expect(close.locator("visible=true")).to_have_count(0)


def test_a_keyboard_skips_the_bar_and_the_bar_opens_a_panel(seen: Seen):
    seen.page.get_by_role("button", name="Skip to Play").focus()
    seen.page.keyboard.press("Enter")
    expect(seen.page.get_by_role("button", name="Play or pause").first).to_be_focused()

    seen.press("Scaling")

    expect(seen.page.get_by_role("button", name="Measure", exact=True)).to_be_in_viewport(timeout=PATIENCE)
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.press("Menu")
    expect(seen.page.get_by_role("link", name="First screen")).to_be_visible()

    def in_menu() -> list[list]:
        return [entry for entry in contrasts(seen.page) if entry[0] in ("First screen", "Stories", "Race")]

    for is_dark in (False, True):
        until(lambda is_dark=is_dark: (seen.page.locator(".mui-dark").count() > 0) == is_dark)
        assert len(in_menu()) == 3
        until(lambda: not faint(in_menu()), 10)  # colours change over time
        seen.press("Toggle theme")
    seen.page.get_by_role("link", name="First screen").focus()
    seen.page.keyboard.press("Escape")
    expect(seen.page.get_by_role("link", name="First screen")).to_be_hidden()
    expect(seen.page.get_by_role("button", name="Menu")).to_be_focused()
    seen.page.keyboard.press("?")
    help_line = seen.page.get_by_text("Left and right arrow: step back or forward")
    expect(help_line).to_be_visible()
    seen.page.keyboard.press("Escape")
    expect(help_line).to_be_hidden()
    seen.page.set_viewport_size({"width": 1400, "height": 900})


FOCUS_MARK = """() => {
  let one = document.activeElement
  while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement
  const { outlineStyle, outlineColor, color } = getComputedStyle(one.matches("[type=file]") ? one.parentElement : one)
  return [one.ariaLabel || one.textContent || one.className, outlineStyle, outlineColor === color]
}"""


def test_where_the_keyboard_is_can_be_seen(seen: Seen):
    """White on white around the links of the bar, a tint of one eighth on headings, and nothing around an upload."""
    seen.page.get_by_label("Method", exact=True).wait_for()
    seen.page.get_by_role("button", name="Skip to Play").focus()
    marks = []
    for _ in range(14):
        seen.page.keyboard.press("Tab")
        marks.append(seen.page.evaluate(FOCUS_MARK))
    seen.page.locator("input[type=file]").first.focus()
    marks.append(seen.page.evaluate(FOCUS_MARK))

    assert [name for name, style, _ in marks if style == "none"] == []
    assert {"First screen", "Scaling", "Toggle theme"} <= {name for name, _, of_words in marks if of_words}
    assert sum(style == "solid" and of_words for _, style, of_words in marks) >= 13


def test_the_data_begin_early_and_three_numbers_are_shown(seen: Seen):
    seen.page.set_viewport_size({"width": 1440, "height": 900})

    until(lambda: seen.page.locator(".prediction").bounding_box()["y"] <= 150)
    until(lambda: seen.page.locator(".facts div").filter(visible=True).count() == 3)
    seen.press("All numbers")
    until(lambda: seen.page.locator(".facts div").filter(visible=True).count() == 8)
    seen.press("Fewer numbers")
    until(lambda: seen.page.locator(".facts div").filter(visible=True).count() == 3)
    seen.page.set_viewport_size({"width": 1400, "height": 900})
