"""A saved page is opened from the disk without a network: it plays, answers, and follows the theme of the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

import gpexplorer as gpx
from pages import until
from saved_pages import kinds_of

pytestmark = pytest.mark.ui
PIXELS = """() => [...document.querySelectorAll(".figure")].map((place) => {
  const canvas = [...function* walk(node) {
    for (const child of node.querySelectorAll("*")) {
      if (child.tagName === "CANVAS") yield child
      if (child.shadowRoot) yield* walk(child.shadowRoot)
    }
  }(place)]
  return canvas.map((one) => one.toDataURL()).join()
})"""

ENDS = """() => Bokeh.documents[0].roots().map((figure) => ({
  x: [figure.x_range.start, figure.x_range.end], y: [figure.y_range.start, figure.y_range.end]
}))"""

THEMED = """([page, figure]) => getComputedStyle(document.body).backgroundColor === page &&
  Bokeh.documents[0].roots()[0].background_fill_color === figure"""


class Opened:
    """A page from the disk, in a browser without a network, with what it requested and complained about."""

    def __init__(self, browser: Browser, file: Path, theme: Any = "light") -> None:
        self.context = browser.new_context(
            viewport={"width": 1300, "height": 800}, color_scheme=theme, offline=True, reduced_motion="reduce"
        )
        self.page: Page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda entry: self.complaints.append(entry.text) if entry.type == "error" else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.address = file.as_uri()
        self.page.goto(self.address)
        self.page.locator("body[data-ready]").wait_for(timeout=45_000)

    def fact(self, label: str) -> str:
        return str(
            self.page.locator("dl.facts div", has=self.page.get_by_text(label, exact=True))
            .locator("dd")
            .first.text_content()
        )

    def close(self) -> None:
        assert self.complaints == []
        assert {url.partition("#")[0] for url in self.requests} == {self.address}
        self.context.close()


def test_it_plays_scrubs_and_shows_the_numbers_of_each_step(browser: Browser, tmp_path: Path):
    run = gpx.Spec("cholqr", {"num_inducing": 10}, data="snelson-like", kernel="se").open()
    run.finish(steps=24)
    file = run.save_page(tmp_path / "run.html")
    opened = Opened(browser, file, "dark")  # frame 0 has fewer rows than the fullest one, with which Bokeh begins
    page = opened.page
    until(lambda: all(opened.page.evaluate(PIXELS)))
    before = page.evaluate(PIXELS)
    assert len(before) == 3

    page.get_by_role("button", name="Play or pause").click()
    until(lambda: int(opened.fact("step")) >= 6)
    page.keyboard.press("Tab")
    page.get_by_role("button", name="Play or pause").click()
    at = int(opened.fact("step"))
    until(lambda: all(new != old for new, old in zip(page.evaluate(PIXELS), before, strict=True)))
    page.get_by_role("button", name="One step back").click()
    assert int(opened.fact("step")) == at - 1

    page.get_by_label("Step", exact=True).fill("7")
    record = run.trace[7]
    assert opened.fact("objective F [nat]") == f"{record.step.info.objective:.4g}".replace("-", "−")
    shown = page.evaluate(
        """() => Bokeh.documents[0].all_models
             ? [...Bokeh.documents[0].all_models].filter((m) => m.type === "ColumnDataSource" && m.name === "inducing")
                 .flatMap((m) => [...m.data.x]) : []"""
    )
    assert shown == pytest.approx(list(run.plot("fit", 7).layers["inducing"]["x"]), abs=1e-6)
    pixels = page.evaluate(PIXELS)[0]
    page.get_by_role("button", name="truth").click()
    until(lambda: page.evaluate(PIXELS)[0] != pixels)

    [x, y] = page.evaluate(
        """() => {
          const figure = Bokeh.documents[0].roots()[0], view = Bokeh.index.find_one(figure)
          const source = figure.renderers.map((r) => r.data_source).find((s) => s.name === "train")
          const box = view.el.getBoundingClientRect(), frame = view.frame
          const [sx, sy] = [frame.x_scale.compute(source.data.x[5]), frame.y_scale.compute(source.data.y[5])]
          return [box.left + sx, box.top + sy]
        }"""
    )
    page.mouse.move(x, y)
    until(lambda: page.get_by_text("training row").count() >= 1)

    page.goto(page.url.partition("#")[0] + "#step=3")
    until(lambda: opened.fact("step") == "3")
    page.get_by_label("Speed").select_option("slow")
    step = 3
    for dark, colours in ((False, ["rgb(255, 255, 255)", "#ffffff"]), (True, ["rgb(28, 34, 41)", "#1c2229"])):
        page.emulate_media(color_scheme="dark" if dark else "light")
        page.wait_for_function(THEMED, arg=colours)
        page.get_by_role("button", name="Play or pause").click()
        until(lambda step=step: int(opened.fact("step")) > step)
        page.get_by_role("button", name="Play or pause").click()
        step = int(opened.fact("step"))
    opened.close()


def test_two_runs_share_their_axes_and_a_changed_or_cut_page_is_a_sentence(browser: Browser, tmp_path: Path):
    spec = gpx.Spec("cholqr", {"num_inducing": 3}, data="snelson-like", kernel="se")
    runs = {"3 <b>": spec.open(), "6": replace(spec, settings={"num_inducing": 6}).open()}
    for steps, run in zip((3, 5), runs.values(), strict=True):
        run.finish(steps=steps)
    file = gpx.Compare(runs).save_page(tmp_path / "run.html", "convergence", title="6 < 7 & <b>")
    whole = file.read_text("utf-8")
    opened = Opened(browser, file)
    assert opened.page.locator("#problem").is_hidden()
    for place in range(1, 6):
        opened.page.get_by_label("Step", exact=True).fill(str(place))
        one, other = opened.page.evaluate(ENDS)
        values = [record.step.info.objective for run in runs.values() for record in run.trace[1 : place + 1]]
        assert one == other
        assert one["y"][0] < min(values) < max(values) < one["y"][1]
    for width in (1440, 1024):  # the facts of the left run have the longer words, and only it has a note on the rows
        opened.page.set_viewport_size({"width": width, "height": 900})
        opened.page.locator("dl.facts dd").first.evaluate("(number) => (number.textContent += ' 5'.repeat(80))")
        tops = [box["y"] for box in (each.bounding_box() for each in opened.page.locator(".figure").all())]
        assert len(set(tops)) == 1, width
    heads = opened.page.locator(".head").all()
    assert [each.evaluate("(head) => head.lastElementChild.tagName") for each in heads] == ["P", "DL"]
    opened.close()
    frames, script = whole.index('id="frames">') + 20, whole.index('id="bokeh">') + 2000
    numbers = whole.index('id="content">') + 200
    words = whole.index("How to repeat this run") + 4
    for place in (frames, script, numbers, words):
        letter = "B" if whole[place] != "B" else "C"
        (tmp_path / "bad.html").write_text(whole[:place] + letter + whole[place + 1 :], "utf-8")
        page = browser.new_page()
        page.goto((tmp_path / "bad.html").as_uri())
        page.get_by_text("it was changed after it was saved. Save the page again").wait_for(timeout=45_000)
        assert page.locator("body[data-ready]").count() == 0
        page.close()
    (tmp_path / "cut.html").write_text(whole[: frames + 20], "utf-8")
    page = browser.new_page()
    page.goto((tmp_path / "cut.html").as_uri())
    page.get_by_text("If this sentence stays, the file is not whole").wait_for()
    page.close()


def test_every_kind_of_column_moves(browser: Browser, tmp_path: Path):
    """On the page of the one family that has them all; `test_saved_page.py` looks into the pages of all families."""
    run = gpx.Spec("grief", data={"name": "sin-product", "n": 60, "d": 2}).open()
    run.finish(steps=4)
    file = run.save_page(tmp_path / "run.html")
    assert kinds_of(file.read_text("utf-8")) == {"f8", "i4", "g4", "q2", "json"}

    opened = Opened(browser, file, "dark")
    before = opened.page.evaluate(PIXELS)
    opened.page.get_by_label("Step", exact=True).fill(str(run.done))

    until(lambda: all(new != old for new, old in zip(opened.page.evaluate(PIXELS), before, strict=True)))
    opened.close()
