"""The explorer and its widgets in JupyterLab: no network, no error, live pictures, and threads that end."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Frame

from lab import Lab, Notebook
from pages import ON_PAGE, until

pytestmark = [pytest.mark.ui, pytest.mark.timeout(240)]

EXPLORER = "import gpexplorer as gpx\ngpx.Explorer(gpx.Spec('cholqr', {'num_inducing': 6}, data='snelson-like'))"
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


def step(frame: Frame) -> int:
    """The step that an explorer shows."""
    cell = frame.locator(".facts div", has_text="step").first.locator("b").first
    return int(cell.text_content() or 0)


def inducing(frame: Frame) -> list[float]:
    """The x positions of the inducing points in the browser's copy of the picture."""
    return frame.evaluate(
        f"""() => {ON_PAGE}.filter((m) => m.type === "ColumnDataSource" && m.name === "inducing")
             .flatMap((m) => [...(m.data.get ? m.data.get("x") : m.data.x)])"""
    )


def alive(book: Notebook, cell: int) -> int:
    """The number of player threads in the kernel."""
    return len(json.loads(book.text(cell)))


def test_two_explorers_play_follow_the_theme_and_end_without_a_network(lab: Lab, browser: Browser) -> None:
    lab.write("two.ipynb", EXPLORER, EXPLORER.replace("6", "9"), ALIVE)
    book = Notebook(browser.new_page(viewport={"width": 1400, "height": 1000}), lab, "two.ipynb")
    book.run(0)
    first = book.frame(0)
    assert first.locator("html").evaluate("e => getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 29)"
    before = first.evaluate(PIXELS)
    first.get_by_role("button", name="Play or pause").first.click()
    until(lambda: step(first) > 3)
    assert first.evaluate(PIXELS) != before
    first.get_by_label("Inducing points m, slider").press("ArrowRight")
    until(lambda: len(inducing(first)) == 7)
    book.run(1)
    second = book.frame(1)
    assert step(second) == 0
    assert alive(book, 2) == 2
    book.run(0)
    until(lambda: step(book.frame(0)) == 0)
    assert alive(book, 2) == 2  # the explorer of the first run of the cell is freed
    assert book.complaints == []
    assert book.elsewhere == []
    assert (lab.folder / "two.ipynb").stat().st_size < 200_000
    book.page.close()


def test_a_player_moves_its_picture_and_its_parameters(lab: Lab, browser: Browser) -> None:
    shown = "player.watched = []\nplayer.param.watch(lambda e: player.watched.append(e.new), 'last')\nplayer"
    open_run = f"import gpexplorer as gpx\nrun = {EXPLORER.splitlines()[1][13:-1]}.open()\nplayer = run.widget('fit')\n"
    lab.write("player.ipynb", open_run + shown, "print(run.done > 3, player.watched[-1] > 3)")
    book = Notebook(browser.new_page(viewport={"width": 1200, "height": 800}), lab, "player.ipynb")
    book.run(0)
    frame = book.frame(0)
    before = frame.evaluate(PIXELS)
    frame.get_by_role("button", name="Play or pause").first.click()
    until(lambda: "of 4" in str(frame.get_by_text("Step ").first.text_content()) or frame.evaluate(PIXELS) != before)
    book.page.wait_for_timeout(1500)
    frame.get_by_role("button", name="Play or pause").first.click()
    assert frame.evaluate(PIXELS) != before
    assert book.text(1) == "True True"
    assert book.complaints == []
    assert book.elsewhere == []
    height = "document.documentElement.clientHeight"
    assert frame.evaluate(f"document.body.scrollHeight <= {height} && {height} < 600")  # nothing is cut off
    book.page.close()
