"""Lines and marks can be seen on the paper of both themes."""

from __future__ import annotations

import pytest
from bokeh.models import LinearColorMapper

import gpexplorer as gpx
from gpexplorer.views import for_run
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.palette import CYCLE, DIVERGING, ON_DARK, ROLES

PAPER = {"light": "#ffffff", "dark": "#1c2229"}


def luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    r, g, b = (v / 12.92 if v <= 0.03928 else ((v + 0.055) / 1.055) ** 2.4 for v in parts)
    return 0.2126 * r + 0.7152 * g + 0.0722 * b


def contrast(first: str, second: str) -> float:
    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


def test_every_colour_has_a_contrast_of_three_in_both_themes():
    drawn = {*CYCLE, *(colour for role, colour in ROLES.items() if role != "band")}  # a band is an area, not a line

    assert contrast("#000000", "#ffffff") == pytest.approx(21.0)
    assert {colour for colour in drawn if contrast(colour, PAPER["light"]) < 3.0} == set()
    assert {colour for colour in drawn if contrast(ON_DARK[colour], PAPER["dark"]) < 3.0} == set()
    assert len(set(ON_DARK.values())) == len(ON_DARK)


def test_layers_change_with_the_theme_and_back():
    run = gpx.Spec("cholqr", {"num_inducing": 4}, {"name": "snelson-like", "n": 40}).open()
    run.finish(steps=1)
    [view] = [view for view in for_run(run) if view.key == "fit"]

    live = Live(view, view.data(run, 1), "dark")
    [mean] = [part.glyph for part in live.figure.renderers if part.data_source.name == "mean"]
    words = {entry.label: entry.colour for entry in live.legend}
    assert mean.line_color == words["mean"] == ON_DARK[ROLES["mean"]]
    assert words["inducing"] == ON_DARK[ROLES["inducing"]]
    live.set_theme("light")
    assert mean.line_color == ROLES["mean"]
    assert live.figure.background_fill_color == PAPER["light"]


def test_dots_that_are_coloured_by_a_number_can_be_seen_in_both_themes_and_images_use_the_whole_scale():
    gbcd = gpx.Spec("gbcd", {"learn": False, "block": 20}, {"name": "friedman1", "n": 60}).open()
    surface = gpx.Spec("grief", {"num_eigenfunctions": 8}, {"name": "gp-draw", "n": 60, "d": 2}).open()
    for run in (gbcd, surface):
        run.finish(steps=2)
    [dots] = [view for view in for_run(gbcd) if view.key == "gbcd-gradient"]
    [image] = [view for view in for_run(surface) if view.key == "fit"]

    live, scales = Live(dots, dots.data(gbcd, 2), "dark"), {}
    for theme in ("light", "dark"):
        live.set_theme(theme)
        [scale] = live.figure.select({"type": LinearColorMapper})
        scales[theme] = list(scale.palette)
        assert min(contrast(colour, PAPER[theme]) for colour in scales[theme]) >= 3.0
    of_image = Live(image, image.data(surface, 2), "dark").figure.select_one({"type": LinearColorMapper})

    assert len(of_image.palette) == 256
    assert max(map(luminance, scales["dark"])) > 0.7  # yellow, which would be faint on white
    assert set(scales["light"]) < set(of_image.palette) > set(scales["dark"])


def test_zero_has_the_colour_of_the_paper_in_maps_of_both_signs():
    run = gpx.Spec("grief", {"num_eigenfunctions": 8}, {"name": "gp-draw", "n": 60, "d": 2}).open()
    run.finish(steps=1)
    [maps] = [view for view in for_run(run) if view.key == "grief-eigenfunctions"]
    live = Live(maps, maps.data(run, 1), "light")
    for theme in ("dark", "light"):
        live.set_theme(theme)
        for scale in live.figure.select({"type": LinearColorMapper}):
            assert scale.palette == DIVERGING[theme]
            middle = len(scale.palette) // 2
            assert contrast(scale.palette[middle], PAPER[theme]) < 1.1
            assert min(contrast(scale.palette[end], PAPER[theme]) for end in (0, -1)) > 4.5
