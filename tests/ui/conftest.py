"""A served explorer, and pages opened on it that must not complain."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from pages import PATIENCE, Seen, Served, answers, until

expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = Served(port, tmp_path_factory.mktemp("ui") / "server.log")
    until(lambda: answers(server.url))
    yield server
    server.close()


@pytest.fixture
def open_page(served: Served, browser: Browser) -> Iterator[Callable[..., Seen]]:
    """Opens the explorer; what is open is closed after the test, and must not have complained."""
    opened: list[Seen] = []

    def opening(width: int = 1400, height: int = 900, query: str = "") -> Seen:
        seen = Seen(browser.new_page(viewport={"width": width, "height": height}), served.url, query)
        opened.append(seen)
        return seen

    yield opening
    for seen in opened:
        seen.page.close()
        assert seen.complaints == []
        assert seen.elsewhere == []


@pytest.fixture(scope="module")
def shared(served: Served, browser: Browser) -> Iterator[Seen]:
    """One page for the tests of a module: opening it is what costs."""
    seen = Seen(browser.new_page(viewport={"width": 1400, "height": 900}), served.url)
    yield seen
    seen.page.close()


@pytest.fixture
def seen(shared: Seen) -> Iterator[Seen]:
    """The shared page at its start, on the data it opens with; what it said during the test was no complaint."""
    shared.complaints.clear()
    shared.begin()
    yield shared
    shared.pause()
    assert shared.complaints == []
    assert shared.elsewhere == []
