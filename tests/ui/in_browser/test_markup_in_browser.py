"""Markup in texts that people give stays text: what `benchmarks hammer --only html-probes` measures, on one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from benchmarks.hammer import html_probes
from benchmarks.hammer.html_probes import Probes, control, visited, visits
from pages import Served, new_page

pytestmark = pytest.mark.ui
VISITS = ("an address", "files, fields and stored runs")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """An empty page, which is closed after a failure too: one that plays on would take the time of the tests after."""
    page = new_page(browser)
    yield page
    page.close()


def test_markup_is_shown_as_text_and_the_control_runs(served: Served, page: Page):
    probes = Probes()
    for name in VISITS:
        before = len(probes.sinks)
        seen = visited(page, served.url, visits()[name], probes, served.log.parent)

        assert seen.hidden == []
        assert seen.made == []
        assert len(probes.sinks) >= before + 5
    assert control(page)


def test_a_page_that_makes_elements_of_texts_or_hides_them_is_caught(page: Page, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(html_probes, "PATIENCE", 1.0)

    def careless(page: Page, url: str, probes: Probes, folder: Path) -> None:
        page.goto("about:blank")
        page.set_content(f"<script>globalThis.Bokeh = {{documents: []}}</script><p>{probes('a note')}</p>")
        probes("a text that is not shown")

    seen = visited(page, "", careless, Probes(), Path())

    assert seen.made == ["100", "hit(100)"]
    assert "a text that is not shown" in seen.hidden
