"""The cards of stories and questions: all of them, each with an address that opens it."""

from __future__ import annotations

from gpexplorer.runs import Spec
from gpexplorer.ui.address import read_query
from gpexplorer.ui.explorer import START
from gpexplorer.ui.inputs.presets import PRESETS
from gpexplorer.ui.screens.gallery import Gallery
from gpexplorer.ui.stories import STORIES


def test_every_story_and_every_question_has_a_card_that_opens_it():
    (_, stories), (_, questions) = Gallery().groups

    opened = [read_query(card["address"], Spec(**START)) for card in [*stories, *questions]]

    assert [request.story for request in opened[: len(stories)]] == list(STORIES)
    assert [request.question for request in opened[len(stories) :]] == list(PRESETS)
    assert [request.link.corrected for request in opened] == [()] * len(opened)
    kinds = {card["kind"] for card in questions}
    assert kinds == {"swaps", "blocks", "eigenfunctions", "folds", "minibatches"}
