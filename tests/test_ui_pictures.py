"""Cards of the page: built when they are looked at, with a sentence where there is nothing to draw."""

from __future__ import annotations

import time

import pytest

from gpexplorer.ui.explorer import Explorer


def follow(explorer: Explorer, key: str, drawn: bool) -> None:
    """Let the page take frames until this picture is drawn, or says that it is empty."""
    end = time.monotonic() + 30
    card = explorer.pictures.pictures[key]
    while not card.layers or (card._live is not None) != drawn:
        assert time.monotonic() < end
        explorer._drain(wait=0.5)


@pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame:DeprecationWarning:bokeh")  # Bokeh 3.9, pandas 3.1
def test_a_card_is_built_when_it_is_looked_at_and_says_when_it_is_empty():
    explorer = Explorer()
    end = time.monotonic() + 30
    while not explorer.pictures.pictures and time.monotonic() < end:
        explorer.settle()
    cards = explorer.pictures.pictures
    assert "calibration" in cards
    assert not len(cards["calibration"].card)

    follow(explorer, "convergence", drawn=False)
    assert "Nothing to draw" in cards["convergence"]._place[0].object
    explorer.player.step()
    follow(explorer, "convergence", drawn=True)
    assert not len(cards["calibration"].card)
    explorer.close()
