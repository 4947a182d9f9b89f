"""The explorer and its widgets in JupyterLab: no network, no error, live pictures, and threads that end."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Frame, Page

from benchmarks.page.lab import Lab, Notebook
from notebook_pictures import read
from pages import AT, DATA_FIGURE, ON_PAGE, until

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

EXPLORER = "import gpexplorer as gpx\ngpx.Explorer(gpx.Spec('cholqr', {'num_inducing': 6}, data='snelson-like'))"
DARK = "rgb(20, 24, 29)"
INK = "(part) => getComputedStyle(part).color.match(/\\d+/g).slice(0, 3).map(Number)"
BEHIND = """(parts) => parts.map((part) => {
  const colour = (one) => getComputedStyle(one).backgroundColor
  while (colour(part) === "rgba(0, 0, 0, 0)") part = part.assignedSlot ?? part.parentElement ?? part.getRootNode().host
  return colour(part)
})"""
ALIVE = """import threading, json
print(json.dumps([thread.name for thread in threading.enumerate() if thread.name == "gpexplorer-player"]))"""
PIXELS = """() => [...document.querySelectorAll("*")].length && (function* all(root) {
  for (const one of root.querySelectorAll("*")) {
    if (one.shadowRoot) yield* all(one.shadowRoot)
    if (one.tagName === "CANVAS" && one.width) yield one.toDataURL().length
  }
})(document).reduce((sum, one) => sum + one, 0)"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """One JupyterLab for all tests of this file."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = Lab(port, tmp_path_factory.mktemp("lab"))
    yield server
    server.close()


class CommMessages:
    """Counts what the kernel sends to pages in cells: changes of a page, and pictures that it asks the browser for."""

    def __init__(self, page: Page) -> None:
        self.page, self.changes, self.pictures = page, 0, 0
        page.on("websocket", lambda socket: socket.on("framereceived", self._count))

    def _count(self, payload: str | bytes) -> None:
        content = payload if isinstance(payload, str) else payload.decode("latin1")
        self.changes += content.count("PATCH-DOC")
        self.pictures += content.count('attr\\":\\"beat')


@pytest.fixture(scope="module")
def messages(browser: Browser) -> Iterator[CommMessages]:
    """The messages of a page that a notebook is to be opened on."""
    context = browser.new_context(viewport={"width": 1400, "height": 1000}, reduced_motion="reduce")
    yield CommMessages(context.new_page())
    context.close()


@pytest.fixture(scope="module")
def book(lab: Lab, messages: CommMessages) -> Notebook:
    """An open notebook with a player and an explorer."""
    player = f"run = {EXPLORER.splitlines()[1][13:-1]}.open()\nplayer = run.widget('fit')\nplayer.watched = []\n"
    watch = "player.param.watch(lambda e: player.watched.append(e.new), 'last')\nplayer"
    check = "print(run.done > 3, player.watched[-1] > 3)"
    cells = ("import gpexplorer as gpx\n" + player + watch, check, EXPLORER, ALIVE)
    lab.write("widgets.ipynb", *cells)
    return Notebook(messages.page, lab, "widgets.ipynb")


def step(frame: Frame) -> int:
    """The step that an explorer shows."""
    cell = frame.locator(".facts div", has_text="step").first.locator("b").first
    return int(cell.text_content() or 0)


def rest(frame: Frame) -> None:
    """Wait until a run that was paused takes no step for 1.5 seconds, and its picture has followed."""
    seen = [(step(frame), *inducing(frame))]
    while len(seen) < 16 or len(set(seen[-16:])) > 1:
        frame.page.wait_for_timeout(100)
        seen.append((step(frame), *inducing(frame)))


def inducing(frame: Frame) -> list[float]:
    """The x positions of the inducing points in the browser's copy of the picture."""
    return frame.evaluate(
        f"""() => {ON_PAGE}.filter((m) => m.type === "ColumnDataSource" && m.name === "inducing")
             .flatMap((m) => [...(m.data.get ? m.data.get("x") : m.data.x)])"""
    )


def drag_a_point(book: Notebook, frame: Frame) -> None:
    """Drag the first inducing point in the picture of the data, and take that back."""
    before, at = inducing(frame), step(frame)
    frame.get_by_role("button", name="Move points").first.click()
    until(lambda: frame.evaluate(f"(event) => Bokeh.index.find_one(({DATA_FIGURE})(event))?.frame != null", "panstart"))
    frame.evaluate(f"() => Bokeh.index.find_one(({DATA_FIGURE})('')).el.scrollIntoView({{block: 'center'}})")
    points = f"({DATA_FIGURE})('').renderers.find((r) => r.data_source?.name === 'inducing').data_source"
    x, y = frame.evaluate(AT, [before[0], frame.evaluate(f"() => {points}.get_column('y')[0]")])
    corner = book.output(2).locator("iframe").first.bounding_box()
    assert corner is not None
    x, y, mouse = x + corner["x"], y + corner["y"], book.page.mouse
    mouse.move(x, y)
    mouse.down()
    mouse.move(x + 60 if before[0] < 3 else x - 60, y, steps=8)
    until(lambda: frame.locator(".split b").count() == 4)  # the terms of the bound
    mouse.up()
    until(lambda: len(set(before) - set(inducing(frame))) == 1)
    frame.get_by_role("button", name="Take back the last click").first.click()
    until(lambda: step(frame) == at and inducing(frame) == before)


def use_keys_and_panels(page: Page, frame: Frame) -> None:
    """An arrow key steps, tabs open, a run is kept, methods race, link and pictures leave the cell."""
    before = step(frame)
    frame.locator("h1").first.click()
    page.keyboard.press("ArrowRight")
    until(lambda: step(frame) == before + 1)
    frame.get_by_role("tab", name="Calibration").click()
    frame.get_by_text("Below the band the predictive intervals").wait_for()
    frame.get_by_text("Compare: runs you keep").click()
    frame.get_by_role("button", name="Keep this run").click()
    until(lambda: frame.locator(".tabulator-row").count() == 1)
    frame.get_by_text("Race: several methods").click()
    field = frame.get_by_role("textbox", name="Seconds per method")
    field.fill("0.5")
    field.press("Enter")
    frame.get_by_role("button", name="Race", exact=True).last.click()
    frame.get_by_text(re.compile("(Winner by|Lowest) SMSE:")).wait_for()
    frame.get_by_text("Link, code and files").click()
    link = frame.get_by_label("Link to this screen")
    until(lambda: "set.num_inducing=7" in link.input_value())
    with page.expect_download() as pictures:
        frame.get_by_role("button", name="pictures.html").click()
    assert pictures.value.path().stat().st_size > 100_000


def background(frame: Frame) -> str:
    """The colour behind the page in a cell."""
    return str(frame.evaluate("() => getComputedStyle(document.body).backgroundColor"))


def panels(frame: Frame) -> set[str]:
    """The colours behind More settings, Compare and the other panels that open: their own, or that of what is below."""
    return set(frame.locator(".MuiAccordion-root").evaluate_all(BEHIND))


def alive(book: Notebook, cell: int) -> int:
    """The number of player threads in the kernel."""
    return len(json.loads(book.text(cell)))


def test_a_player_moves_its_picture_and_its_parameters(book: Notebook) -> None:
    book.run(0)
    frame = book.frame(0)
    before = frame.evaluate(PIXELS)
    play = frame.get_by_role("button", name="Play or pause").first
    play.click()
    until(lambda: re.search(r"Step ([4-9]|[1-9]\d)", str(frame.get_by_text("Step ").first.text_content())))
    play.click()
    assert frame.evaluate(PIXELS) != before
    assert book.text(1) == "True True"
    height = "document.documentElement.clientHeight"
    assert frame.evaluate(f"document.body.scrollHeight <= {height} && {height} < 600")  # nothing is cut off
    frame.get_by_text("Step ").first.click()
    book.run(1)  # a click on the cell's prompt takes the keys away from the page
    assert book.complaints == []
    assert book.elsewhere == []


def test_an_explorer_plays_beside_a_player_follows_the_theme_and_ends_without_a_network(
    lab: Lab, book: Notebook, messages: CommMessages
) -> None:
    book.run(2)
    first = book.frame(2)
    assert background(first) == DARK
    ink = first.get_by_role("button", name="training", exact=True).first.evaluate(INK)
    assert min(ink) > 200  # the words of the legend are light
    first.get_by_label("Inducing points m, slider").wait_for()
    before = first.evaluate(PIXELS)
    messages.changes = messages.pictures = 0
    first.get_by_role("button", name="Play or pause").first.click()
    until(lambda: step(first) > 3 and messages.pictures > 3)
    assert first.evaluate(PIXELS) != before
    assert messages.changes <= 2 * messages.pictures  # one message per picture, not one per change
    first.get_by_label("Inducing points m, slider").press("ArrowRight")
    until(lambda: len(inducing(first)) == 7)
    first.get_by_role("button", name="Play or pause").first.click()
    rest(first)
    drag_a_point(book, first)
    book.set_theme("JupyterLab Light")
    until(lambda: background(first) not in (DARK, ""))
    until(lambda: panels(first) == {"rgb(255, 255, 255)"})
    use_keys_and_panels(book.page, first)
    players = alive(book, 3)
    book.run(2)
    until(lambda: step(book.frame(2)) == 0)
    assert alive(book, 3) == players  # the explorer of the first run of the cell is freed
    assert book.complaints == []
    assert book.elsewhere == []
    assert (lab.folder / "widgets.ipynb").stat().st_size < 200_000
    assert "Warning" not in (book.output(2).text_content() or "")


def test_all_cells_of_a_shipped_notebook_run(lab: Lab, book: Notebook, root: Path) -> None:
    """The first one; `test_notebooks.py` runs all others, without a browser."""
    source = root / "notebooks" / "first_swap.ipynb"
    lab.write("shipped.ipynb", *(cell.source for cell in read(source).cells if cell.cell_type == "code"))
    book.share_kernel("shipped.ipynb")  # its imports would take as long as all cells
    shipped = Notebook(book.page.context.new_page(), lab, "shipped.ipynb")
    page = shipped.page
    shipped.run_all()
    frame = shipped.last_frame()
    until(lambda: frame.evaluate(PIXELS) > 10_000)
    assert all(page.locator(".jp-RenderedSVG img").evaluate_all("(all) => all.map((one) => one.naturalWidth)"))
    with page.expect_response(lambda answer: answer.request.method == "PUT"):
        page.keyboard.press("Control+s")
    saved = read(lab.folder / "shipped.ipynb").cells
    assert all(cell.execution_count and (cell.outputs or cell is not saved[-1]) for cell in saved)
    assert [out for cell in saved for out in cell.outputs if out.output_type == "error"] == []
    assert shipped.complaints == []
    assert shipped.elsewhere == []
    page.close()


def test_a_page_plays_in_notebook_7(lab: Lab, book: Notebook) -> None:
    lab.write("seven.ipynb", EXPLORER)
    book.share_kernel("seven.ipynb")
    seven = Notebook(book.page.context.new_page(), lab, "seven.ipynb", "notebooks")
    before_cells = [*seven.complaints]  # Notebook 7.6 logs errors of its own when it opens any notebook
    seven.run(0)
    frame = seven.frame(0)
    before = frame.evaluate(PIXELS)
    frame.get_by_role("button", name="Play or pause").first.click()
    until(lambda: step(frame) > 2)
    assert frame.evaluate(PIXELS) != before
    assert seven.complaints == before_cells
    assert seven.elsewhere == []
    seven.page.close()


def test_a_kernel_that_is_shut_down_is_gone(lab: Lab, book: Notebook) -> None:
    [kernel] = lab.kernels()
    book.shut_down()
    until(lambda: not kernel.is_running(), 20)  # and all of its threads with it
