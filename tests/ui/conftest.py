"""A served explorer, and pages on it whose browser console must stay free of errors."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, expect

from pages import PATIENCE, Seen, Served, new_page

expect.set_options(timeout=PATIENCE)
FAILED = pytest.StashKey[bool]()


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """One server for all tests here."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    server = Served(port, tmp_path_factory.mktemp("ui") / "server.log")  # it says its address once it listens
    yield server
    server.close()


@pytest.fixture
def open_page(served: Served, browser: Browser) -> Iterator[Callable[..., Seen]]:
    """A function that opens a page. Its pages are closed after the test and must not have logged an error."""
    opened: list[Seen] = []

    def opening(width: int = 1400, height: int = 900, query: str = "") -> Seen:
        seen = Seen(new_page(browser, width, height), served.url, query)
        opened.append(seen)
        return seen

    yield opening
    for seen in opened:
        seen.page.close()
        assert seen.complaints == []
        assert seen.elsewhere == []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Note which tests failed, for the page that they share."""
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.fixture(scope="session")
def shared() -> Iterator[list[Seen]]:
    """The page that tests share, because opening one is slow; none until a test needs it, or after one failed on it."""
    pages: list[Seen] = []
    yield pages
    for seen in pages:
        seen.page.close()


@pytest.fixture(scope="module")
def _panels_stay(request: pytest.FixtureRequest, shared: list[Seen]) -> None:
    """Only files that open panels take a page with panels: every layout is slower, and `violations` sees them."""
    while shared and shared[0].is_fuller and not request.node.get_closest_marker("panels"):
        shared.pop().page.close()


@pytest.fixture
def anywhere(
    request: pytest.FixtureRequest, served: Served, browser: Browser, shared: list[Seen], _panels_stay: None
) -> Iterator[Seen]:
    """The shared page as the last test has left it, for tests that open rows or a run of their own: 5 s less each.

    It must not log an error during the test.
    """
    if not shared:
        shared.append(Seen(new_page(browser), served.url))
    seen = shared.pop()
    seen.complaints.clear()
    yield seen
    try:
        if not request.node.stash.get(FAILED, False):
            seen.tidy()
            assert seen.complaints == []
            assert seen.elsewhere == []
            shared += [] if seen.is_spent else [seen]
    finally:
        if seen not in shared:
            seen.page.close()


@pytest.fixture
def seen(anywhere: Seen) -> Seen:
    """The shared page at step 0, on the data it opens with."""
    anywhere.begin()
    return anywhere
