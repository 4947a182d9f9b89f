"""Many people on one server: pages opened at once, steps while three runs go on, closed tabs, and memory.

The visitors are raw clients, so that the times are those of the server and not of twenty browsers.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from pathlib import Path
from typing import NamedTuple

from .measurement import Measurement, Report, cases, log_row
from .page_client import PageClient
from .served_page import ServedPage, served_page

USERS, PLAYERS, CYCLES, PRESSES = 20, 3, 200, 4
RUN = "v=1&method=cholqr&set.num_inducing=64&data=hypercube&data.n=20000&data.d=5&kernel=se-ard&budget.steps=5000"
FILLING = 300.0  # seconds to wait at most until the pages that are built in advance are ready
PAUSE_BETWEEN = 2.5  # seconds between two steps of one person
SETTLED = 15.0  # seconds until the sessions of closed pages have ended
WARM_UP = 5  # pages that are opened before memory is compared


class Visitors(NamedTuple):
    """How many people do what.

    Attributes
    ----------
    users : int
        Pages that are opened at once, and pages that take steps.
    players : int
        Pages among them whose runs are playing.
    presses : int
        Steps that each of the others takes.
    cycles : int
        Pages that are opened, used and closed one after another.
    run : str
        The address of the playing runs.
    """

    users: int = USERS
    players: int = PLAYERS
    presses: int = PRESSES
    cycles: int = CYCLES
    run: str = RUN


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Serve the page in a process of its own, and visit it; the share is that of the pages opened and closed."""
    visitors = Visitors(cycles=cases(CYCLES, share, least=2 * WARM_UP))
    with served_page(folder, ready_pages=visitors.users) as served:
        return asyncio.run(visits(served, visitors, report))


async def visits(served: ServedPage, visitors: Visitors, report: Report) -> list[Measurement]:
    """Open pages at once, take steps while runs go on, close all, and open and close many.

    Parameters
    ----------
    served : ServedPage
        The server.
    visitors : Visitors
        How many of each.
    report : callable
        Receives lines of progress.
    """
    report("waiting for the pages that are built in advance")
    await _all_ready(served, visitors.users, report)
    rows = [await _opened_at_once(served, visitors.users, report)]
    await asyncio.sleep(SETTLED)
    rows += await _steps_while_runs_go_on(served, visitors, report)
    await asyncio.sleep(SETTLED)
    rows.append(await _opened_and_closed(served, visitors.cycles, report))
    rows.append(log_row(served.log_lines()))
    return rows


async def _opened_at_once(served: ServedPage, users: int, report: Report) -> Measurement:
    """All users open the page in the same moment, and leave when all have it."""

    async def opened(page: PageClient) -> float:
        begin = time.perf_counter()
        await page.open()
        return time.perf_counter() - begin

    pages = [PageClient(served.address) for _ in range(users)]
    processor_before = _processor_seconds(served)
    seconds = await asyncio.gather(*map(opened, pages))
    used = (_processor_seconds(served) - processor_before) / users
    for page in pages:
        page.close()
    report(f"opened: {statistics.median(seconds):.2f} s")
    return time_row(
        f"{users} pages opened at once, to the document with its first picture", list(seconds), 5.0,
        f"; {used:.2f} s of processor time per page",
    )  # fmt: skip


async def _steps_while_runs_go_on(served: ServedPage, visitors: Visitors, report: Report) -> list[Measurement]:
    """Some pages play, the others take single steps; then all tabs are closed."""
    players = [PageClient(served.address, visitors.run) for _ in range(visitors.players)]
    others = [PageClient(served.address) for _ in range(visitors.users - visitors.players)]
    for page in players + others:
        await page.open()
        await page.until_ready()
    for page in players:
        page.press("Play")
        await page.until_step(2)
    seconds: list[float] = []

    async def steps(page: PageClient, number: int) -> None:
        await asyncio.sleep(PAUSE_BETWEEN * number / len(others))
        for _ in range(visitors.presses):
            next_step = page.step + 1
            page.press("One step")
            seconds.append(await page.until_step(next_step))
            await asyncio.sleep(PAUSE_BETWEEN)

    await asyncio.gather(*(steps(page, number) for number, page in enumerate(others)))
    report(f"steps: {statistics.median(seconds):.2f} s")
    for page in others:
        page.close()
    await asyncio.sleep(1.0)
    for page in players:
        page.close()
    begin = time.perf_counter()
    while served.computing() and time.perf_counter() - begin < 60.0:
        await asyncio.sleep(0.1)
    overrun = time.perf_counter() - begin
    return [
        time_row(f"a step to its picture, {len(others)} users, {visitors.players} runs going on", seconds, 1.5),
        Measurement("runs go on after their tabs were closed", f"{overrun:.1f} s", "2 s", overrun <= 2.0),
    ]


async def _opened_and_closed(served: ServedPage, count: int, report: Report) -> Measurement:
    """Open a page, take a step and close it, again and again; the first ones warm up."""
    sizes: list[float] = []
    for number in range(count):
        page = PageClient(served.address)
        await page.open()
        await page.until_ready()
        page.press("One step")
        await page.until_step(1)
        page.close()
        if number + 1 in (WARM_UP, count):
            await asyncio.sleep(SETTLED)
            sizes.append(served.process.memory_info().rss)
        if number % 20 == 0:
            report(f"page {number}: {served.process.memory_info().rss / 1e6:.0f} MB")
    first, last = sizes[0], sizes[-1]
    growth = 100 * (last / first - 1)
    return Measurement(
        f"{count} pages opened and closed, memory from the {WARM_UP}th to the last",
        f"{first / 1e6:.0f} to {last / 1e6:.0f} MB ({growth:+.1f} %)",
        "at most 5 % more",
        growth < 5,
    )


async def _all_ready(served: ServedPage, pages: int, report: Report) -> None:
    """Wait until the server has built its pages in advance."""
    begin = time.perf_counter()
    while (served.pages() < pages or served.computing()) and time.perf_counter() - begin < FILLING:
        await asyncio.sleep(0.5)
    report(f"{served.pages()} pages are ready after {time.perf_counter() - begin:.0f} s")


def _processor_seconds(served: ServedPage) -> float:
    times = served.process.cpu_times()
    return float(times.user + times.system)


def time_row(tried: str, seconds: list[float], goal: float, remark: str = "") -> Measurement:
    """Median and 95th percentile of some times, with the load of the machine; the goal is for the latter."""
    high = sorted(seconds)[min(int(0.95 * len(seconds)), len(seconds) - 1)]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    measured = f"median {statistics.median(seconds):.2f} s, 95 % within {high:.2f} s{remark} (load {load:.1f})"
    return Measurement(tried, measured, f"95 % within {goal:g} s", high <= goal)
