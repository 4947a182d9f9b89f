"""A server of the explorer, and an open page on it, for browser tests."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

from playwright.sync_api import Browser, Page, TimeoutError

HERE = Path(__file__).resolve().parent
ON_PAGE = """(() => [...new Set(Bokeh.documents[0].roots().flatMap((root) => [...root.references()]))])()"""
# the models on the page now; `all_models` also has those that left it in the last 5 seconds
DATA_FIGURE = f"""(event) => {ON_PAGE}.find((m) => m.type === "Figure"
    && m.renderers.some((r) => r.data_source?.name === "inducing")
    && (!event || m.subscribed_events.has(event)))"""
AT = f"""([x, y]) => {{
  const view = Bokeh.index.find_one(({DATA_FIGURE})(""))
  const box = view.el.getBoundingClientRect()
  return [box.left + view.frame.x_scale.compute(x), box.top + view.frame.y_scale.compute(y)]
}}"""  # the place of a point of that figure in the window
FACTS = """(label) => {
  if (!globalThis.statusLine?.isConnected) {
    const within = (root) => {
      const found = root.querySelector(".facts[role=status]")
      if (found) return found
      for (const element of root.querySelectorAll("*")) {
        const inside = element.shadowRoot && within(element.shadowRoot)
        if (inside) return inside
      }
    }
    globalThis.statusLine = within(document)
  }
  const cells = [...(globalThis.statusLine?.querySelectorAll("div") ?? [])]
  return cells.find((cell) => cell.textContent.includes(label))?.querySelector("b").textContent ?? null
}"""  # a locator walks through all shadow roots of the page each time that it is asked
GO_BACK = """(query) => {
  history.pushState(null, "", location.pathname + query)
  dispatchEvent(new PopStateEvent("popstate"))
}"""  # as if Back or Forward had led to this address
SIZE = {"width": 1400, "height": 900}
LABORATORY = "?page=laboratory&v=1"
FOLD = ".MuiAccordionSummary-root"
PATIENCE = 45_000  # milliseconds; a page takes ten seconds on two busy cores


class Served:
    """A server process, which can be asked how many explorers, runs and threads are alive in it, and what plays."""

    def __init__(self, port: int, log: Path) -> None:
        self.url, self.log, self.port = f"http://localhost:{port}/explorer", log, port
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
        command = [sys.executable, str(HERE / "page_server.py"), str(port), str(log.parent)]
        pipe = subprocess.PIPE
        with log.open("w") as log_file:
            self._process = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=log_file, text=True, env=env, cwd=HERE.parents[1]
            )
        self.pid = self._process.pid
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._lines.get(timeout=120)  # the address, or "" where the process has ended

    def count(self) -> dict[str, int]:
        """Return the numbers of live explorers, runs and player threads: half a second of the server's time."""
        return self._ask("alive")

    def playing(self) -> int:
        """Return the number of players that take steps."""
        return self._ask("playing")["playing"]

    def _ask(self, question: str) -> dict[str, int]:
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()
        return json.loads(self._lines.get(timeout=120))

    def close(self) -> None:
        self._process.kill()
        self._reader.join()
        self._process.communicate()

    def _read(self) -> None:
        """Keep the answers, and drop what Panel logs on the same stream: a full pipe would stop the server."""
        for line in self._process.stdout:
            if line.startswith(("{", "Explorer:")):
                self._lines.put(line)
        self._lines.put("")


def answers(url: str) -> bool:
    """Return whether a page is served at this address."""
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return answer.status == 200
    except OSError:
        return False


def until(holds: Callable[[], object], seconds: float = 45.0, every: float = 0.1) -> None:
    """Call this function until it returns something true; AssertionError if not in time.

    It is called again after so many seconds, and then less and less often: to look for a text costs 20 ms of a browser.
    """
    end, pause = time.monotonic() + seconds, every
    while not holds():
        assert time.monotonic() < end, f"not within {seconds:g} s"
        time.sleep(pause)
        pause = max(every, min(1.25 * pause, 0.4))


def new_page(browser: Browser, width: int = SIZE["width"], height: int = SIZE["height"]) -> Page:
    """Return an empty page of a person who wants no motion: a bar that moves is drawn sixty times per second."""
    return browser.new_page(viewport={"width": width, "height": height}, reduced_motion="reduce")


class Seen:
    """One open page, with its controls, its numbers, the errors it logged, and its requests to other hosts.

    A test that leaves what others would take for their own, such as predictions, says that the page `is_spent`.
    """

    def __init__(self, page: Page, url: str, query: str = "") -> None:
        self.page, self.complaints, self.elsewhere = page, [], []
        self.is_fuller = self.is_spent = False
        page.on("console", lambda entry: self.complaints.append(entry.text) if entry.type == "error" else None)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self._note(request.url))
        self.began = time.monotonic()
        page.goto(url + (query or LABORATORY))
        page.locator("canvas").first.wait_for(timeout=PATIENCE)
        self.drawn = time.monotonic() - self.began

    def _note(self, url: str) -> None:
        if not url.startswith(("http://localhost:", "ws://localhost:", "data:", "blob:")):
            self.elsewhere.append(url)

    def press(self, name: str) -> None:
        """Click the button with this name."""
        self.page.get_by_role("button", name=name).first.click(timeout=PATIENCE)

    def unfold(self, section: str) -> None:
        """Unfold a section of the sidebar, if it is folded; the one that was unfolded is folded."""
        heading = self.page.locator(f"{FOLD}:has(.section)", has_text=re.compile(f"^{section}"))
        if heading.get_attribute("aria-expanded", timeout=PATIENCE) != "true":
            heading.click(timeout=PATIENCE)
            section = self.page.locator(".MuiAccordion-root", has=heading)
            section.locator(".MuiCollapse-entered").first.wait_for(timeout=PATIENCE)  # what is in it no longer moves

    def pause(self) -> None:
        """Pause the run, if it plays."""
        if "Pause" in (self.page.get_by_role("button", name="Play or pause").text_content() or ""):
            self.press("Play or pause")
            self.rest()

    def begin(self) -> None:
        """Return to step 0 of the run that the laboratory opens with: half of the work of `visit`, if it is open."""
        named = set(parse_qs(self.page.evaluate("location.search.slice(1)")))
        if named and named <= {"page", "v", "defaults", "at"}:  # rows of a file have no address
            self.press("Start again")
        else:
            self.visit(LABORATORY)
        until(lambda: self.fact("step") == "0")

    def visit(self, query: str) -> None:
        """Open another run by its address through the browser's history, less than half of the work of loading a page.

        The page has followed when it has written the address in its own words.
        """
        self.page.evaluate(GO_BACK, f"?page=sought&{query.removeprefix('?')}")
        until(lambda: "page=sought" not in self.page.evaluate("location.search"))

    def tidy(self) -> None:
        """Bring back what an address does not say: the size and theme of a page, and what is unfolded.

        A panel that has been opened stays on the page, folded. From then on the page `is_fuller` than a new one.
        """
        self.page.set_viewport_size(SIZE)
        self.page.mouse.move(5, 5)
        self.pause()
        if self.page.locator(".mui-dark").count():
            self.press("Toggle theme")
            until(lambda: self.page.locator(".mui-dark").count() == 0)
        close = self.page.get_by_role("button", name="Close", exact=True).locator("visible=true")
        panels = close.and_(self.page.locator(":not(.MuiAlert-root *)"))  # not that of a message
        for unfolded in (panels, self.page.locator(f"{FOLD}[aria-expanded=true]:not(:has(.section))")):
            while count := unfolded.count():
                self.is_fuller = True
                with contextlib.suppress(TimeoutError):  # the test closed it, and it goes while this looks for it
                    unfolded.first.click(timeout=10_000)
                until(lambda unfolded=unfolded, count=count: unfolded.count() < count)
        if self.page.locator(".section").count():
            self.unfold("Method")

    def fact(self, label: str) -> str:
        """Return the value in the status line with this label."""
        end = time.monotonic() + PATIENCE / 1000
        while (said := self.page.evaluate(FACTS, label)) is None:
            assert time.monotonic() < end, f"the status line says nothing of {label!r}"
            time.sleep(0.1)
        return str(said)

    def number(self, label: str) -> float:
        """Return the same value as a number, also a score of an earlier step; nan for a dash."""
        text = self.fact(label).split(" of ")[0].split(" at ")[0].replace(",", "").replace("−", "-")
        return float("nan") if text == "—" else float(text)

    @property
    def step(self) -> int:
        """The step shown."""
        return int(self.number("step"))

    def rest(self, quiet: float = 1.5) -> int:
        """Wait until the step shown has not changed for so many seconds, and return it."""
        before, since = self.step, time.monotonic()
        while time.monotonic() - since < quiet:
            time.sleep(0.1)
            if self.step != before:
                before, since = self.step, time.monotonic()
        return before

    def inducing(self) -> list[float]:
        """Return the x positions of the inducing points in the browser's copy of the picture."""
        return self.page.evaluate(
            f"""() => {ON_PAGE}.filter((m) => m.type === "ColumnDataSource" && m.name === "inducing")
                 .flatMap((m) => [...(m.data.get ? m.data.get("x") : m.data.x)])"""
        )

    def alert(self) -> str:
        """Return the message in the alert."""
        return str(self.page.locator(".MuiAlert-message .said").inner_text(timeout=PATIENCE))


def listens(seen: Seen, event: str) -> bool:
    """Return whether the figure of the data waits for this event, and is laid out."""
    return bool(seen.page.evaluate(f"(event) => Bokeh.index.find_one(({DATA_FIGURE})(event))?.frame != null", event))
