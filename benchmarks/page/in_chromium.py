"""Measurements of one person's page in a browser: times by the browser's clock, messages by its network protocol."""

from __future__ import annotations

import os
import statistics
import time
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from ..hammer.measurement import Measurement, Report, log_row
from ..hammer.page_load import time_row
from ..hammer.served_page import ServedPage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PATIENCE = 60_000  # milliseconds
WATCHED = 8.0  # seconds for which the messages of a playing run are counted
WARM_UP = 5  # pages that are opened before memory is compared
SETTLED = 12.0  # seconds until the sessions of closed pages have ended
COMPRESSION = 1  # level of deflate with which `serve` sends messages
FLUSH_MARK = b"\x00\x00\xff\xff"  # ends what deflate flushes; a websocket leaves it out
SLIDER = "Inducing points m, slider"
PLAY = "Play or pause"

CHANGE = """([label, m]) => new Promise((done, fail) => {
  const find = (root) => {
    for (const element of root.querySelectorAll("*")) {
      if (element.getAttribute("aria-label") === label) return element
      const inside = element.shadowRoot && find(element.shadowRoot)
      if (inside) return inside
    }
    return null
  }
  const source = () => [...new Set(Bokeh.documents[0].roots().flatMap((root) => [...root.references()]))]
    .find((model) => model.type === "ColumnDataSource" && model.name === "inducing")
  const begin = performance.now()
  const look = () => {
    const data = source()?.data
    const x = data == null ? [] : (data.get ? data.get("x") : data.x)
    if (x.length === m) requestAnimationFrame(() => done(performance.now() - begin))
    else if (performance.now() - begin > 30000) fail(new Error(`no picture with ${m} points`))
    else setTimeout(look, 5)
  }
  const slider = find(document)
  slider.value = m
  slider.dispatchEvent(new Event("change"))
  look()
})"""
ANSWER = """(button, word) => new Promise((done) => {
  const begin = performance.now()
  const look = () => button.textContent.includes(word) ? done(performance.now() - begin) : requestAnimationFrame(look)
  button.click()
  look()
})"""


class Repeats(NamedTuple):
    """How often things are done.

    Attributes
    ----------
    changes : int
        Changes of the number of inducing points while a run plays, and clicks on Pause and Play.
    sessions : int
        Pages opened and closed.
    watched : float
        Seconds for which messages are counted.
    """

    changes: int = 20
    sessions: int = 20
    watched: float = WATCHED


class Messages:
    """What a server sent to a page over its websocket.

    Attributes
    ----------
    changes : int
        Messages that change the document. The others acknowledge what the browser has sent.
    frames : int
        Websocket frames. A message of Bokeh's protocol has three, and two more for each large array.
    bytes : int
        Their sizes together, compressed as the server does.
    pictures : int
        Frames that belong to a new picture: the server asks for an acknowledgement with each.
    """

    def __init__(self) -> None:
        self.changes = self.frames = self.bytes = self.pictures = 0
        self._deflate = zlib.compressobj(COMPRESSION, zlib.DEFLATED, -zlib.MAX_WBITS)

    def count(self, page: Page) -> None:
        """Count the messages of this page from now on."""
        page.on("websocket", lambda socket: socket.on("framereceived", self._count))

    def _count(self, payload: str | bytes) -> None:
        self.frames += 1
        packed = self._deflate.compress(payload.encode() if isinstance(payload, str) else payload)
        self.bytes += len(packed) + len(self._deflate.flush(zlib.Z_SYNC_FLUSH)) - len(FLUSH_MARK)
        if isinstance(payload, str):
            self.changes += "PATCH-DOC" in payload[:200]
            self.pictures += '"attr":"beat"' in payload

    def reset(self) -> None:
        """Set all counts to 0."""
        self.changes = self.frames = self.bytes = self.pictures = 0


def measured(served: ServedPage, browser: Browser, repeats: Repeats, report: Report) -> list[Measurement]:
    """All measurements of one server.

    Parameters
    ----------
    served : ServedPage
        The server.
    browser : playwright Browser
        Where its page is opened.
    repeats : Repeats
        How often.
    report : callable
        Receives lines of progress.
    """
    rows = []
    messages = Messages()
    page, seconds = opened(browser, served, messages.count)
    rows.append(time_row("first picture of a page", [seconds], 4.0))
    play(page)
    report("counting messages")
    rows += messages_while_playing(page, messages, repeats.watched)
    report("changing the number of inducing points")
    rows.append(changes_while_playing(page, repeats.changes))
    rows.append(answers_while_playing(page, repeats.changes))
    page.close()
    rows.append(end_of_closed_run(served))
    report("opening and closing pages")
    rows.append(memory(browser, served, repeats.sessions))
    rows.append(log_row(served.log_lines()))
    return rows


def opened(
    browser: Browser, served: ServedPage, watch: Callable[[Page], object] = lambda page: None
) -> tuple[Page, float]:
    """A page with its first picture, and the seconds that it took; `watch` receives it before it is loaded."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    watch(page)
    page.add_init_script("localStorage.setItem('gpexplorer-tour', 'seen')")
    begin = time.perf_counter()
    page.goto(f"http://{served.address}/explorer?page=laboratory")
    page.locator("canvas").first.wait_for(timeout=PATIENCE)
    seconds = time.perf_counter() - begin
    page.get_by_label(SLIDER).wait_for(timeout=PATIENCE)
    return page, seconds


def play(page: Page) -> None:
    """Press Play and wait until the run has moved."""
    page.get_by_role("button", name=PLAY).first.click(timeout=PATIENCE)
    page.wait_for_timeout(2000)


def messages_while_playing(page: Page, messages: Messages, seconds: float) -> list[Measurement]:
    """Count what a playing run sends."""
    messages.reset()
    page.wait_for_timeout(1000 * seconds)
    counts = (messages.pictures, messages.changes, messages.frames, messages.bytes)
    pictures, changes, frames, size = (count / seconds for count in counts)
    condition = f"while playing, at {pictures:.1f} pictures per second"
    rates = f"{changes:.0f} per second, and {frames:.0f} websocket frames with their parts and the acknowledgements"
    return [
        Measurement(f"messages {condition}", rates, "30", changes <= 30),
        Measurement(f"bytes {condition}", f"{size / 1000:.0f} kB per second", "60 kB", size <= 60_000),
    ]


def changes_while_playing(page: Page, count: int) -> Measurement:
    """Move the slider of m while the run plays, and wait for the picture with as many points."""
    seconds = []
    for number in range(count):
        seconds.append(1e-3 * float(page.evaluate(CHANGE, [SLIDER, 8 + 3 * (number % 3)])))
        page.wait_for_timeout(700)
    row = time_row("a change of m while playing, to the new picture", seconds, 0.5)
    is_met = row.held and statistics.median(seconds) <= 0.3
    return row._replace(goal="median 0.3 s, 95 % within 0.5 s", held=is_met)


def answers_while_playing(page: Page, count: int) -> Measurement:
    """Click Pause and Play in turn."""
    button = page.get_by_role("button", name=PLAY)
    plays = "Pause" in (button.text_content() or "")
    seconds = []
    for number in range(count):
        word = "Play" if (number % 2 == 0) == plays else "Pause"
        seconds.append(1e-3 * float(button.evaluate(ANSWER, word)))
        page.wait_for_timeout(300)
    return time_row("a click on Pause or Play, to its new label", seconds, 0.5)


def end_of_closed_run(served: ServedPage) -> Measurement:
    """How long runs still compute after the last page was closed."""
    seconds = _until(lambda: not served.computing(), 60.0)
    return Measurement("a run goes on after its tab was closed", f"{seconds:.1f} s", "2 s", seconds <= 2.0)


def memory(browser: Browser, served: ServedPage, sessions: int) -> Measurement:
    """Open pages, play and close them; compare the server's memory after some with that after all."""
    sizes = []
    for number in range(sessions):
        page, _ = opened(browser, served)
        play(page)
        page.close()
        if number + 1 in (WARM_UP, sessions):
            time.sleep(SETTLED)
            sizes.append(served.process.memory_info().rss)
    growth = 100 * (sizes[-1] / sizes[0] - 1)
    return Measurement(
        f"memory of the server from the {WARM_UP}th to the {sessions}th page",
        f"{sizes[0] / 1e6:.0f} to {sizes[-1] / 1e6:.0f} MB ({growth:+.1f} %; load {os.getloadavg()[0]:.1f})",
        "at most 5 % more",
        growth <= 5.0,
    )


def _until(holds: Callable[[], bool], seconds: float) -> float:
    """Wait until this holds, at most so long, and return the seconds."""
    begin = time.perf_counter()
    while not holds() and time.perf_counter() - begin < seconds:
        time.sleep(0.1)
    return time.perf_counter() - begin
