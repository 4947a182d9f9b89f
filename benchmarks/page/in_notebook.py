"""The page in a cell of JupyterLab beside the page of a server, in the same minutes on the same machine.

Both play the same run in turns, one waits while the other is measured: what else the machine does slows both.
"""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..hammer.measurement import Measurement, Report
from ..hammer.served_page import ServedPage
from .in_chromium import CHANGE, PATIENCE, PLAY, SLIDER, opened
from .lab import Lab, Notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Frame, Page

ROUNDS = 3  # turns of each
WATCHED = 6.0  # seconds of one turn
SETTLING = 1500  # milliseconds after Play until pictures are counted
CELL = "import gpexplorer as gpx\ngpx.Explorer()"
PICTURES = """() => [...new Set(Bokeh.documents[0].roots().flatMap((root) => [...root.references()]))]
  .find((model) => model.data && "beat" in model.data).data.beat"""  # the page acknowledges each picture by its number
STEPS = 10.0  # per second, the speed of a player that nobody has changed
DRAWN = 0.95  # part of the steps that are drawn; the clock of the page and that of the browser differ a little
CHANGE_GOAL = 0.5  # seconds


class Side:
    """A page whose run plays, on a server or in a cell.

    Parameters
    ----------
    page : playwright Page
        The tab.
    frame : playwright Frame
        Where the explorer is in it.

    Attributes
    ----------
    rates : list of float
        Pictures per second, one number per turn.
    seconds : list of float
        From a change of m to the picture with as many points.
    """

    def __init__(self, page: Page, frame: Frame) -> None:
        self.page, self.frame = page, frame
        self.rates: list[float] = []
        self.seconds: list[float] = []

    def turn(self, seconds: float, changes: int) -> None:
        """Play, count pictures, change m while it plays, and pause."""
        self.page.bring_to_front()
        button = self.frame.get_by_role("button", name=PLAY).first
        button.click(timeout=PATIENCE)
        self.page.wait_for_timeout(SETTLING)
        pictures_before, begin = self.frame.evaluate(PICTURES), time.perf_counter()
        self.page.wait_for_timeout(1000 * seconds)
        drawn = self.frame.evaluate(PICTURES) - pictures_before
        self.rates.append(drawn / (time.perf_counter() - begin))
        for number in range(changes):
            self.seconds.append(1e-3 * float(self.frame.evaluate(CHANGE, [SLIDER, 8 + 3 * (number % 3)])))
            self.page.wait_for_timeout(700)
        if "Pause" in (button.text_content() or ""):
            button.click(timeout=PATIENCE)
        self.page.wait_for_timeout(SETTLING)


@contextmanager
def lab(folder: Path) -> Iterator[Lab]:
    """JupyterLab on a free port, with its files in this folder."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    server = Lab(port, folder)
    try:
        yield server
    finally:
        server.close()


def measured(
    served: ServedPage, server: Lab, browser: Browser, changes: int, report: Report, seconds: float = WATCHED
) -> list[Measurement]:
    """Pictures per second and answers of a cell, each beside those of the page of a server.

    Parameters
    ----------
    served : ServedPage
        The server of the page.
    server : Lab
        JupyterLab.
    browser : playwright Browser
        Where both are opened.
    changes : int
        Changes of m while a run plays, shared among all turns.
    report : callable
        Receives lines of progress.
    seconds : float
        How long pictures are counted in one turn.
    """
    server.write("bench.ipynb", CELL)
    tab = browser.new_page(viewport={"width": 1440, "height": 1000})
    book = Notebook(tab, server, "bench.ipynb")
    book.run(0)
    cell = Side(tab, book.frame(0))
    cell.frame.get_by_label(SLIDER).wait_for(timeout=PATIENCE)
    plain, _ = opened(browser, served)
    page = Side(plain, plain.main_frame)
    for number in range(ROUNDS):
        for name, side in (("page", page), ("cell", cell)):
            side.turn(seconds, max(changes // ROUNDS, 1))
            report(
                f"{name}, turn {number + 1}: {side.rates[-1]:.1f} pictures per second, "
                f"changes {statistics.median(side.seconds):.2f} s, load {os.getloadavg()[0]:.1f}"
            )
    rows = rows_of(page, cell)
    tab.close()
    plain.close()
    return rows


def rows_of(page: Side, cell: Side) -> list[Measurement]:
    """The rows of the table."""
    load = f"load {os.getloadavg()[0]:.1f}"
    rate, rate_of_page = statistics.median(cell.rates), statistics.median(page.rates)
    wait, wait_of_page = statistics.median(cell.seconds), statistics.median(page.seconds)
    return [
        Measurement(
            "pictures per second while playing, in a cell",
            f"{rate:.1f}; on the page {rate_of_page:.1f} ({load})",
            f"{STEPS:g}: a picture of each step ({DRAWN * STEPS:g} counts)",
            rate >= DRAWN * STEPS,
        ),
        Measurement(
            f"{len(cell.seconds)} changes of m while playing in a cell, to the new picture",
            f"median {wait:.2f} s; on the page {wait_of_page:.2f} s ({load})",
            "median 0.5 s",
            wait <= CHANGE_GOAL,
        ),
    ]
