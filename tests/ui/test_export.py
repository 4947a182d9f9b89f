"""The pictures as one HTML file: it shows what the screen showed, as text, and requests nothing from the network."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pandas as pd
import pytest

from gpexplorer import Spec, data, views
from gpexplorer.ui.panels.share_panel import sheet, written

PROBE = "</script><img src=x onerror=alert(1)>"


class Tags(HTMLParser):
    """The elements that a browser would create from a page, and the addresses they would fetch."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.fetched: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href", "data", "action")]


@pytest.fixture(scope="module")
def page() -> str:
    frame = pd.DataFrame({PROBE: [0.1 * i for i in range(40)], "y": [(-1.0) ** i * i for i in range(40)]})
    split = data.load(frame, target="y")
    run = Spec("cholqr", {"num_inducing": 5}, kernel="se").open(data=split)
    for _ in range(3):
        run.advance()
    shown = {view.key: view for view in views.for_run(run)}
    drawn = [(shown[key], shown[key].data(run, 2)) for key in ("fit", "convergence", "landscape")]
    return sheet(Spec("cholqr", data=PROBE), ["<p>SMSE 0.25</p>"], drawn, "dark")


def test_its_pictures_are_saved_by_names(page: str):
    assert '"Data and prediction, cholqr"' in page
    assert '"Swap landscape, cholqr"' in page


def test_it_requests_nothing_from_the_network(page: str):
    tags = Tags(page)

    assert tags.fetched == []
    assert "link" not in tags.names
    assert not re.search(r"url\(\s*['\"]?https?:", page)


def test_it_is_as_wide_as_a_phone(page: str):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page


def test_names_and_data_stay_text(page: str):
    assert "img" not in Tags(page).names
    assert "&lt;/script&gt;&lt;img" in page


def test_a_note_stays_text():
    assert written("a <b>\n\nc") == "<p><i>a &lt;b&gt;</i></p><p><i>c</i></p>"


def test_it_contains_each_picture_and_its_numbers(page: str):
    assert page.count("data-root-id=") == 3
    assert page.count("<h2>") == 4
    assert "SMSE 0.25" in page
