"""The labels below a picture have room, also in a picture as narrow as those of three beside each other."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from bokeh.models import BasicTicker

import gpexplorer as gpx
from gpexplorer.views.base import registry
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.saved_page.recorded_figures import record

NARROWEST, LETTER = 140, 7.5  # pixels of a frame beside a colour bar on a screen of 1024 pixels, and of a digit


@pytest.mark.parametrize("key", ["fit", "convergence"])
def test_a_narrow_picture_has_room_for_labels_of_four_letters(key: str) -> None:
    run = gpx.Spec("cholqr", {"num_inducing": 4}, data={"name": "friedman1", "n": 60}, budget={"steps": 3}).open()
    run.finish()
    view = registry[key]()

    ticker = Live(view, view.data(run, 2)).figure.xaxis[0].ticker

    assert isinstance(ticker, BasicTicker)
    assert (ticker.desired_num_ticks + 1) * 4 * LETTER <= NARROWEST + 2 * LETTER


@pytest.mark.parametrize(("centre", "spread", "length"), [(450_000.0, 2e5, 6), (0.02, 0.004, 5), (-3e4, 2e4, 6)])
def test_labels_as_long_as_prices_have_room_as_well(centre: float, spread: float, length: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 3))
    y = centre + spread * np.tanh(X[:, 0])
    run = gpx.Spec("cholqr", {"num_inducing": 4}, budget={"steps": 1}).open(data=gpx.load((X, y)))
    run.finish()
    view = registry["fit"]()

    figure = Live(view, view.data(run, 1)).figure

    drawn = figure.xaxis[0].ticker.desired_num_ticks
    assert (drawn + 1) * length * LETTER <= NARROWEST + 2 * LETTER
    assert figure.x_range.start < centre < figure.x_range.end


def test_a_long_label_is_written_in_lines_that_a_phone_does_not_cut() -> None:
    rng = np.random.default_rng(0)
    name = "temperature of the water at the outlet of the second pump"
    table = pd.DataFrame({name: rng.normal(size=40), "y": rng.normal(size=40)})
    run = gpx.Spec("cholqr", {"num_inducing": 4}, budget={"steps": 1}).open(data=gpx.load(table, target="y"))
    run.finish()
    view = registry["fit"]()
    layers = view.data(run, 1)

    figure = Live(view, layers).figure
    [recorded], _ = record(run, [view], [1], lambda done: None)

    for label in (figure.xaxis[0].axis_label, recorded.figure.xaxis[0].axis_label):
        assert max(map(len, label.split("\n"))) <= 36
        assert label.replace("\n", " ") == name


def test_a_step_that_reaches_the_end_of_the_axis_is_not_cut_in_half() -> None:
    run = gpx.Spec("gbcd", data={"name": "snelson-like", "n": 60}, budget={"steps": 1}).open()
    run.finish()
    view = registry["convergence"]()
    live = Live(view, view.data(run, 0))

    live.update(view.data(run, 1))

    assert live.figure.x_range.start < 0 < 1 < live.figure.x_range.end
