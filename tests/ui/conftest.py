"""A served explorer, and pages on it whose browser console must stay free of errors."""

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
    """A function that opens a page. Its pages are closed after the test and must not have logged an error."""
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
    """One page for all tests of a module, because opening a page is slow."""
    seen = Seen(browser.new_page(viewport={"width": 1400, "height": 900}), served.url)
    yield seen
    seen.page.close()


@pytest.fixture
def seen(shared: Seen) -> Iterator[Seen]:
    """The shared page at step 0, on the data it opens with. It must not log an error during the test."""
    shared.complaints.clear()
    shared.begin()
    yield shared
    shared.pause()
    assert shared.complaints == []
    assert shared.elsewhere == []
