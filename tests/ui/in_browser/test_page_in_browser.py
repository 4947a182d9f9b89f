"""The page in a real browser, as a stranger uses it: first on the rows that it opens with, then on others."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from pages import DATA_FIGURE, ON_PAGE, Seen, until

pytestmark = pytest.mark.ui

STYLE_WRITES = """() => {
  const text = Object.getOwnPropertyDescriptor(Node.prototype, "textContent")
  let writes = 0
  const set = function (css) { writes += 1; text.set.call(this, css) }
  Object.defineProperty(HTMLStyleElement.prototype, "textContent", { ...text, configurable: true, set })
  const pages = [...Bokeh.index.roots].filter((view) => view.update_layout)
  for (const page of pages) page.update_layout(), page.compute_layout()
  delete HTMLStyleElement.prototype.textContent
  return [pages.length, writes]
}"""  # how many pages are laid out anew, and how many style sheets that writes
LAYOUTS = f"""async () => {{
  const figure = Bokeh.index.find_one(({DATA_FIGURE})(""))
  const {{ update_layout }} = figure
  let layouts = 0
  figure.update_layout = function () {{ layouts += 1; update_layout.call(this) }}
  for (let view = figure; view != null; view = view.parent) view.invalidate_layout?.()
  await new Promise((resolve) => setTimeout(resolve, 300))
  delete figure.update_layout
  return layouts
}}"""  # how often a figure is laid out when it and everything around it ask for that
COUNT_LISTENERS = """() => {
  globalThis.listeners = 0
  const { addEventListener, removeEventListener } = EventTarget.prototype
  globalThis.countNoMore = () => Object.assign(EventTarget.prototype, { addEventListener, removeEventListener })
  EventTarget.prototype.addEventListener = function (...listener) {
    if (this === visualViewport) listeners += 1
    addEventListener.apply(this, listener)
  }
  EventTarget.prototype.removeEventListener = function (...listener) {
    if (this === visualViewport) listeners -= 1
    removeEventListener.apply(this, listener)
  }
}"""  # counts how many more listeners, such as figures, the window has from now on
EARLY_COLOUR = f"""() => {{
  const bars = {ON_PAGE}.filter((model) => model.type === "ColorBar")
  const view = bars.map((bar) => Bokeh.index.find_one(bar)).find((found) => found?.layout)
  if (!view) return -1
  const bar = view.model, {{ layout }} = view
  view.layout = undefined
  try {{ bar.label_standoff += 1 }} finally {{ view.layout = layout; bar.label_standoff -= 1 }}
  return bar.label_standoff
}}"""  # changes a bar of colours as if it had not been laid out yet; -1 where there is none


def test_play_lowers_the_objective_and_moves_the_points_and_the_transport_answers(seen: Seen):
    begin = seen.inducing()
    seen.press("Play or pause")
    until(lambda: seen.step >= 14)
    seen.press("Play or pause")
    paused = seen.rest(quiet=4.0)  # on a busy machine the pause arrives late
    lowest = seen.number("objective")
    assert len(begin) == 10
    assert seen.inducing() != begin

    seen.press("One step")
    until(lambda: seen.step == paused + 1)
    seen.press("Step back")
    until(lambda: seen.step == paused)

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


def test_a_page_is_laid_out_once_and_then_writes_no_style_sheet(seen: Seen):
    until(lambda: seen.page.evaluate(LAYOUTS) == 1)  # at rest

    seen.page.evaluate(STYLE_WRITES)
    assert seen.page.evaluate(STYLE_WRITES) == [1, 0]


def test_a_bar_of_colours_is_painted_before_it_is_laid_out(seen: Seen):
    """As where somebody changes the theme while pictures are drawn: an exception would end all further changes."""
    seen.visit("?v=1&method=subset-of-data&data=sin-product&data.n=100&kernel=se&set.num_rows=15")
    until(lambda: seen.page.evaluate(EARLY_COLOUR) >= 0)


def test_figures_of_earlier_runs_are_forgotten(seen: Seen):
    """Each stayed in the browser's memory, with all that was on the page: 3 MB per run that was opened.

    And their models were searched at every click until nothing had been changed for half a minute.
    """
    until(lambda: seen.page.evaluate(LAYOUTS) == 1)  # at rest
    seen.page.evaluate(COUNT_LISTENERS)
    for method in ("bsgd", "grief", "fitc"):
        seen.visit(f"?v=1&method={method}&data=sin-product&data.n=100&kernel=se-ard")
        until(lambda method=method: f"method={method}" in seen.page.evaluate("location.search"))
    until(lambda: seen.page.evaluate(LAYOUTS) == 1)

    assert seen.page.evaluate("listeners") < 4
    seen.page.evaluate("countNoMore()")
    until(lambda: seen.page.evaluate(f"Bokeh.documents[0].all_models.size < 1.1 * {ON_PAGE}.length"), 12)


def test_a_click_in_the_landscape_forces_a_swap_and_undo_takes_it_back(seen: Seen):
    seen.press("One step")
    until(lambda: seen.step == 1)
    before = seen.inducing()
    figure = seen.page.locator(".hero .bk-Figure")  # between the prediction and the convergence

    figure.click(position={"x": 240, "y": 150})

    until(lambda: seen.fact("phase") == "forced")
    assert seen.step == 2
    assert len(set(seen.inducing()) - set(before)) == 1

    seen.press("Take back the last click")
    until(lambda: seen.step == 1)
    assert seen.inducing() == before


def test_a_control_is_set_by_keys_reset_and_explained_and_every_button_has_a_name(seen: Seen):
    field = seen.page.get_by_role("spinbutton", name="Inducing points m")
    m = int(field.input_value())
    field.press("ArrowUp")
    field.press("Enter")
    expect(seen.page.get_by_text(f"Which {m + 1} of 180 rows")).to_be_visible()
    assert seen.page.get_by_label("Inducing points m, slider").input_value() == str(m + 1)

    expect(seen.page.get_by_role("button", name="Reset Information pivots z")).to_be_hidden()
    pivots = seen.page.get_by_role("spinbutton", name="Information pivots z")
    pivots.fill("32")
    pivots.press("Enter")
    seen.press("Reset Information pivots z")
    expect(pivots).to_have_value("64")
    pivots.fill("many")
    pivots.press("Enter")
    expect(pivots).to_have_value("64")

    automatic = seen.page.get_by_text("0 is automatic: 64")
    expect(automatic).to_be_hidden()
    field.fill("0")
    field.press("Enter")
    expect(automatic).to_be_visible()
    expect(seen.page.get_by_text("Which 64 of 180 rows")).to_be_visible()
    expect(field).to_have_accessible_description("0 is automatic: 64")

    seen.press("About Inducing points m")
    expect(seen.page.locator("math").first).to_be_visible()
    seen.press("About Inducing points m")
    seen.page.get_by_role("button", name="More settings").click()
    expect(seen.page.get_by_role("spinbutton", name="Swaps until new pivots")).to_be_visible()
    expect(seen.page.get_by_role("button", name="Kernel squared exponential")).to_be_visible()  # its text is inside
    nameless = """all => all.filter((one) => one.checkVisibility({ visibilityProperty: true })
      && !one.ariaLabel && !one.innerText.trim() && !one.querySelector(".section")).length"""
    until(lambda: seen.page.locator("button").evaluate_all(nameless) == 0)
    seen.page.get_by_role("button", name="More settings").click()
    field.fill("10")
    field.press("Enter")
    until(lambda: len(seen.inducing()) == 10)


def test_a_kernel_is_put_together_and_taken_apart(seen: Seen):
    said = seen.page.get_by_text("k = se + periodic")
    seen.unfold("Kernel")
    seen.press("Combine with another kernel")
    expect(said).to_be_visible()
    seen.press("One step")
    until(lambda: seen.step == 1)

    seen.press("Remove kernel 2")

    expect(said).to_be_hidden()
    until(lambda: seen.step == 0)


def test_four_methods_race_on_the_rows_that_are_open(seen: Seen):
    seen.page.get_by_text("Race: several methods").click()
    field = seen.page.get_by_role("textbox", name="Seconds per method")
    field.fill("0.5")
    field.press("Enter")

    seen.page.get_by_role("button", name="Race", exact=True).last.click()

    expect(seen.page.get_by_text(re.compile("(Winner by|Lowest) SMSE:"))).to_be_visible()
    board = seen.page.locator("table", has_text="SMSE now")
    lanes = "CholQR swaps", "Greedy conditional variance", "Preconditioned conjugate gradients", "GP-GRIEF, type II"
    for lane in lanes:
        expect(board.locator("tr", has_text=lane)).to_have_count(1)
    seen.press("New race")
    expect(board).to_have_count(0)
    seen.page.get_by_text("Race: several methods").click()


def test_m_changes_while_it_runs(seen: Seen):
    seen.press("Play or pause")
    until(lambda: seen.step >= 5)

    field = seen.page.get_by_role("spinbutton", name="Inducing points m")
    field.fill("6")
    field.press("Enter")

    until(lambda: len(seen.inducing()) == 6)
    expect(seen.page.get_by_text("Which 6 of 180 rows")).to_be_visible()
    until(lambda: seen.step >= 3)
    until(lambda: "num_inducing=6" in seen.page.evaluate("location.search"))  # what is loaded again, is this run


def test_the_controls_of_every_family_fit_a_screen_of_900_pixels(anywhere: Seen):
    """Those of three more families are measured in `test_layout_in_browser.py`."""
    seen = anywhere
    seen.page.set_viewport_size({"width": 1440, "height": 900})
    seen.visit("?v=1&method=minimax&data.n=60")
    methods = seen.page.get_by_label("Method", exact=True)
    for method in ("MINIMAX", "GP-GRIEF, type I"):
        methods.select_option(method)
        until(lambda: seen.page.get_by_text(f"{method}.", exact=True).count() == 1)  # noqa: B023
        box = seen.page.get_by_role("button", name="What should I use?").bounding_box()  # the last of the controls
        assert box["y"] + box["height"] < 900, method


def test_a_target_is_transformed_and_a_logarithm_of_negative_targets_is_refused(anywhere: Seen):
    seen = anywhere
    seen.visit("?v=1&method=cholqr&data=snelson-like&data.n=60&target_transform=yeo-johnson%200.5")
    seen.unfold("Data")
    page, target = seen.page, seen.page.get_by_label("Target", exact=True)
    expect(target.locator("option:checked")).to_have_text("Yeo-Johnson 0.5")
    expect(page.get_by_role("button", name="95 % of y and f")).to_be_visible()

    target.select_option("logarithm")
    expect(page.get_by_role("heading", name="This run could not be opened")).to_be_visible()
    expect(page.get_by_text("training targets are not above 0 (the smallest is").first).to_be_visible()

    seen.press("Reset Target")
    expect(page.get_by_role("button", name="± 2 sd of y and f")).to_be_visible()
    expect(page.get_by_role("heading", name="This run could not be opened")).to_be_hidden()
    until(lambda: "target_transform" not in page.evaluate("location.search"))
    target.select_option("Yeo-Johnson")
    until(lambda: page.evaluate("location.search").endswith("target_transform=yeo-johnson"))
    expect(page.get_by_role("button", name="95 % of y and f")).to_be_visible()


def test_a_run_that_ends_says_why_in_plain_words(anywhere: Seen):
    seen = anywhere
    seen.visit("?v=1&method=grief&data.n=60&at=50")  # which is close to its end
    until(lambda: seen.step == 50)
    seen.press("Play or pause")

    until(lambda: seen.alert().startswith("Choosing new basis functions would "))
    assert "<" not in seen.alert()
