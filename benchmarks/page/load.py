"""The page under load: `python -m benchmarks.page.load --users 20 --players 3 --idle 100 --minutes 60`.

It prints how long an answer takes (p50, p95), and the memory, threads and open files of the server while it lasts.
The visitors are raw clients, so the times are those of the server and not of many browsers.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import typer

from ..hammer.page_client import PageClient
from ..hammer.served_page import ServedPage, served_page

RUN = "v=1&method=cholqr&set.num_inducing=64&data=hypercube&data.n=20000&data.d=5&kernel=se-ard&budget.steps=1000000"
PAUSE = 2.5  # seconds between two steps of one person
LAP = 50  # steps after which a person starts again: the run that the page opens with ends of itself later
STILL = 20.0  # seconds without a step after which a run that plays has ended, and is started again
ROWS = 12  # of the table, spread evenly over the time
TOGETHER = 8  # pages that are opened at the same time


class Load(NamedTuple):
    """Who visits the server, and for how long.

    Attributes
    ----------
    users, players, idle : int
        People who take steps, people whose runs play all the time, and pages that are open and do nothing.
    seconds : float
        How long it lasts, once all pages are open.
    """

    users: int
    players: int
    idle: int
    seconds: float


class Reading(NamedTuple):
    """The server at one moment.

    Attributes
    ----------
    seconds : float
        Since all pages are open.
    p50, p95 : float
        Seconds from a press of "One step" to its picture, since the reading before.
    memory : float
        Resident memory, in bytes.
    threads, files : int
        Threads, and open files and connections.
    processor : float
        Cores that it used since the reading before.
    """

    seconds: float
    p50: float
    p95: float
    memory: float
    threads: int
    files: int
    processor: float


def command(
    users: Annotated[int, typer.Option(help="People who take a step every few seconds.", min=1)] = 20,
    players: Annotated[int, typer.Option(help="People whose runs play all the time.", min=0)] = 3,
    idle: Annotated[int, typer.Option(help="Pages that are open and do nothing.", min=0)] = 100,
    minutes: Annotated[float, typer.Option(help="How long it lasts once all pages are open.", min=0.1)] = 60.0,
) -> None:
    """Serve the page to many visitors for some time; print delays, memory, threads and open files of the server."""
    load = Load(users, players, idle, 60.0 * minutes)
    typer.echo("| time | p50 | p95 | memory | threads | files | cores |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="load-") as folder:
        pages = users + players + idle
        with served_page(Path(folder), ready_pages=0, max_sessions=pages + 10) as served:
            readings = asyncio.run(under_load(served, load, lambda reading: typer.echo(row(reading))))
        lines = [line for line in served.log_lines() if line.strip()]
    typer.echo(f"\n{pages} pages ({users} users, {players} playing, {idle} idle); {len(lines)} lines in the log")
    typer.echo(summary(readings))


async def under_load(served: ServedPage, load: Load, report: Callable[[Reading], object]) -> list[Reading]:
    """Visit a server, and read its numbers at regular times.

    Parameters
    ----------
    served : ServedPage
        The server.
    load : Load
        The visitors.
    report : callable
        Receives each reading.
    """
    players = [PageClient(served.address, RUN) for _ in range(load.players)]
    users = [PageClient(served.address) for _ in range(load.users)]
    idle = [PageClient(served.address) for _ in range(load.idle)]
    await _open_all([*idle, *users, *players])
    delays: list[float] = []
    begin = time.perf_counter()
    tasks = [asyncio.create_task(_take_steps(page, PAUSE * k / load.users, delays)) for k, page in enumerate(users)]
    tasks += [asyncio.create_task(_play(page)) for page in players]
    readings = []
    try:
        last, processor = begin, _processor_seconds(served)
        for number in range(1, ROWS + 1):
            await asyncio.sleep(max(0.0, begin + load.seconds * number / ROWS - time.perf_counter()))
            clock, used = time.perf_counter(), _processor_seconds(served)
            readings.append(_reading(served, clock - begin, delays, (used - processor) / (clock - last)))
            report(readings[-1])
            last, processor = clock, used
            delays.clear()
            for task in tasks:
                if task.done():
                    task.result()  # raises what has ended it
    finally:
        for task in tasks:
            task.cancel()
        for page in [*players, *users, *idle]:
            page.close()
    return readings


def row(reading: Reading) -> str:
    """A reading as a row of a Markdown table."""
    return (
        f"| {reading.seconds:.0f} s | {reading.p50:.2f} s | {reading.p95:.2f} s | {reading.memory / 1e6:.0f} MB "
        f"| {reading.threads} | {reading.files} | {reading.processor:.1f} |"
    )


def summary(readings: list[Reading]) -> str:
    """The worst delays, and how memory, threads and files changed from the first reading to the last."""
    first, last = readings[0], readings[-1]
    return (
        f"p50 at most {max(reading.p50 for reading in readings):.2f} s, "
        f"p95 at most {max(reading.p95 for reading in readings):.2f} s; "
        f"memory {first.memory / 1e6:.0f} to {last.memory / 1e6:.0f} MB, threads {first.threads} to {last.threads}, "
        f"files {first.files} to {last.files}"
    )


async def _open_all(pages: list[PageClient]) -> None:
    """Open pages, a few at the same time, and wait until each has its first picture."""
    for begin in range(0, len(pages), TOGETHER):
        several = pages[begin : begin + TOGETHER]
        await asyncio.gather(*(page.open() for page in several))
        await asyncio.gather(*(page.until_ready() for page in several))


async def _take_steps(page: PageClient, wait: float, delays: list[float]) -> None:
    """Press "One step" every few seconds, and note how long its picture takes."""
    await asyncio.sleep(wait)
    while True:
        if page.step >= LAP:
            await _start_again(page)
        next_step = page.step + 1
        begin = time.perf_counter()
        page.press("One step")
        await page.until_step(next_step)
        delays.append(time.perf_counter() - begin)
        await asyncio.sleep(PAUSE)


async def _play(page: PageClient) -> None:
    """Play, and start the run again whenever it has ended."""
    page.press("Play")
    while True:
        before = page.step
        await asyncio.sleep(STILL)
        if page.step == before:
            await _start_again(page)
            page.press("Play")


async def _start_again(page: PageClient) -> None:
    """Press "Start again", and wait until step 0 is shown."""
    page.press("Start again")
    await page.until(lambda: page.step == 0)


def _reading(served: ServedPage, seconds: float, delays: list[float], processor: float) -> Reading:
    process = served.process
    p50, p95 = np.quantile(delays, [0.5, 0.95]) if delays else (np.nan, np.nan)
    files = process.num_fds() if hasattr(process, "num_fds") else process.num_handles()
    return Reading(
        seconds, float(p50), float(p95), float(process.memory_info().rss), process.num_threads(), files, processor
    )


def _processor_seconds(served: ServedPage) -> float:
    times = served.process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    typer.run(command)
