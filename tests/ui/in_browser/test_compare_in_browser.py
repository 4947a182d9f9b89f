"""Runs kept on the page, and a sweep, end in one table with their pictures."""

from __future__ import annotations

import re

import numpy as np
import pytest
from playwright.sync_api import Locator, Page

from gpexplorer import Spec, Store
from gpexplorer.ui.tables import FIVE_DIGITS
from gpexplorer.views.drawing.palette import LOG_TICKS
from looks import violations
from pages import LABORATORY, ON_PAGE, SIZE, Seen, Served, until

pytestmark = [pytest.mark.ui, pytest.mark.panels]
TITLE = "Compare: runs you keep"
ALL_ROWS = f"""() => {ON_PAGE}.filter((m) => m.type.endsWith("DataTabulator") && m.source.data.c0)
  .forEach(({{ source }}) => {{
    const names = [...source.data.c0]
    source.selected.indices = [...new Set(names)].map((name) => names.indexOf(name))
  }})"""  # are selected; a test below doubles them
TOPS = f"""() => ["the open run", "Random rows"].map((name) => {ON_PAGE}
  .filter((m) => m.type === "Figure" && m.name?.includes(`, ${{name}}, step`))
  .map((m) => Math.round(Bokeh.index.find_one(m).el.getBoundingClientRect().top)))"""  # of the pictures of both runs
MORE_WHILE_BUILT = f"""() => {{
  const table = {ON_PAGE}.find((m) => m.type.endsWith("DataTabulator") && m.source.data.c0?.length === 3)
  Bokeh.index.find_one(table).render()
  const twice = Object.entries(table.source.data).map(([name, values]) => [name, [...values, ...values]])
  table.source.data = Object.fromEntries(twice)
}}"""


def test_axe_finds_nothing_in_the_tables(anywhere: Seen):
    """Buttons of pages among the rows of a grid, a focus without a role, and a heading without words."""
    seen = anywhere
    rows = open_panel(seen, "?v=1&data=sin-product&data.n=60&set.num_inducing=4&at=12", 12)
    seen.press("Keep this run")
    until(lambda: rows.count() == 1)
    check_rows_of_buttons(seen.page)
    before = seen.page.locator("[role=tab][aria-selected=true]").first.inner_text()
    seen.page.get_by_role("tab", name="Steps").click()
    grids = seen.page.get_by_role("grid", name="Table")
    until(lambda: grids.count() == 2)  # names that are missing are completed every two seconds

    assert violations(seen.page) == []
    for grid in grids.all():
        assert grid.get_by_role("row").count() >= 1
    assert seen.page.get_by_role("searchbox", name="Rows whose method contains").count() == 1
    check_order_of_steps(seen)
    seen.page.get_by_role("tab", name=before).click()  # the tests below count the rows of all tables
    until(lambda: grids.count() == 1)


def check_order_of_steps(seen: Seen) -> None:
    """The steps are sorted by their numbers, and these are not in the order of their texts."""
    titles = seen.page.locator(".tabulator-col-title")
    steps = seen.page.locator(".tabulator", has=titles.get_by_text("phase", exact=True))
    cells = steps.locator(".tabulator-cell[tabulator-field=c0]")
    for first, way in ((0, 1), (12, -1)):
        steps.locator(titles).get_by_text("step", exact=True).click()
        until(lambda first=first, way=way: cells.all_inner_texts() == [str(first + way * k) for k in range(10)])
    written = re.search("<%=(.*)%>", FIVE_DIGITS, re.DOTALL)[1]
    values = [-1.01706, -12345.0, 1e-7, 3, 1234.56, -2.5e30, None]
    texts = ["−1.0171", "−12,345", "1e−7", "3", "1,234.6", "−2.5e+30", ""]
    assert seen.page.evaluate(f"(values) => values.map((value) => {written})", values) == texts


def check_rows_of_buttons(page: Page) -> None:
    """What is for the kept runs stands in one line, and the fields of a sweep with its button in the next one."""
    centres = []
    for name in ("Keep this run", "Stored runs", "Ten splits", "Sweep"):
        box = page.get_by_role("button", name=re.compile(f"^{name}(: |$)")).first.bounding_box()
        centres.append(box["y"] + box["height"] / 2)
    for name in ("Vary", "or seconds"):
        box = page.get_by_label(name, exact=True).first.bounding_box()
        centres.append(box["y"] + box["height"] / 2)
    kept, sweep = centres[:3], centres[3:]
    assert max(kept) - min(kept) < 4
    assert max(sweep) - min(sweep) < 8
    assert min(sweep) - max(kept) > 30


def open_panel(seen: Seen, query: str, step: int) -> Locator:
    """Open a run and the panel on the shared page, take the runs kept there away, and return the rows of the table."""
    seen.visit(query)
    until(lambda: seen.step == step)
    seen.page.get_by_text(TITLE).click()
    seen.page.get_by_role("button", name="Keep this run").wait_for()
    rows = seen.page.locator(".tabulator-row")
    if rows.count():
        seen.page.evaluate(ALL_ROWS)
        seen.press("Take from the table")
        until(lambda: rows.filter(visible=True).count() == 0)
    return rows


def test_what_is_kept_and_swept_lands_in_one_table(anywhere: Seen):
    seen = anywhere
    rows = open_panel(seen, "?v=1&data=sin-product&data.n=60&set.num_inducing=4&at=6", 6)

    seen.press("Keep this run")
    until(lambda: rows.count() == 1)
    kept = rows.first.inner_text()
    assert re.match(r"\d+: CholQR swaps", kept)
    assert seen.fact("SMSE") in kept.split()
    assert seen.number("SNLP") < 0
    assert seen.fact("SNLP") in kept.split()  # with the minus sign of the status line
    held = seen.page.locator(".tabulator-tableholder", has=rows)
    assert held.evaluate("(table) => table.scrollWidth - table.clientWidth") <= 0  # no column is cut
    assert "differs in" not in held.locator("..").inner_text()  # of one run

    seen.page.get_by_text("Link, code and files").click()
    note = seen.page.get_by_label("Note on this run")
    note.fill("<i>four</i> points are too few")
    note.blur()
    until(lambda: "<i>four</i> points are too few" in rows.first.inner_text())

    seen.page.get_by_label("Values", exact=True).first.fill("3, 5")
    steps = seen.page.get_by_role("textbox", name="Steps per run")
    steps.fill("")
    steps.blur()
    seen.page.get_by_role("button", name="Sweep", exact=True).click()
    seen.page.get_by_text("Steps per run is empty; give a whole number").wait_for()
    assert steps.input_value() == ""
    steps.fill("4")
    steps.press("Enter")
    seen.page.get_by_role("button", name="Sweep", exact=True).click()
    until(lambda: rows.count() == 3)
    assert "differs in" in held.locator("..").inner_text()
    swept = {f"CholQR swaps, Inducing points m = {m}" for m in (3, 5)}
    assert swept <= {row.split("\n")[0] for row in rows.all_inner_texts()}

    seen.page.get_by_label("Small multiples").check()
    until(lambda: seen.page.get_by_text("Inducing points m = 5").count() >= 1)

    seen.page.evaluate(MORE_WHILE_BUILT)
    until(lambda: rows.count() == 6)


def test_stored_runs_of_several_methods_are_found_and_opened(served: Served, anywhere: Seen):
    """By a page that has not computed them: they were stored by another process."""
    store = Store(served.log.parent / "store")  # that of the server
    data = {"name": "snelson-like", "n": 50}
    for method, steps in (("ml", 3), ("rff", 2)):
        run = Spec(method, data=data).open(store=store)
        run.finish(steps=steps)
        run.close()

    seen = anywhere
    rows = open_panel(seen, LABORATORY, 0)
    seen.page.get_by_text("Stored runs").click()
    for title in ("Exact GP, maximum likelihood", "Random Fourier features"):
        until(lambda title=title: rows.filter(has_text=title).count() == 1)

    box = rows.filter(has_text="Random Fourier features").locator("input[type=checkbox]")

    def is_chosen() -> bool:  # the table may be drawn again, with the other run, while it is clicked
        if not box.is_checked():
            box.click()
        return box.is_checked()

    until(is_chosen)
    seen.page.get_by_text("Open the selected").click()
    until(lambda: seen.fact("step") == "2")
    until(lambda: seen.number("SMSE") == pytest.approx(run.scores()["smse"], rel=1e-3))


def test_two_runs_move_in_step_under_one_bar(anywhere: Seen):
    seen = anywhere
    rows = open_panel(seen, "?v=1&data=snelson-like&data.n=60&set.num_inducing=5&at=8", 8)
    seen.press("Keep this run")
    until(lambda: rows.count() == 1)
    seen.page.get_by_role("combobox", name="Right").click()
    seen.page.get_by_text("Random rows, default settings").click()
    seen.press("Show both in step")
    seen.page.get_by_text("Both runs at step 8.").wait_for()

    bar = seen.page.get_by_role("slider", name="Place of both runs")
    for _ in range(3):
        bar.press("ArrowLeft")
    seen.page.get_by_text("Both runs at step 5.").wait_for()
    heads = seen.page.locator(".facts:not([role=status])")
    until(lambda: [head.split("\n")[1] for head in heads.all_inner_texts()] == ["5", "5"])
    sizes = "() => " + ON_PAGE + """.filter((m) => m.type === "ColumnDataSource" && m.name === "now").length"""
    until(lambda: seen.page.evaluate(sizes) >= 3)  # the run on the page, and both runs in step
    heads.first.evaluate("(head) => head.append('5 '.repeat(200))")  # more words at the left
    for width in (1440, 1160):
        seen.page.set_viewport_size({"width": width, "height": 900})
        until(lambda: all(tops := seen.page.evaluate(TOPS)) and tops[0] == tops[1])
    seen.page.set_viewport_size(SIZE)

    with seen.page.expect_download() as both:
        seen.page.get_by_role("button", name="Save both as a page").click()
    assert "<h2>Random rows</h2>" in both.value.path().read_text("utf-8")


def test_labels_of_a_logarithmic_axis_are_few_and_round_and_apart(page: Page) -> None:
    ticks_code = "([start, end]) => { const cb_data = {start, end};" + LOG_TICKS + "}"
    ends = ((0.1, 9), (0.2, 0.5), (0.21, 0.24), (1, 1000), (1e-9, 1e5), (5, 3e4), (95, 105), (1e-300, 1e300))
    for low, high in ends:
        ticks = page.evaluate(ticks_code, [low, high])
        shares = (np.log(ticks) - np.log(low)) / (np.log(high) - np.log(low))

        assert 2 <= len(ticks) <= 5
        assert ((shares > -1e-6) & (shares < 1 + 1e-6)).all()
        assert (np.diff(shares) > 0.15).all(), ticks
        assert all(float(f"{tick:.2g}") == pytest.approx(tick) or high < 1.2 * low for tick in ticks)
    assert page.evaluate(ticks_code, [9, 0.1]) == page.evaluate(ticks_code, [0.1, 9])
    assert page.evaluate(ticks_code, [float("nan"), 1.0]) == page.evaluate(ticks_code, [0, 1]) == []
