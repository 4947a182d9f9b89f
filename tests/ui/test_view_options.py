"""What people set: selectors with room for the longest name, tools in the colours of the theme, settings in order."""

from __future__ import annotations

import panel_material_ui as pmui
import param
import pytest

import gpexplorer as gpx
from gpexplorer.ui.inputs.method_settings import Settings
from gpexplorer.ui.pictures.picture_cards import MAX_WIDTH, MIN_WIDTH, PADDING, options
from gpexplorer.views.base import registry as views
from gpexplorer.views.drawing.live import ICON, Live
from gpexplorer.views.runs.convergence import Convergence


class Choice(param.Parameterized):
    """A view as far as its widgets go."""

    short = param.Selector(default="a", objects=["a", "bc"])
    long = param.Selector(default="a", objects=["a", "a hyperparameter"])
    longest = param.Selector(default="a", objects=["a", 60 * "b"])
    named = param.Selector(default="a", objects=["a", "b"], label="A label of 24 characters")


def test_a_selector_has_room_for_its_longest_name():
    view = Choice()
    box = options(lambda: view, 1, lambda: None)

    assert box is not None
    short, long, longest, named = (widget.width for widget in box if isinstance(widget, pmui.Select))
    assert (short, longest) == (MIN_WIDTH, MAX_WIDTH)
    assert short < long < longest
    assert long > PADDING + 7 * len("a hyperparameter")
    assert named >= PADDING + 6 * 24


def test_a_number_without_a_step_of_its_own_moves_by_hundredths_of_its_range():
    class Plain(param.Parameterized):
        place = param.Number(2.5, bounds=(2.0, 4.0))

    box = options(Plain, 1, lambda: None)

    assert box is not None
    (slider,) = (widget for widget in box if isinstance(widget, pmui.FloatSlider))
    assert (slider.start, slider.end, slider.value) == (2.0, 4.0, 2.5)
    assert slider.step == pytest.approx(0.02)


@pytest.mark.parametrize("key", sorted(views))
def test_the_options_of_every_picture_can_be_built(key: str):
    options(views[key], 1, lambda: None)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_tools_lie_on_the_paper_of_the_theme(theme: str):
    run = gpx.Spec("cg", {"learn": False}, data={"name": "hypercube", "n": 30, "d": 2, "noise": 0.2, "seed": 3}).open()
    run.finish(steps=3)
    view = Convergence()
    assert view.applies(run)
    live = Live(view, view.data(run, len(run.trace) - 1), theme)

    papers = {theme: live.figure.background_fill_color}
    live.set_theme(other := "dark" if theme == "light" else "light")
    papers[other] = live.figure.background_fill_color

    assert papers["light"] != papers["dark"]
    assert live.figure.toolbar.styles["background-color"] == papers[other]
    assert live.figure.toolbar.styles["min-width"] == "220px"


def test_the_address_of_the_icon_survives_being_quoted_once_more():
    assert not {"#", "%"} & set(ICON)


def test_a_methods_own_settings_stand_above_those_of_its_family():
    shown = Settings(gpx.methods["pcg"], {}, lambda: None)
    named = {id(widget): name for name, widget in shown.widgets.items()}

    rank, folded = shown.__panel__()
    assert named[id(rank)] == "rank"
    names = [named[id(widget)] for widget in folded[0]]
    assert names[:4] == ["root", "damped", "mixed", "refresh"]
    assert {"learn", "tolerance", "cache"} < set(names[4:])
