"""Many people on one server: pages opened at once, steps while three runs go on, closed tabs, and memory."""

from __future__ import annotations

import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil

from .measurement import Measurement, Report, cases
from .page_client import PageClient

USERS, CYCLES, PRESSES = 20, 200, 4
RUN = "v=1&method=cholqr&set.num_inducing=64&data=hypercube&data.n=20000&data.d=5&kernel=se-ard&budget.steps=5000"
IDLE = 0.2  # cores: below, no run goes on
FILLING = 150.0  # seconds to wait at most until the pages that are built in advance are ready


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Serve the page in a process of its own, and visit it."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    log = folder / "server.log"
    command = [sys.executable, "-m", "gpexplorer", "serve", "--port", str(port), "--ready-pages", str(USERS)]
    with log.open("w") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=os.environ | {"PYTHONUNBUFFERED": "1"})
    try:
        return asyncio.run(_visits(f"localhost:{port}", psutil.Process(process.pid), log, share, report))
    finally:
        process.kill()
        process.wait()


async def _visits(address: str, server: psutil.Process, log: Path, share: float, report: Report) -> list[Measurement]:
    while "Explorer:" not in log.read_text():
        await asyncio.sleep(0.5)
    report("waiting for the pages that are built in advance")
    await _quiet(server, FILLING)
    rows = [await _opened_at_once(address, report)]
    rows += await _steps_while_runs_go_on(address, server, report)
    rows.append(await _opened_and_closed(address, server, cases(CYCLES, share, least=10), report))
    lines = [line for line in log.read_text().splitlines() if not line.startswith("Explorer:")]
    rows.append(Measurement("lines in the log after all this", f"{len(lines)}", "0", not lines))
    return rows


async def _opened_at_once(address: str, report: Report) -> Measurement:
    """All users open the page in the same moment."""

    async def opened(page: PageClient) -> float:
        begin = time.perf_counter()
        await page.open()
        return time.perf_counter() - begin

    pages = [PageClient(address) for _ in range(USERS)]
    seconds = await asyncio.gather(*map(opened, pages))
    for page in pages:
        page.close()
    report(f"opened: {statistics.median(seconds):.2f} s")
    return _time_row(f"{USERS} pages opened at once, to the first picture", list(seconds), 5.0)


async def _steps_while_runs_go_on(address: str, server: psutil.Process, report: Report) -> list[Measurement]:
    """Three pages play, the others take single steps; then all tabs are closed."""
    players, others = [PageClient(address, RUN) for _ in range(3)], [PageClient(address) for _ in range(USERS - 3)]
    for page in players + others:
        await page.open()
        await page.until(lambda page=page: page.frames > 0)  # type: ignore[misc]
    for page in players:
        page.press("Play")
        await page.until(lambda page=page: page.step > 1)  # type: ignore[misc]
    seconds: list[float] = []

    async def steps(page: PageClient, number: int) -> None:
        await asyncio.sleep(0.2 * number)
        for _ in range(PRESSES):
            next_step = page.step + 1
            page.press("One step")
            seconds.append(await page.until(lambda next_step=next_step: page.step >= next_step))  # type: ignore[misc]
            await asyncio.sleep(2.5)

    await asyncio.gather(*(steps(page, number) for number, page in enumerate(others)))
    report(f"steps: {statistics.median(seconds):.2f} s")
    for page in others:
        page.close()
    await asyncio.sleep(1.0)
    for page in players:
        page.close()
    gone_on = await _quiet(server, 30.0)
    return [
        _time_row("a step to its picture, 17 users, three runs going on", seconds, 1.5),
        Measurement("three runs go on after their tabs were closed", f"{gone_on:.1f} s", "2 s", gone_on <= 2.0),
    ]


async def _opened_and_closed(address: str, server: psutil.Process, count: int, report: Report) -> Measurement:
    """Open a page, take a step and close it, again and again; the first tenth warms up."""
    first = 0.0
    for number in range(count):
        page = PageClient(address)
        await page.open()
        await page.until(lambda page=page: page.frames > 0)  # type: ignore[misc]
        page.press("One step")
        await page.until(lambda page=page: page.step > 0)  # type: ignore[misc]
        page.close()
        if number == count // 10:
            await asyncio.sleep(15.0)
            first = server.memory_info().rss
        if number % 20 == 0:
            report(f"page {number}: {server.memory_info().rss / 1e6:.0f} MB")
    await asyncio.sleep(15.0)
    last = server.memory_info().rss
    growth = 100 * (last / first - 1)
    return Measurement(
        f"{count} pages opened and closed",
        f"{first / 1e6:.0f} to {last / 1e6:.0f} MB ({growth:+.1f} %)",
        "5 %",
        growth < 5,
    )


async def _quiet(server: psutil.Process, patience: float) -> float:
    """Wait until the server has computed nothing for five seconds; returns how long it still computed."""
    begin = last_busy = time.perf_counter()
    times = server.cpu_times()
    while time.perf_counter() - begin < patience and time.perf_counter() - last_busy < 5.0:
        await asyncio.sleep(0.25)
        now = server.cpu_times()
        if now.user + now.system - times.user - times.system > 0.25 * IDLE:
            last_busy = time.perf_counter()
        times = now
    return last_busy - begin


def _time_row(tried: str, seconds: list[float], goal: float) -> Measurement:
    """Median and 95th percentile of some times; the goal is for the latter."""
    high = sorted(seconds)[min(int(0.95 * len(seconds)), len(seconds) - 1)]
    measured = f"median {statistics.median(seconds):.2f} s, 95 % within {high:.2f} s"
    return Measurement(tried, measured, f"95 % within {goal:g} s", high <= goal)
