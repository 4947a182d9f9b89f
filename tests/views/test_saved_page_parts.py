"""The parts of a saved page: its frames, its size, what is reported on the way, and the words beside its pictures."""

from __future__ import annotations

import html
import stat
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from bokeh.models import HoverTool

import gpexplorer as gpx
from gpexplorer.errors import GPExplorerError
from gpexplorer.problem import Channel
from gpexplorer.views.base import Layers, View, dots, overlay
from gpexplorer.views.runs.steps_table import objective_of_start, steps_table
from gpexplorer.views.saved_page import page_file, recorded_figures
from gpexplorer.views.saved_page.recorded_figures import PackedColumns, RecordedFigure, evenly_spaced, facts, record
from saved_pages import frames_of

RUN: Any = SimpleNamespace(method=SimpleNamespace(key="cholqr"))
SPEC = gpx.Spec("random", {"num_inducing": 4}, data="snelson-like", kernel="se")


class Rows(View):
    """Dots at the number of the record, at its square in the other axis; nothing at record 9, and a map on request."""

    title, help = "Rows", "What to look for."

    def __init__(self, is_map: bool = False, error: Exception | None = None, names: int = 1) -> None:
        super().__init__()
        self.is_map, self.error, self.count = is_map, error, names

    def data(self, run: Any, at: int) -> Layers:
        if self.error is not None:
            raise self.error
        frame = pd.DataFrame({"x": [0.0, float(at)], "y": [0.0, float(at * at)]}).iloc[: 0 if at == 9 else 2]
        frame.attrs |= {"xlabel": f"x at {at}", "ylabel": "y", "title": f"record {at}"}
        if self.is_map:
            frame.attrs["map"] = True
        return {"rows": frame}

    def plot(self, layers: Layers) -> Any:
        return overlay([dots(layers, "rows", "rows", color="#0072b2")], layers["rows"])


@pytest.fixture(scope="module")
def run() -> gpx.Run:
    run = SPEC.open()
    run.finish(steps=2)
    return run


@pytest.fixture(autouse=True)
def _without_the_program_of_bokeh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which nobody runs here, and which takes a second to compress."""
    monkeypatch.setattr(page_file, "packed_bokeh", lambda: "")


def recorded(view: View, records: list[int]) -> RecordedFigure:
    """One picture at these records."""
    [figure], failures = record(RUN, [view], records, lambda fraction: None)
    assert failures == []
    return figure


def test_each_frame_has_its_numbers_its_caption_and_the_ends_of_its_axes():
    figure = recorded(Rows(), [1, 9, 4])

    [columns] = figure.columns.values()
    assert [values.tolist() for values in columns["y"]][::2] == [[0.0, 1.0], [0.0, 16.0]]
    assert np.isnan(columns["y"][1]).tolist() == [True]  # a layer without rows
    assert figure.captions == ["record 1", "record 9", "record 4"]
    x_range, y_range, x_axis = figure.figure.x_range.id, figure.figure.y_range.id, figure.figure.xaxis[0].id
    ends = [tuple(properties[y_range].values()) for properties in figure.properties]
    assert ends == [pytest.approx(each) for each in ((-0.06, 1.06), (-0.06, 1.06), (-0.96, 16.96))]
    assert figure.properties[2][x_range] == {"start": pytest.approx(-0.24), "end": pytest.approx(4.24)}
    assert [properties[x_axis]["axis_label"] for properties in figure.properties] == ["x at 1", "x at 9", "x at 4"]
    assert not figure.log
    [tool] = figure.figure.select({"type": HoverTool})
    assert tool.tooltips == [("x at 1", "@x{%.5g}"), ("y", "@y{%.5g}")]
    assert not tool.visible
    [entry] = figure.legend
    assert (entry["label"], entry["light"], entry["dark"], entry["sign"]) == ("rows", "#0072b2", "#4db3f0", "●")
    assert figure.dark[figure.figure.id]["background_fill_color"] == "#1c2229"
    assert figure.figure.background_fill_color == "#ffffff"
    assert figure.figure.id not in figure.properties[0]
    box = recorded(Rows(is_map=True), [1, 4])
    tags = [properties[box.figure.id]["tags"] for properties in box.properties]
    assert tags == [pytest.approx([-0.06, 1.06, -0.06, 1.06]), pytest.approx([-0.24, 4.24, -0.96, 16.96])]


def test_thinned_frames_are_those_of_their_numbers():
    figure = recorded(Rows(), [1, 2, 3, 4])

    fewer = recorded_figures.thinned(figure, [0, 3])

    [columns] = fewer.columns.values()
    assert [values.tolist() for values in columns["y"]] == [[0.0, 1.0], [0.0, 16.0]]
    assert fewer.captions == ["record 1", "record 4"]
    assert fewer.properties == [figure.properties[0], figure.properties[3]]


def test_a_picture_that_fails_is_a_sentence_and_the_fraction_of_the_work_is_reported():
    fractions: list[float] = []
    pictures = [Rows(), Rows(error=GPExplorerError("no rows")), Rows(error=ValueError("secret")), Rows()]

    figures, failures = record(RUN, pictures, [1, 2], fractions.append)

    assert fractions == [0.125, 0.25, 0.875, 1.0]
    assert len(figures) == 2
    assert failures == [
        "The picture “Rows” could not be drawn: no rows", "The picture “Rows” could not be drawn: ValueError",
    ]  # fmt: skip
    assert record(RUN, [Rows()], [9], fractions.append) == ([], [])


@pytest.mark.parametrize(
    ("count", "most", "frames"),
    [(3, 3, [0, 1, 2]), (4, 3, [0, 2, 3]), (9, 5, [0, 2, 4, 6, 8]), (101, 2, [0, 100]), (0, 5, [])],
)
def test_frames_are_evenly_spaced_with_the_first_and_the_last(count: int, most: int, frames: list[int]):
    assert evenly_spaced(count, most) == frames


def test_the_numbers_above_the_pictures_are_those_of_the_record_with_the_newest_scores():
    table = pd.DataFrame(
        {
            "index": [0, 1, 2],
            "seconds": [0.0, 1.23456, 20.0],
            "entries": [0, 10, 20],
            "objective": [np.nan, -5.0, 123456.0],
            "smse": [0.5, np.nan, np.nan],
        }
    )
    method = SimpleNamespace(channels=(Channel("objective", "objective F", "nat"), Channel("other", "other", "")))
    run: Any = SimpleNamespace(table=table.copy, method=method, trace=[])

    assert facts(run, [0, 1, 2]) == [
        {"step": "0", "seconds of work": "0", "objective F [nat]": "—", "SMSE": "0.5"},
        {"step": "1", "seconds of work": "1.235", "objective F [nat]": "−5", "SMSE": "0.5 at step 0"},
        {"step": "2", "seconds of work": "20", "objective F [nat]": "1.235e+05", "SMSE": "0.5 at step 0"},
    ]
    method.channels = (Channel("objective", "objective F", ""),)
    assert "objective F" in facts(run, [0])[0]
    method.channels = ()
    assert list(facts(run, [0])[0]) == ["step", "seconds of work", "SMSE"]


def test_the_pictures_of_a_page_are_saved_by_names():
    run = gpx.Spec("cholqr", {"num_inducing": 5}, {"name": "snelson-like", "n": 40}, kernel="se").open()
    run.finish(steps=1)
    figures, _ = record(run, [run.plot("convergence").view], [0, 1], lambda fraction: None)
    assert [recorded.figure.name for recorded in figures] == ["Convergence, cholqr"]


def test_the_objective_of_the_start_is_that_of_the_picture_and_no_score_has_no_step():
    run = gpx.Spec("cholqr", {"num_inducing": 5}, {"name": "snelson-like", "n": 40}, kernel="se").open()
    run.finish(steps=2)
    assert facts(run, [0])[0]["objective F [nat]"] == f"{objective_of_start(run):.4g}".replace("-", "−")
    kernel = {"name": "se", "priors": {"noise": "lognormal(0, 0.1)"}}
    run = gpx.Spec("cholqr", {"num_inducing": 5}, {"name": "snelson-like", "n": 40}, kernel=kernel).open()
    run.finish(steps=1)
    start = steps_table(run).iloc[0]
    assert start["map_objective"] == pytest.approx(start["objective"] - start["log_prior"])
    assert recorded_figures._newest(pd.Series([np.nan, 0.5, np.nan])) == ["—", "0.5", "0.5 at step 1"]


def test_a_page_that_is_too_large_keeps_nine_tenths_of_the_frames_that_fit(run, monkeypatch: pytest.MonkeyPatch):
    frames: list[int] = []

    def document(recorded: Any, *_: Any) -> str:
        frames.append(len(recorded[0].records))
        assert [len(figure.captions) for figure in recorded[0].figures] == frames[-1:] * len(recorded[0].figures)
        return "x" * (1000 * frames[-1])

    figure = recorded(Rows(), [1] * 40)
    monkeypatch.setattr(page_file, "_document", document)
    monkeypatch.setattr(page_file, "record", lambda *_: ([figure], []))
    monkeypatch.setattr(page_file, "evenly_spaced", lambda count, most: list(range(min(most, 40))))
    for largest, expected in ((40_000, [40]), (39_999, [40, 35]), (10_000, [40, 9]), (2_500, [40, 2])):
        frames.clear()
        monkeypatch.setattr(page_file, "LARGEST", largest)
        assert len(page_file.page_of(run)) == 1000 * expected[-1]
        assert frames == expected
    monkeypatch.setattr(page_file, "LARGEST", 1_999)
    with pytest.raises(gpx.errors.SettingError, match="2,000 bytes with two frames"):
        page_file.page_of(run)


def test_a_page_names_its_run_or_has_the_title_that_is_given_and_repeats_it(run, tmp_path: Path):
    fractions: list[float] = []
    file = page_file.save_page(run, tmp_path / "run.html", ["convergence"], report=fractions.append)
    page = file.read_text("utf-8")

    assert fractions == pytest.approx(np.arange(1, 4) / 3)
    assert stat.S_IMODE(file.stat().st_mode) & 0o044  # others may read it
    assert f"<title>{run.method.title} on snelson-like, {len(run.problem.train)} rows</title>" in page
    assert "How to repeat this run" in page
    assert "gpx.Spec" in page
    assert "<h2>" not in page
    other = page_file.page_of(run, ["terms"], title="Mine & yours")
    assert "<title>Mine &amp; yours</title>" in other


def test_two_runs_have_their_names_what_differs_and_two_pictures_each(run):
    other = gpx.Spec("random", {"num_inducing": 6}, data="snelson-like", kernel="se").open()
    other.finish(steps=1)
    fractions: list[float] = []

    page = page_file.page_of({"few": run, "more": other}, report=fractions.append)

    content = frames_of(page)
    assert [len(each["figures"]) for each in content["runs"]] == [2, 2]
    assert content["names"] == ["step 0", "step 1", "step 2"]
    assert content["frames"] == [[0, 0], [1, 1], [2, 1]]
    assert '<h2>few</h2><p class="hint">Inducing points m = 4</p>' in page
    assert '<h2>more</h2><p class="hint">Inducing points m = 6</p>' in page
    assert "few and more on snelson-like" in page
    assert fractions == pytest.approx([*(np.arange(1, 7) / 12), *(0.5 + np.arange(1, 5) / 8)])
    with pytest.raises(gpx.errors.SettingError, match="not 3 by 'step'"):
        page_file.page_of({"a": run, "b": other, "c": run})


def test_two_methods_are_told_apart_by_their_own_settings_too_and_by_what_was_changed_by_hand():
    spec = gpx.Spec("cholqr", {"num_inducing": 4, "objective": "pp"}, data="snelson-like", kernel="se")
    swaps, exact = spec.open(), gpx.Spec("ml", data="snelson-like", kernel="se").open()
    for each in (swaps, exact):
        each.finish(steps=1)
    by_hand = exact.with_hyperparameters(values={"noise": 0.3})

    page = page_file.page_of({"swaps": swaps, "exact": by_hand}, ["convergence"])

    own = "method = CholQR swaps, Inducing points m = 4, Objective = pp"
    assert f'<h2>swaps</h2><p class="hint">{own}</p>' in page
    changes = html.escape(str(by_hand.changes))
    assert f'<h2>exact</h2><p class="hint">method = Exact GP, maximum likelihood, {changes}</p>' in page


def test_a_place_of_the_slider_is_a_step_or_seconds_of_work():
    assert page_file.place_name(12.0, "step") == "step 12"
    assert page_file.place_name(1.23456, "seconds") == "1.23 s of work"


def test_equal_properties_are_kept_once():
    first, second = {"a": {"start": 0.0}}, {"a": {"start": 1.0}}
    packed = page_file._each_once([first, second, dict(first), second])
    assert packed == {"at": [0, 1, 0, 1], "entries": [first, second]}


@pytest.mark.parametrize(
    ("scale", "offset", "exact", "kind"),
    [(1.0, 0.0, False, "f4"), (1.0, 0.0, True, "f4"), (1.5e-30, 0.0, True, "f4"), (0.9e-30, 0.0, True, "f8"),
     (0.9e30, 0.0, True, "f4"), (1.5e30, 0.0, True, "f8"), (1e-31, 1.0, True, "f8")],
)  # fmt: skip
def test_long_columns_take_four_bytes_per_number_where_these_suffice(
    scale: float, offset: float, exact: bool, kind: str
):
    values = offset + scale * np.linspace(1.0, 2.0, 64)

    assert PackedColumns().add([values], exact)["entries"] == [[kind, 64]]
    for least, own in ((1.5e-30, "f4"), (0.9e-30, "f8")):
        assert PackedColumns().add([np.linspace(least, 1.0, 64)], True)["entries"] == [[own, 64]]
    assert PackedColumns().add([values[:63]], exact)["entries"] == [["f8", 63]]


def test_whole_numbers_words_and_grids_have_kinds_of_their_own():
    def kind(*contents: Any) -> list[Any]:
        return PackedColumns().add(list(contents))["entries"]

    assert kind(np.arange(3), np.array([], dtype=int)) == [["i4", 3], ["i4", 0]]
    assert kind(np.array([True, False])) == [["i4", 2]]
    assert kind(np.array([2**31 - 2])) == [["i4", 1]]
    assert kind(np.array([2**31 - 1])) == [["f8", 1]]
    assert kind(["a", 3, None, 2.5]) == [["json", ["a", 3, None, "2.5"]]]
    assert kind(None) == [["json", None]]
    grid = np.array([[0.0, 1.0], [2.0, 4096.0]])
    assert kind([grid]) == [["q2", [2, 2, 0.0, 1.0]]]
    assert kind([grid], [grid / 4]) == [["q2", [2, 2, 0.0, 0.25]]] * 2
    assert kind([grid], [grid / 65]) == [["g4", [2, 2]]] * 2  # their ranges differ too much
    assert [entry[0] for entry in kind([grid], [grid / 60])] == ["q2", "q2"]
    assert kind([2e-30 * grid])[0][0] == "q2"
    assert kind([0.5e-30 * grid]) == [["g4", [2, 2]]]
    assert kind([np.zeros((2, 2))]) == [["g4", [2, 2]]]
    assert kind([np.full((2, 2), np.nan)]) == [["g4", [2, 2]]]
