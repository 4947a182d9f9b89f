"""What a cell shows of several runs, of a race and of a scaling study: the rows of its tables and its curves."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.runs.studies import power_law
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.runs.studies.sweep import Swept
from gpexplorer.views import picture
from gpexplorer.views.picture import Compare, Curves, Picture, race_parts, scaling_parts

SPEC = gpx.Spec("ml", data="snelson-like")


def finished(objective: list[float] | None = None, spec: gpx.Spec = SPEC, **columns: list[float]) -> Finished:
    """A run with these numbers per record."""
    table = {"objective": objective} if objective else {}
    table |= columns
    count = len(next(iter(table.values()), []))
    steps = {"index": range(count), "seconds": np.arange(float(count)), "entries": np.arange(float(count))}
    return Finished(spec, pd.DataFrame(steps | table))


def read(html: Any) -> pd.DataFrame:
    """The table of a part, as texts."""
    assert isinstance(html, str)
    root = ElementTree.fromstring(html)
    header = ["".join(cell.itertext()) for cell in next(root.iter("tr"))]
    rows = [["".join(cell.itertext()) for cell in row] for row in next(root.iter("tbody"))]
    return pd.DataFrame(rows, columns=header)


def lines(part: Any) -> dict[str, list[float]]:
    """The curves of a part, by their names."""
    assert isinstance(part, Curves)
    return {element.label: element.dimension_values("y").tolist() for element in part}


def test_the_newest_record_is_shown_unless_another_one_is_asked_for():
    run = gpx.Spec("random", {"num_inducing": 4}, data="snelson-like", kernel="se").open()
    with pytest.raises(SettingError, match="has no record to draw yet"):
        _ = Picture(run, "convergence").layers
    run.finish(steps=3)

    shown = {at: Picture(run, "convergence", at).layers["now"]["x"].tolist() for at in (None, -1, -2, 1, 2.0)}

    assert shown == {None: [run.done], -1: [run.done], -2: [run.done - 1], 1: [1], 2.0: [2]}


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"width": 3}, "cannot have width=3; give a whole number of at least 160 and at most 4,000."),
        ({"height": "tall"}, "cannot have height='tall'; give a whole number of at least 120 and at most 4,000."),
        ({"at": "end"}, "cannot have at='end'; give the index of a record, such as -1 for the newest one."),
        ({"run": 3}, "cannot have run=3; give what Spec.open returns."),
    ],
)
def test_a_picture_refuses_what_it_cannot_have_in_words_of_its_own(wrong: dict[str, Any], sentence: str):
    run = gpx.Spec("random", {"num_inducing": 4}, data="snelson-like", kernel="se").open()
    with pytest.raises(SettingError) as refusal:
        Picture(**{"run": run, "key": "convergence"} | wrong)
    assert str(refusal.value) == f"A picture {sentence}"


def test_runs_without_names_are_counted_from_one_and_a_name_that_comes_again_gets_a_number():
    own = finished([3.0, 2.0])
    swept = [Swept("deep", own, ""), Swept("deep", own, "")]
    open_run = gpx.Spec("random", {"num_inducing": 4}, data="snelson-like").open()

    assert list(Compare([own, open_run]).finished) == ["1 ml", "2 random"]
    assert list(Compare(iter([own])).finished) == ["1 ml"]
    assert list(Compare(swept).finished) == ["deep", "2 deep"]
    other = finished([3.0, 1.0], gpx.Spec("random", {"num_inducing": 4}, data="snelson-like"))
    longer = finished([3.0, 1.0], gpx.Spec("random", {"num_inducing": 5}, data="snelson-like"))
    by_hand, others = replace(own, changes="noise set by hand"), [Swept("deep", each, "") for each in (other, longer)]
    several = Compare([*swept, *others, Swept("deep", by_hand, ""), Swept("deep", None, "K is singular.")])
    added = ["method=random", "method=random, num_inducing=5", "noise set by hand"]
    assert list(several.finished) == ["deep", "2 deep", *(f"deep, {words}" for words in added)]
    assert list(several.failed) == ["6 deep"]
    undone = Compare([Swept("deep", by_hand, ""), swept[0], swept[0]])
    assert list(undone.finished) == ["deep", "deep (2)", "3 deep (2)"]
    assert list(Compare({"mine": own}).finished) == ["mine"]
    for wrong in (3, [4], {"a": "b"}):
        with pytest.raises(SettingError, match="Compare"):
            Compare(wrong)  # type: ignore[arg-type]


def test_a_comparison_shows_its_table_failures_and_the_curves_of_the_objective():
    runs = {"a": finished([3.0, 2.0], smse=[0.5, 0.4]), "b": finished([4.0, 1.0], smse=[0.7, 0.2])}
    table, curves = Compare(runs).parts()
    assert read(table)["smse"].tolist() == ["0.2", "0.4"]
    assert lines(curves) == {"a": [3.0, 2.0], "b": [4.0, 1.0]}

    failed = {**runs, "<c>": Swept("<c>", None, "K is singular.")}
    assert Compare(failed).parts()[1] == "<p>&lt;c&gt;: K is singular.</p>"
    assert Compare({"c": failed["<c>"]}).parts()[0] == "<p>c: K is singular.</p>"
    assert "None of these runs has taken a step yet" in str(Compare({"c": failed["<c>"]}).parts()[-1])
    [words] = Compare({}).parts()
    assert "no runs to compare" in str(words)
    without = Compare({"a": finished(smse=[0.5, 0.4])}).parts()
    assert len(without) == 1


def test_runs_over_splits_are_shown_as_means_what_they_tell_and_curves_of_the_error():
    runs = {}
    for method, error in (("ml", 0.1), ("cholesky", 0.3)):
        for k in range(6):
            spec = gpx.Spec(method, data={"name": "hypercube", "n": 60, "d": 2}, split=k)
            runs[f"{method} {k}"] = finished([3.0, 2.0], spec, smse=[1.0, error + 0.01 * k])

    means, *sentences, curves = Compare(runs).parts()[:-1]

    assert "pairs" not in read(means).columns
    assert read(means).iloc[:, 0].tolist() == ["ml", "cholesky"]
    assert len(sentences) >= 1
    [median] = [values for name, values in lines(curves).items() if name.startswith("ml")]
    assert median == pytest.approx([1.0, 0.125])
    assert read(Compare(runs).parts()[-1]).shape[0] == 12  # no curves of the objective beside those


def race_of(board: pd.DataFrame) -> Any:
    """A race whose lanes have these scores."""
    lane = SimpleNamespace(spec=SPEC, sentence="")
    ended = SimpleNamespace(spec=SPEC, sentence="It has converged.")
    said = ["Lowest SMSE: b. 9 test rows cannot tell its SMSE from that of a & co: compare on more rows or splits."]
    return SimpleNamespace(board=board.copy, lanes={"a": lane, "b": ended}, verdict=lambda: said)


def test_a_race_shows_the_newest_row_of_each_lane_with_the_lowest_error_first():
    board = pd.DataFrame({
        "lane": ["a", "b", "a"], "seconds": [1.0, 2.0, 3.0], "smse": [0.5, 0.2, 0.4], "snlp": [math.nan] * 3,
        "memory": [1e6, 2e6, 3e6],
    })  # fmt: skip

    table, said, curves = race_parts(race_of(board))

    assert str(said).startswith("<p>Lowest SMSE: b. 9 test rows cannot tell its SMSE from that of a &amp; co: compare")
    shown = read(table)
    assert shown.iloc[:, 0].tolist() == ["b", "a"]
    assert shown["smse"].tolist() == ["0.2", "0.4"]
    assert shown["MB"].tolist() == ["2", "3"]
    assert shown["state"].tolist() == ["It has converged.", "runs"]
    assert lines(curves)["a"] == [0.5, 0.4]
    waiting, words = race_parts(race_of(board.iloc[:0]))
    assert read(waiting)["state"].tolist() == ["has not begun", "It has converged."]
    assert "race.finish(seconds=10)" in str(words)
    assert len(race_parts(race_of(board.assign(snlp=-1.0)))) == 4


def test_a_race_names_the_lanes_without_a_score_and_why():
    specs = {name: gpx.Spec(name, data="friedman1") for name in ("states", "random")}
    race = gpx.Race(specs | {"late": gpx.Spec("cholqr", data="friedman1")}, turn_seconds=0.05)
    while not len(race.board()):
        race.advance()

    shown = read(race_parts(race)[0]).set_index("")

    assert shown.index.tolist()[-1] != "random"
    assert set(shown.index) == {"states", "random", "late"}
    assert shown.loc["states", "state"].startswith("States needs one input")
    assert shown.loc["states", "smse"] == "–"
    assert shown.loc["random", "step"] == str(int(race.board().iloc[-1]["step"]))
    assert shown.loc["late", "state"] in ("has no score yet", "runs")


def test_a_scaling_study_shows_its_law_from_two_sizes_on():
    def study(seconds: list[float]) -> Any:
        sizes = 500.0 * 2.0 ** np.arange(len(seconds))
        table = pd.DataFrame({"value": sizes, "seconds": seconds, "seconds predicted": seconds})
        return SimpleNamespace(
            table=lambda: table, values=[500, 1000], axis=SimpleNamespace(name="n"),
            slope=lambda: power_law.fit(sizes, table["seconds"]),
        )  # fmt: skip

    [words] = scaling_parts(study([]))
    assert "n is to be 500, 1,000" in str(words)
    [table] = scaling_parts(study([1.0, math.nan]))
    assert list(read(table).columns) == ["value", "seconds", "seconds predicted"]  # without numbers of rows
    assert "–" in str(table)
    table, sentence, chart = scaling_parts(study([1.0, 2.0]))
    assert read(table)["seconds"].tolist() == ["1", "2"]
    assert sentence.startswith("<p>")
    assert lines(chart)["measured"] == [1.0, 2.0]


def test_a_picture_in_html_is_described_by_its_axes():
    [_, curves] = Compare({"a": finished([3.0, 2.0])}).parts()

    html = picture.html_of(["<p>words</p>", curves])

    assert html.startswith('<p>words</p><img alt="NLML [nat]')
    assert 'over step" src="data:image/svg+xml;base64,' in html
