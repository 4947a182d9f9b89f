"""What the page of the families answers to its browser, which may ask for anything."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gpexplorer.ui.screens import side_by_side
from gpexplorer.ui.screens.side_by_side import SideBySide
from gpexplorer.views.screens.side_by_side_page import FAMILIES, StepTimes


@pytest.fixture
def screen(monkeypatch) -> SideBySide:
    """A page before anything was computed; families are short, and only their order counts."""
    monkeypatch.setattr(side_by_side, "_computed", {})
    monkeypatch.setattr(side_by_side, "_times", StepTimes(250))
    monkeypatch.setattr(side_by_side, "family_of", lambda key, n: {"title": key, "n": n, "frames": []})
    return SideBySide()


def done(work: Any) -> None:
    """Await in a thread of its own: browser tests of the same process keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(work)).result()


def test_families_arrive_and_a_later_page_begins_with_them(screen):
    assert all(getattr(screen, key) is None for key in FAMILIES)

    done(screen.begin())

    assert all(getattr(screen, key)["n"] == 500 for key in FAMILIES)
    assert SideBySide().folds == screen.folds


def test_other_rows_compute_all_families_again(screen):
    done(screen.begin())
    done(screen.answer({"kind": "rows", "n": 1000}))

    assert screen.surface["n"] == 1000
    assert len(screen.surface["rows"][0]) == 1000
    assert screen.swaps["n"] == screen.folds["n"] == 1000


def test_a_page_that_is_closed_computes_nothing_more(screen):
    screen.end()
    done(screen.begin())

    assert sum(getattr(screen, key) is not None for key in FAMILIES) == 0


def test_the_times_are_measured_once_for_all_pages(screen):
    done(screen.answer({"kind": "time"}))

    assert set(screen.times) == set(FAMILIES)
    assert screen.measuring == ""
    assert SideBySide().times == screen.times


WRONG: list[dict[str, object]] = [{}, {"kind": "rows"}, {"kind": "rows", "n": 10**9}, {"kind": "rows", "n": "<b>"}]


@pytest.mark.parametrize("wrong", WRONG)
def test_an_impossible_request_is_answered_with_a_sentence(screen, wrong, caplog):
    with caplog.at_level(logging.CRITICAL, "gpexplorer.ui"):
        done(screen.answer(wrong))

    assert screen.surface["n"] == 500
    assert "log entry" in screen.notice
