"""The labels below a picture have room, also in a picture as narrow as those of three beside each other."""

from __future__ import annotations

import pytest
from bokeh.models import BasicTicker

import gpexplorer as gpx
from gpexplorer.views.base import registry
from gpexplorer.views.drawing.live import Live

NARROWEST, LETTER = 140, 7.5  # pixels of a frame beside a colour bar on a screen of 1024 pixels, and of a digit


@pytest.mark.parametrize("key", ["fit", "convergence"])
def test_a_narrow_picture_has_room_for_labels_of_four_letters(key: str) -> None:
    run = gpx.Spec("cholqr", {"num_inducing": 4}, data={"name": "friedman1", "n": 60}, budget={"steps": 3}).open()
    run.finish()
    view = registry[key]()

    ticker = Live(view, view.data(run, 2)).figure.xaxis[0].ticker

    assert isinstance(ticker, BasicTicker)
    assert (ticker.desired_num_ticks + 1) * 4 * LETTER <= NARROWEST + 2 * LETTER
