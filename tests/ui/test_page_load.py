"""Several people on one server, by raw clients: what `benchmarks hammer --only page-load` and `load` measure."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from benchmarks.hammer import page_load
from benchmarks.hammer.page_client import PageClient
from benchmarks.hammer.page_load import Visitors, time_row, visits
from benchmarks.page import load
from benchmarks.page.load import Load, Reading, row, summary, under_load
from pages import Served, until

SMALL = "v=1&method=cholqr&data=sin-product&data.n=60&set.num_inducing=5&budget.steps=5000"


def awaited(story: Coroutine[Any, Any, Any]) -> Any:
    """What this coroutine returns, on a loop in a thread of its own: a browser test may have left a loop here."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, story).result()


@pytest.fixture
def load_of(served: Served, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The server of all tests here, as the experiment sees a server."""
    monkeypatch.setattr(page_load, "SETTLED", 0.0)
    monkeypatch.setattr(page_load, "PAUSE_BETWEEN", 0.1)
    monkeypatch.setattr(page_load, "WARM_UP", 1)
    monkeypatch.setattr(page_load, "FILLING", 0.0)
    times = SimpleNamespace(user=1.0, system=1.0)
    process = SimpleNamespace(cpu_times=lambda: times, memory_info=lambda: SimpleNamespace(rss=1e8))
    address = f"localhost:{served.port}"
    return SimpleNamespace(
        address=address, process=process, computing=served.playing, pages=lambda: 2,
        log_lines=lambda: ["a line", ""],
    )  # fmt: skip


def test_every_visitor_gets_pages_and_steps_and_leaves_no_run_behind(load_of: SimpleNamespace, served: Served):
    small = Visitors(users=2, players=1, presses=2, cycles=2, run=SMALL)

    rows = awaited(visits(load_of, small, print))

    opened, steps, gone_on, memory, log = rows
    assert opened.tried.startswith("2 pages opened at once")
    assert "1 users, 1 runs going on" in steps.tried
    assert 0 <= float(gone_on.measured.removesuffix(" s")) < 2 + 40  # the second number is for a busy machine
    assert (memory.measured, memory.held) == ("100 to 100 MB (+0.0 %)", True)
    assert (log.measured, log.held) == ("1, the first: a line", False)
    until(lambda: served.playing() == 0)


def test_a_page_that_is_gone_and_a_button_that_is_not_there_are_errors(served: Served):
    async def story() -> None:
        page = PageClient(f"localhost:{served.port}", SMALL)
        await page.open()
        with pytest.raises(LookupError, match="no component with description='Nothing'"):
            page.press("Nothing")
        with pytest.raises(TimeoutError):
            await page.until(lambda: page.step > 99, seconds=0.2)
        page.close()

    awaited(story())


def test_the_goal_is_for_all_but_one_in_twenty():
    times = [0.1] * 19 + [9.0]

    assert not time_row("answers", times, 1.0).held
    assert time_row("answers", times + [0.1] * 20, 1.0).held
    assert "median 0.10 s, 95 % within 9.00 s" in time_row("answers", times, 1.0).measured


def test_a_short_load_is_read_at_regular_times(served: Served, monkeypatch: pytest.MonkeyPatch):
    seen: list[Reading] = []
    monkeypatch.setattr(load, "RUN", SMALL)  # of the one whose run plays; 20,000 rows would fill a core
    server = SimpleNamespace(address=f"localhost:{served.port}", process=psutil.Process(served.pid))

    readings = awaited(under_load(server, Load(users=2, players=1, idle=1, seconds=6.0), seen.append))

    assert seen == readings
    assert len(readings) == 12
    assert any(reading.p50 <= reading.p95 < 30 for reading in readings)
    assert all(reading.memory > 1e8 and reading.threads > 1 and reading.files > 6 for reading in readings)
    assert row(readings[0]).count("|") == 8
    assert "memory" in summary(readings)
