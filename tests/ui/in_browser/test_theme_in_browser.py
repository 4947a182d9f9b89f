"""A page has its theme from the first picture on: for up to two seconds a dark one was white, or had white fields."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from gpexplorer.views.drawing.palette import AROUND
from pages import LABORATORY, ON_PAGE, Seen, Served, until

pytestmark = pytest.mark.ui

COLOURS = """(() => {
  const light = (colour) => {
    const [r, g, b, a = 1] = colour.match(/[\\d.]+/g).map(Number)
    return a < 0.5 ? null : (r + g + b) / 3 > 128
  }
  globalThis.seen = {}
  const note = (name, colour) => {
    const is_light = light(colour)
    if (is_light !== null) (seen[name] ??= []).push(is_light)
  }
  const walk = (root) => {
    for (const one of root.querySelectorAll("*")) {
      if (one.shadowRoot) walk(one.shadowRoot)
      if (!one.matches(".MuiAppBar-root, .MuiDrawer-paper, .MuiInputBase-root, .MuiIconButton-root, h1, h2, select"))
        continue
      const style = getComputedStyle(one), box = one.getBoundingClientRect()
      if (box.width < 3 || box.height < 3 || style.visibility === "hidden" || one.disabled) continue
      const name = one.matches("h1, h2") ? one.textContent : one.classList[0] ?? one.tagName
      note(`paper of ${name}`, style.backgroundColor)
      note(`words of ${name}`, style.color)
    }
  }
  const look = () => {
    const ground = (one) => getComputedStyle(one).backgroundColor
    note("paper of the page", [document.body, document.documentElement].filter(Boolean).map(ground)
      .find((colour) => light(colour) !== null) ?? "rgb(255, 255, 255)")
    walk(document)
    requestAnimationFrame(look)
  }
  addEventListener("DOMContentLoaded", look)
})()"""  # at each frame, which papers and words are light
FIGURES = (
    f"""() => {ON_PAGE}.filter((model) => model.type === "Figure").map((figure) => figure.background_fill_color)"""
)
LOOKS = f"""() => [...new Set({ON_PAGE}.filter((model) => model.type.endsWith("Axis")).map((axis) =>
  [axis.axis_line_color, axis.axis_line_alpha, axis.major_label_text_color, axis.major_label_text_font_size,
   axis.axis_label_text_font_size].map((value) => value.value ?? value).join(" ")))]"""  # of the axes of all figures


@pytest.fixture(params=["light", "dark"])
def new_arrival(request: pytest.FixtureRequest, served: Served, browser: Browser) -> Iterator[tuple[Seen, bool]]:
    """A page just being drawn for somebody whose system has this theme."""
    context = browser.new_context(viewport={"width": 1400, "height": 900}, color_scheme=request.param)
    context.add_init_script(COLOURS)
    yield Seen(context.new_page(), served.url, LABORATORY), request.param == "dark"
    context.close()


def test_nothing_is_ever_drawn_in_the_other_theme(new_arrival: tuple[Seen, bool]):
    seen, dark = new_arrival
    page = seen.page
    expect(page.get_by_label("Method", exact=True)).to_be_visible()
    expect(page.get_by_role("tab", name="Calibration")).to_be_visible()

    colours = page.evaluate("seen")
    assert {"paper of the page", "paper of MuiPaper-root", "paper of SELECT", "words of SELECT"} <= colours.keys()
    wrong = {name for name, lights in colours.items() if (name.startswith("words") == dark) != any(lights)}
    wrong |= {name for name, lights in colours.items() if len(set(lights)) > 1}
    assert wrong == set()
    until(lambda: len(set(page.evaluate(FIGURES))) == 1)
    [paper] = set(page.evaluate(FIGURES))
    seen.press("One step")  # the server has heard of the theme: what it draws anew is of the same
    until(lambda: seen.step == 1)
    page.get_by_role("tab", name="Calibration").click()
    until(lambda: len(page.evaluate(FIGURES)) >= 4)
    assert set(page.evaluate(FIGURES)) == {paper} == {"#1c2229" if dark else "#ffffff"}
    line, ink = AROUND["dark" if dark else "light"]["line"], AROUND["dark" if dark else "light"]["text"]
    assert page.evaluate(LOOKS) == [f"{line} 1 {ink} 12px 13px"]  # not that of the components of the page
    assert seen.complaints == []


NEVER_DONE = """(() => {
  const hold = () => {
    for (const document of window.Bokeh?.documents ?? [])
      if (!Object.hasOwn(document, "is_idle"))
        Object.defineProperty(document, "is_idle", { get: () => window.done ?? false })
    if (!window.done) setTimeout(hold, 1)
  }
  hold()
})()"""  # a page that is drawn for as long as a test likes, as on a busy machine


def test_a_theme_that_is_chosen_while_the_page_is_being_drawn_stays(served: Served, browser: Browser):
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme="light")
    page.add_init_script(NEVER_DONE)
    seen = Seen(page, served.url, LABORATORY)
    seen.press("Toggle theme")
    until(lambda: page.locator(".mui-dark").count() > 0)
    page.evaluate("window.done = true")
    page.wait_for_timeout(500)
    assert page.locator(".mui-dark").count() > 0
    assert page.evaluate("localStorage.getItem('gpexplorer-theme')") == "dark"
    assert seen.complaints == []
    page.close()
