"""Public objects among those of HoloViz: panes, references as parameters, watchers, and elements of HoloViews."""

from __future__ import annotations

import gc
import subprocess
import sys
from pathlib import Path
from typing import Any

import holoviews as hv
import numpy as np
import pandas as pd
import panel as pn
import param
import pytest
from bokeh.document import Document
from bokeh.models import ColumnDataSource
from bokeh.plotting import figure

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.ui.browser.components import HostTheme
from pages import until

SPEC = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like", kernel="se")


@pytest.fixture(scope="module")
def run() -> gpx.Run:
    run = SPEC.open()
    run.finish(steps=6)
    return run


def figures(shown: Any) -> list[Any]:
    """The Bokeh figures that a browser would get."""
    return list(pn.panel(shown).get_root(Document()).select({"type": figure}))


def inducing(shown: Any) -> list[float]:
    """The places of the inducing points in the picture that a browser would get."""
    root = pn.panel(shown).get_root(Document())
    [source] = root.select({"type": ColumnDataSource, "name": "inducing"})
    return sorted(source.data["x"])


def test_every_public_object_has_a_pane(run: gpx.Run):
    race = gpx.Race({"swaps": SPEC, "random": gpx.Spec("random", data="snelson-like", kernel="se")}, turn_seconds=0.01)
    race.finish(0.02)
    study = gpx.Scaling(SPEC, "n", [50, 100])

    for shown, count in ((run.plot("fit"), 1), (run, 1), (gpx.Compare([run]), 1), (race, 2), (SPEC, 0), (study, 0)):
        assert len(figures(shown)) == count, shown
    assert SPEC.key() in pn.panel(SPEC).select(pn.pane.HTML)[0].object
    assert "No size has been measured" in pn.panel(study).select(pn.pane.HTML)[0].object


def test_a_pane_of_a_run_is_drawn_again_for_the_theme_of_its_host(run: gpx.Run):
    """Its layout alone is kept by the page."""
    layout = pn.panel(run)
    gc.collect()
    [host], [drawn] = layout.select(HostTheme), layout.select(pn.pane.Bokeh)
    colours = []
    for dark in (False, True, False):
        host._handle_msg(dark)
        colours.append(drawn.object.background_fill_color)

    assert colours == ["#ffffff", "#1c2229", "#ffffff"]


def test_a_picture_in_a_bound_function_shows_the_record_of_the_slider(run: gpx.Run):
    slider = pn.widgets.IntSlider(value=0, start=0, end=6)
    bound = pn.panel(pn.bind(lambda at: run.plot("fit", at), slider))
    expected = {at: sorted(run.plot("fit", at).layers["inducing"]["x"]) for at in (0, 6)}
    assert expected[0] != expected[6]

    assert inducing(bound) == pytest.approx(expected[0])
    slider.value = 6
    assert inducing(bound) == pytest.approx(expected[6])


@pytest.mark.parametrize("kind", ["widget", "parameter", "expression", "bound function", "float"])
def test_a_picture_follows_references(run: gpx.Run, kind: str):
    slider = pn.widgets.IntSlider(value=1, start=0, end=6)
    reference = {
        "widget": slider, "parameter": slider.param.value, "expression": slider.rx() + 0,
        "bound function": pn.bind(lambda at: at, slider), "float": pn.bind(float, slider),
    }[kind]  # fmt: skip
    picture = gpx.Picture(run, "fit", at=reference)
    pane = pn.panel(picture)
    before = inducing(pane)

    slider.value = 5

    assert picture.at == 5
    assert inducing(pane) == pytest.approx(sorted(run.plot("fit", 5).layers["inducing"]["x"]))
    assert inducing(pane) != before


def test_another_record_changes_the_numbers_of_a_figure_and_keeps_its_zoom(run: gpx.Run):
    picture = gpx.Picture(run, "fit", at=1)
    pane = pn.panel(picture)
    [figure] = figures(pane)
    figure.x_range.update(start=1.0, end=2.0)

    picture.at = 5
    assert inducing(pane) == pytest.approx(sorted(run.plot("fit", 5).layers["inducing"]["x"]))
    assert figures(pane) == [figure]
    assert figure.name == "Data and prediction, cholqr, step 5"
    assert (figure.x_range.start, figure.x_range.end) == (1.0, 2.0)
    figure.x_range.update(start=figure.x_range.reset_start, end=figure.x_range.reset_end)  # as its button does
    assert figure.x_range.start < 0.5 < 5.5 < figure.x_range.end
    picture.at = 99
    assert figures(pane) == []
    picture.at = None  # as of a widget without a value: the newest record
    assert inducing(pane) == pytest.approx(sorted(run.plot("fit", 6).layers["inducing"]["x"]))
    picture.param.update(at=2, key="convergence")
    assert figures(pane) not in ([], [figure])


def test_options_and_the_kind_of_a_picture_follow_references(run: gpx.Run):
    paths, key = (
        pn.widgets.IntSlider(value=2, start=0, end=9),
        pn.widgets.Select(value="fit", options=["fit", "convergence"]),
    )
    picture = gpx.Picture(run, key, paths=paths)

    paths.value = 7
    assert picture.view.paths == 7
    with pytest.raises(SettingError, match="has no option 'paths'"):
        key.value = "convergence"
    with pytest.raises(SettingError, match="no picture 'fitt'"):
        gpx.Picture(run, pn.widgets.TextInput(value="fitt"))


def test_a_pane_says_which_record_there_is_not(run: gpx.Run):
    for at in (99, 2.5, float("nan")):
        assert f"no record {at}" in pn.panel(run.plot("fit", at)).select(pn.pane.HTML)[0].object


def test_curves_are_elements_that_compose(run: gpx.Run):
    curves = gpx.Compare({"a": run}).curves("objective")
    objective = run.table()["objective"].to_numpy()

    assert isinstance(curves, hv.Overlay)
    assert hv.render(curves * hv.HLine(float(objective[-1]))).renderers
    assert hv.render(curves).title.text == ""
    assert hv.render(curves.opts(title="mine")).title.text == "mine"
    [line] = curves
    np.testing.assert_allclose(line.dimension_values("y"), objective[np.isfinite(objective)])
    assert set(curves._repr_mimebundle_()) == {"image/svg+xml", "text/plain"}


def test_a_sweep_goes_into_a_comparison_with_the_runs_that_could_not_be_opened():
    specs = gpx.grid(gpx.Spec("cholqr", data="snelson-like", budget={"steps": 2}), {"num_inducing": [3, 5]})
    specs["no such rows"] = gpx.Spec(
        "cholqr", data={"name": "sin-product", "n": 30, "d": 2, "columns": 3}, budget={"steps": 1}
    )

    compared = gpx.Compare(gpx.sweep(specs))

    assert set(compared.table().index) == {"num_inducing=3", "num_inducing=5"}
    assert len(compared.curves()) == 2
    assert "no such rows" in compared._repr_html_()


def test_a_comparison_follows_a_reference_and_can_be_watched(run: gpx.Run):
    chosen, seen = pn.widgets.Select(value="one", options=["one", "two"]), []
    other = gpx.Spec("random", {"num_inducing": 3}, data="snelson-like").open()
    other.finish(steps=1)
    compared = gpx.Compare(pn.bind(lambda which: {"a": run} if which == "one" else {"a": run, "b": other}, chosen))
    compared.param.watch(lambda event: seen.append(len(event.new)), "runs")
    pane = pn.panel(compared)

    chosen.value = "two"

    assert seen == [2]
    assert list(compared.table().index.sort_values()) == ["a", "b"]
    assert len(figures(pane)[0].legend[0].items) == 2


def test_the_turns_of_a_race_can_be_watched():
    race, seen = gpx.Race({"swaps": SPEC, "random": gpx.Spec("random", data="snelson-like", kernel="se")}, 0.01), []
    race.param.watch(lambda event: seen.append(event.new), "turns")
    pane = pn.panel(race)
    race.finish(0.02)
    assert seen == list(range(1, race.turns + 1))
    assert len(figures(pane)) == 2
    with pytest.raises(TypeError, match="Constant"):
        race.turns = 0


def test_the_parameters_of_an_explorer_are_read_set_and_watched(run: gpx.Run):
    explorer, seen = gpx.Explorer(SPEC), []
    assert (explorer.spec, explorer.at, explorer.playing) == (SPEC, 0, False)
    assert explorer.run.spec == SPEC
    explorer.param.watch(lambda event: seen.append(event.new), "at")

    explorer.at = 3  # beyond the newest record
    until(lambda: explorer.update(0.1) or explorer.at == explorer.run.done == 3)
    explorer.at = 1
    until(lambda: explorer.update(0.1) or explorer.at == 1)
    explorer.playing = True
    until(lambda: explorer.update(0.1) or explorer.at > 4)
    explorer.playing = False
    until(lambda: explorer.update(0.1) or not explorer.session.player.playing)
    larger = gpx.Spec("cholqr", {"num_inducing": 7}, data="snelson-like", kernel="se")
    explorer.spec = larger
    until(lambda: explorer.update(0.1) or (explorer.run.spec == larger and explorer.at == 0))
    assert explorer.choices.apply_to(SPEC).settings["num_inducing"] == 7  # the controls show it too
    explorer.spec = None  # such as of a widget without a choice: what is open stays
    assert explorer.spec == explorer.run.spec == larger
    assert seen[:2] == [3, 1]
    explorer.run = run
    until(lambda: explorer.update(0.1) or (explorer.at == 6 and explorer.session.run is run))
    explorer.close()
    assert explorer.run is None
    until(lambda: explorer.session.run is None)
    assert run.posterior().mean  # it belongs to the caller, and is not freed


def test_an_explorer_takes_rows_in_memory_as_a_spec_does():
    X = np.random.default_rng(0).uniform(size=(40, 2))
    frame = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": X.sum(1)})
    spec = gpx.Spec("cholqr", {"num_inducing": 3}, split=2)
    for data in ((X, X.sum(1)), frame, gpx.data.load(frame, split=1)):
        explorer = gpx.Explorer(spec, data=data)
        assert explorer.run.spec.key() == spec.open(data=data).spec.key()
        assert explorer.sources.names.value is None  # the set that the spec names is not what is open
        explorer.spec = gpx.Spec("random", {"num_inducing": 4}, split=2)
        until(lambda explorer=explorer: explorer.update(0.1) or explorer.run.spec.method == "random")
        assert explorer.run.problem.train.d == 2
        explorer.spec = gpx.Spec("random", data="sin-product")
        until(lambda explorer=explorer: explorer.update(0.1) or explorer.run.spec.data == "sin-product")
        assert explorer.sources.names.value == "sin-product"
        explorer.close()


def test_an_explorer_and_a_player_follow_references(run: gpx.Run):
    size, at = pn.widgets.IntSlider(value=3, start=2, end=9), pn.widgets.IntSlider(value=2, start=0, end=6)
    spec = pn.bind(lambda m: gpx.Spec("cholqr", {"num_inducing": m}, data="snelson-like"), size)
    explorer = gpx.Explorer(spec)
    for value in (5, 8):  # also after the page has set the parameter itself
        size.value = value
        until(lambda value=value: explorer.update(0.1) or explorer.run.spec.settings["num_inducing"] == value)
    explorer.close()
    player = gpx.RunWidget(run, "convergence", at=at)
    until(lambda: player.update(0.1) or player.record.index == 2)
    at.value = 4
    until(lambda: player.update(0.1) or player.record.index == 4)
    player.close()


def test_a_dark_template_gets_light_words_at_once(run: gpx.Run):
    explorer = gpx.Explorer(run=run)
    page = pn.template.FastListTemplate(theme="dark", main=[run.plot("fit"), explorer])

    drawn = list(page.server_doc(Document()).select({"type": figure}))

    assert len(drawn) > 1
    assert {int(one.xaxis[0].axis_label_text_color[1:3], 16) > 128 for one in drawn} == {True}
    explorer.close()


def test_a_parameterized_model_drives_a_picture_without_a_widget(run: gpx.Run):
    class Position(param.Parameterized):
        at = param.Integer(0)

    position = Position()
    picture = gpx.Picture(run, "fit", at=position.param.at)
    position.at = 2
    assert picture.at == 2
    assert "<svg" in picture.svg()


def test_an_explorer_leaves_the_design_of_its_host_alone_and_imports_nothing_for_later(tmp_path: Path, root: Path):
    """The page and the figures of the papers start without the statistics of SciPy."""
    program = (
        "import gc, sys, panel as pn, gpexplorer as gpx\n"
        "walked = []\n"
        "def count(phase, info):\n"
        "    if phase == 'start':\n"
        "        walked.append(sum(len(gc.get_objects(age)) for age in range(info['generation'] + 1)))\n"
        "gc.callbacks.append(count)\n"
        "gpx.Explorer\n"
        "assert not {'scipy', 'sklearn', 'dask', 'gpytorch', 'matplotlib', 'numba'} & set(sys.modules)\n"
        "assert gc.isenabled()\n"
        "del gc.callbacks[:]\n"
        "sys.path.append(sys.argv[1])\n"
        "from gpexplorer.ui import session_page\n"
        "import papers; papers.names()\n"
        "assert 'scipy.stats' not in sys.modules\n"
        "assert max(walked, default=0) < 20_000, 'a collection walked through what was imported'\n"
        "pn.extension(design='bootstrap', notifications=True)\n"
        "before = pn.config.design, pn.config.notifications, pn.config.respect_explicit_sizing, pn.config.theme\n"
        "run = gpx.Spec('cholqr', {'num_inducing': 4}, data='snelson-like').open()\n"
        "shown = [gpx.Explorer(run.spec), run.widget(), run]\n"
        "[pn.panel(one) for one in shown]\n"
        "after = pn.config.design, pn.config.notifications, pn.config.respect_explicit_sizing, pn.config.theme\n"
        "assert before == after, (before, after)\n"
        "[one.close() for one in shown]\n"
    )
    command = [sys.executable, "-c", program, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
