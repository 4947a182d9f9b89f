"""The cards of stories and questions: all of them, each with an address that opens it."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from docs import card_pictures
from gpexplorer.runs import Spec
from gpexplorer.ui.address import read_query
from gpexplorer.ui.explorer import START
from gpexplorer.ui.inputs.presets import PRESETS
from gpexplorer.ui.screens.gallery import DARK, PICTURES, Gallery
from gpexplorer.ui.stories import STORIES
from gpexplorer.views.drawing.palette import ROLES

ALLOWED = """d fill fill-opacity stroke stroke-width stroke-opacity stroke-dasharray stroke-linecap
x y width height preserveAspectRatio image-rendering href class"""
IN_BOTH_THEMES = ("white", ROLES["band"])  # rows on a map, and a band that the paper shines through


def test_every_story_and_every_question_has_a_card_that_opens_it():
    (_, stories), (_, questions) = Gallery().groups

    opened = [read_query(card["address"], Spec(**START)) for card in [*stories, *questions]]

    assert [request.story for request in opened[: len(stories)]] == list(STORIES)
    assert [request.question for request in opened[len(stories) :]] == list(PRESETS)
    assert [request.link.corrected for request in opened] == [()] * len(opened)


def test_every_card_has_a_small_picture_of_its_own_in_colours_for_both_themes():
    cards = [card for _, group in Gallery().groups for card in group]

    assert all(card["picture"] for card in cards), "draw the missing ones: python docs/card_pictures.py"
    assert [f"?{query}" for query in PICTURES] == [card["address"] for card in cards]
    assert len(set(PICTURES.values())) == len(cards)
    assert sum(map(len, PICTURES.values())) < 80_000


@pytest.mark.parametrize("query", PICTURES)
def test_a_picture_has_paths_and_images_only_and_asks_for_nothing(query: str):
    picture = ElementTree.fromstring(PICTURES[query])

    assert picture.attrib == {"viewBox": "0 0 320 180"}
    assert len(picture) > 0
    for part in picture:
        assert part.tag in (f"{{{card_pictures.SVG}}}path", f"{{{card_pictures.SVG}}}image")
        assert set(part.attrib) <= set(ALLOWED.split())
        assert part.get("href", "data:image/png;base64,").startswith("data:image/png;base64,")
        assert len(part) == 0
        assert {part.get("fill"), part.get("stroke")} <= {None, "none", *IN_BOTH_THEMES, *DARK}


def test_the_stored_picture_is_the_one_that_is_drawn():
    assert card_pictures.drawn(dict(card_pictures.queries())["story=neighbours"]) == PICTURES["story=neighbours"]


def test_a_small_picture_keeps_lines_dots_and_rings_and_no_words():
    svg = f"""<svg xmlns="{card_pictures.SVG}"><text x="1" y="2">title</text><g clip-path="url(#frame)">
    <path d="M14.0 20.0L15.0 21.0L16.0 22.0L20.0 20.0" fill="none" stroke="#0072b2" stroke-width="2"/>
    <path d="M30.2 10v180" stroke="#0072b2" stroke-width="6.0"/>
    <g fill="#d55e00" stroke="#d55e00" fill-opacity="0.5" stroke-opacity="1">
    <path transform="translate(14.0 30.0)" d="M-2.5 0a2.5 2.5 0 1 0 5.0 0a2.5 2.5 0 1 0 -5.0 0"/></g>
    <g fill="#111111" stroke="#009e73" fill-opacity="0" stroke-opacity="1">
    <path transform="translate(14.0 30.0)" d="M0 -2.0L2.0 2.0H-2.0Z"/></g><text x="1" y="2">word</text></g></svg>"""

    line, across, dot, triangle = ElementTree.fromstring(card_pictures.small(svg, 4, 10))

    assert (line.attrib["d"], across.attrib["d"]) == ("M10 10L12 12L16 10", "M26 0v180")
    assert (line.attrib["stroke-width"], across.attrib["stroke-width"]) == ("4", "6")
    assert dot.attrib["d"] == "M10 20h0"
    assert (dot.attrib["stroke"], dot.attrib["stroke-width"], dot.attrib["stroke-linecap"]) == ("#d55e00", "5", "round")
    assert (triangle.attrib["d"], triangle.attrib["fill"]) == ("M10 18L12 22H8Z", "none")
