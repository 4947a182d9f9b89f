"""What the first screen answers to its browser, which may ask for anything."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from gpexplorer.runs import Spec
from gpexplorer.ui.address import LABORATORY, OWN_ROWS, read_query, write_query
from gpexplorer.ui.explorer import START
from gpexplorer.ui.screens.first_screen import FirstScreen
from gpexplorer.views.screens.lesson_page import SWAPS, lesson_spec


@pytest.fixture
def screen() -> FirstScreen:
    return FirstScreen()


def ask(screen: FirstScreen, **request: object) -> None:
    """Ask in a thread of its own: browser tests of the same process keep a loop running in this one."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lambda: asyncio.run(screen.answer(request))).result()


def test_a_forced_swap_and_its_undo(screen):
    begun = screen.lesson
    row = begun["frames"][2]["next"]["best"]

    ask(screen, kind="swap", at=2, row=row, slot=3)

    assert screen.lesson["first"] == 3
    assert row in screen.lesson["frames"][3]["points"]
    ask(screen, kind="undo")
    assert screen.lesson["first"] == 2
    assert screen.lesson["frames"] == begun["frames"]
    ask(screen, kind="undo")
    assert screen.lesson["frames"] == begun["frames"]
    assert screen.notice == ""


@pytest.mark.parametrize(("wanted", "given"), [(12, 12), (3, 4), (1000, 20)])
def test_another_number_of_points_within_its_range(screen, wanted, given):
    ask(screen, kind="points", m=wanted)

    assert screen.lesson["points"] == given
    assert len(screen.lesson["frames"][0]["points"]) == given


IMPOSSIBLE: list[dict[str, object]] = [
    {},
    {"kind": "swap"},
    {"kind": "swap", "at": 99, "row": 0, "slot": 0},
    {"kind": "<b>"},
    {"kind": "swap", "at": 0, "row": "x", "slot": 0},
]


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_an_impossible_request_keeps_the_lesson_and_says_so(screen, wrong, caplog):
    before = screen.lesson
    with caplog.at_level(logging.CRITICAL, "gpexplorer.ui"):
        ask(screen, **wrong)

    assert screen.lesson is before
    assert screen.notice


def test_a_row_that_is_a_point_already_is_refused_with_a_sentence(screen):
    points = screen.lesson["frames"][1]["points"]

    ask(screen, kind="swap", at=1, row=points[0], slot=1)

    assert str(points[0]) in screen.notice


def test_two_pages_share_what_they_begin_with_and_nothing_else(screen):
    other = FirstScreen()
    ask(screen, kind="points", m=7)

    assert other.lesson["points"] == 10


def test_the_laboratory_has_an_address_of_its_own():
    start = Spec(**START)
    plain = read_query(f"page={LABORATORY}", start)

    assert write_query(plain, start) == f"?page={LABORATORY}"
    assert replace(plain.link.spec, budget={"steps": SWAPS}) == lesson_spec(10)  # the run of this screen goes on there
    assert plain.link.corrected == ()
    lecture = read_query(f"page={LABORATORY}&hide=controls", start)
    assert (lecture.link, lecture.hide) == (plain.link, {"controls"})
    assert read_query(write_query(lecture, start), start) == lecture
    start_itself = read_query(f"page={LABORATORY}&v=1", start)
    assert start_itself == read_query("", start)
    assert write_query(start_itself, start) == f"?page={LABORATORY}&v=1"


def test_the_address_of_rows_of_ones_own_opens_the_start_and_is_told_apart():
    start = Spec(**START)
    request = read_query(OWN_ROWS, start)
    assert request.own_rows
    assert request.link.spec == start
    assert not read_query(f"?page={LABORATORY}", start).own_rows
