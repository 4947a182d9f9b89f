"""Families of runs over splits and seeds: their grouping, mean, spread, sign test and median, against slow counts."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import holoviews as hv
import numpy as np
import pandas as pd
import pytest

from gpexplorer import Compare, Spec, sweep
from gpexplorer.errors import SettingError
from gpexplorer.runs.studies import comparison, split_comparison
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.runs.studies.sweep import Swept, grid
from gpexplorer.views.runs import comparison_charts

hv.extension("bokeh")
ROWS = {"name": "hypercube", "n": 60, "d": 2, "noise": 0.2, "seed": 1}


def scored(method: str, values: list[float], seconds: float = 1.0, **fields: object) -> Finished:
    """A run whose scores are known at each step."""
    count = len(values)
    frame = pd.DataFrame({"index": range(count), "seconds": np.linspace(0, seconds, count), "entries": range(count)})
    frame["smse"] = values
    return Finished(Spec(method, **{"data": ROWS, **fields}), frame)


def over_splits(scores: dict[str, list[float]], **fields: object) -> dict[str, Finished]:
    """For each method one run per split, which begins at a score of 1."""
    return {
        f"{method} {k}": scored(method, [1.0, value], split=k, **fields)
        for method, values in scores.items()
        for k, value in enumerate(values)
    }


def sign_test(wins: int, losses: int) -> float:
    """The share of all patterns of signs that are at least as uneven, counted one after another."""
    count, uneven = 0, 0
    for signs in itertools.product((0, 1), repeat=wins + losses):
        count += 1
        uneven += abs(2 * sum(signs) - wins - losses) >= abs(wins - losses)
    return uneven / count


def test_runs_that_differ_in_split_and_seed_alone_are_a_family():
    runs = over_splits({"cholqr": [0.1, 0.2, 0.3], "random": [0.1, 0.2, 0.3]})
    runs |= {f"seed {k}": scored("cholqr", [0.1], seed=k, settings={"num_inducing": 7}) for k in range(3)}
    runs |= {f"pair {k}": scored("cholqr", [0.1], split=k, settings={"num_inducing": 9}) for k in range(2)}
    runs["longer"] = replace(runs["cholqr 0"], spec=replace(runs["cholqr 0"].spec, budget={"steps": 90}))

    found = split_comparison.families(runs)

    assert {name: list(group) for name, group in found.items()} == {
        "cholqr (num_inducing=0)": ["cholqr 0", "cholqr 1", "cholqr 2"],
        "random (num_inducing=0)": ["random 0", "random 1", "random 2"],
        "cholqr (num_inducing=7)": ["seed 0", "seed 1", "seed 2"],
    }
    assert split_comparison.families({"one": scored("cholqr", [0.1])}) == {}


def test_a_family_is_called_by_its_budget_where_budgets_differ():
    steps = {"cholqr": {"steps": 12}, "random": {"steps": 35, "seconds": 2.0}, "ivm": {}}
    runs = {f"{m} {k}": scored(m, [0.1], split=k, budget=budget) for m, budget in steps.items() for k in range(3)}

    named = list(split_comparison.families(runs))

    assert named == ["cholqr (12 steps)", "random (35 steps, 2 seconds)", "ivm (no limit)"]


@pytest.mark.parametrize("seed", range(4))
def test_mean_spread_and_sign_test_are_those_of_a_slow_count(seed: int):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(4, 11))
    scores = {"cholqr": rng.normal(50.0, 1.0, count), "random": rng.normal(50.6, 1.0, count)}
    scores["ivm"] = scores["cholqr"] + rng.choice([0.0, 0.5, -0.3], count)  # equal on some splits
    runs = over_splits({method: list(values) for method, values in scores.items()})

    result = split_comparison.table(split_comparison.families(runs))

    means = {method: sum(values) / count for method, values in scores.items()}
    best = min(means, key=means.get)
    assert result.index.tolist() == sorted(means, key=means.get)
    for method, values in scores.items():
        row = result.loc[method]
        assert row["mean"] == pytest.approx(means[method])
        variance = sum((value - means[method]) ** 2 for value in values) / (count - 1)
        assert row["sd"] == pytest.approx(math.sqrt(variance))
        if method == best:
            assert pd.isna(row["best"])
            continue
        wins = sum(a < b for a, b in zip(scores[best], values, strict=True))
        losses = sum(a > b for a, b in zip(scores[best], values, strict=True))
        assert (row["best"], row["wins"], row["ties"]) == (best, wins, count - wins - losses)
        assert row["p"] == pytest.approx(min(1.0, 3 * sign_test(wins, losses)))


def test_the_statement_is_made_only_where_the_test_tells():
    clear = over_splits({"cholqr": [0.1] * 10, "random": [0.2] * 9 + [0.05]})
    doubtful = over_splits({"cholqr": [0.1] * 10, "random": [0.2] * 8 + [0.05] * 2})

    def said(runs: dict[str, Finished]) -> list[str]:
        return split_comparison.sentences(split_comparison.table(split_comparison.families(runs)))

    assert said(clear) == ["cholqr has a lower SMSE than random on 9 of 10 splits (sign test over splits, p = 0.021)."]
    assert said(doubtful) == [
        "10 splits cannot tell the SMSE of cholqr from that of random: cholqr is lower on 8 of 10 splits "
        "(sign test over splits, p = 0.11)."
    ]
    same = over_splits({"cholqr": [0.1] * 10, "random": [0.1] * 10})
    assert "lower on 0 of 10 splits, equal on 10 (sign test over splits, p = 1)" in said(same)[0]
    one_bad_split = over_splits({"cholqr": [0.1] * 9 + [9.0], "random": [0.2] * 10})
    assert said(one_bad_split) == [
        "random has the lower mean SMSE, but cholqr is lower on most: random is lower on 1 of 10 splits "
        "(sign test over splits, p = 0.021)."
    ]
    third = said(clear | over_splits({"ivm": [0.3] * 10}))
    assert "9 of 10 splits (sign test over splits, p = 0.064 for 3 pairs)" in third[0]
    assert third[0].startswith("10 splits cannot tell")


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"p": 0.05}, "10 splits cannot tell the SMSE of a from that of b: a is lower on 6 of 10 splits, equal on 1"),
        ({"p": 0.049}, "a has a lower SMSE than b on 6 of 10 splits, equal on 1 (sign test over splits, p = 0.049)."),
        ({"p": 0.01, "wins": 5}, "a has a lower SMSE than b on 5 of 10 splits, equal on 1"),  # of the 9 that differ
        ({"p": 0.01, "wins": 5, "ties": 0}, "a has the lower mean SMSE, but b is lower on most: a is lower on 5 of 10"),
        ({"p": 0.01, "wins": 4}, "a has the lower mean SMSE, but b is lower on most: a is lower on 4 of 10 splits"),
        ({"p": 0.01, "pairs": 2}, "(sign test over splits, p = 0.01 for 2 pairs)."),
    ],
)
def test_what_is_said_of_two_methods_follows_from_the_test_and_the_wins(row: dict[str, float], words: str):
    usual = {"best": "a", "number": 10, "over": "splits", "wins": 6, "ties": 1, "p": 0.04, "pairs": 1}
    (sentence,) = split_comparison.sentences(pd.DataFrame([usual | row], index=["b"]))

    assert words in sentence


def test_only_splits_that_all_methods_have_are_compared_and_seeds_of_one_split_count_once():
    runs = over_splits({"cholqr": [0.1, 0.2, 0.3, 9.0], "random": [0.2, 0.3, 0.4]})
    runs["random 3"] = scored("random", [math.nan], split=3)
    again = {f"again {k}": scored("cholqr", [1.0, 0.5], split=0, seed=k) for k in (1, 2)}

    result = split_comparison.table(split_comparison.families(runs | again))

    assert result["number"].tolist() == [3, 3]
    assert result.loc["cholqr", "mean"] == pytest.approx(((0.1 + 0.5 + 0.5) / 3 + 0.2 + 0.3) / 3)
    assert result.loc["random", "wins"] == 2


def test_seeds_on_one_split_are_called_seeds_and_other_data_are_not_compared():
    runs = {f"{m}, seed {k}": scored(m, [1.0, 0.1 + k], seed=k) for m in ("cholqr", "random") for k in range(3)}
    runs |= over_splits({"cholqr": [0.1] * 3}, data={**ROWS, "n": 90})

    result = split_comparison.table(split_comparison.families(runs))

    assert result["over"].tolist() == ["seeds", "seeds", "splits"]
    assert result["best"].isna().tolist() == [True, False, True]


def test_rows_in_memory_are_told_apart_by_their_content():
    rng = np.random.default_rng(0)
    arrays = (rng.normal(size=(40, 2)), rng.normal(size=40))
    specs = grid(Spec("random", {"num_inducing": 5}, budget={"steps": 1}), {"split": [0, 1, 2]})
    on_splits = {run.name: run.finished for run in sweep(specs, data=arrays)}
    first = next(iter(specs.values())).open(data=arrays)
    same_rows = {run.name: run.finished for run in sweep(specs, data=first.split)}

    [three] = split_comparison.table(split_comparison.families(on_splits)).itertuples()
    [repeated] = split_comparison.table(split_comparison.families(same_rows)).itertuples()

    assert (three.over, three.number) == ("splits", 3)
    assert (repeated.over, repeated.number) == ("seeds", 1)  # the same rows three times: no split was drawn
    other = {run.name + "'": run.finished for run in sweep(specs, data=(arrays[0], arrays[1] + 1))}
    assert split_comparison.families(on_splits | other) == {}


@pytest.mark.parametrize("over", ["step", "seconds"])
def test_the_median_is_that_of_a_slow_loop(over: str):
    rng = np.random.default_rng(3)
    runs = {
        f"run {k}": scored("cholqr", list(rng.uniform(1, 2, 3 + k)), seconds=1.0 + k, split=k) for k in range(5)
    } | {"alone": scored("random", [0.5, 0.4])}

    layers = split_comparison.layers(runs, split_comparison.families(runs), "smse", over)

    frame = layers["cholqr, median of 5 splits"]
    column = {"step": "index", "seconds": "seconds"}[over]
    places = sorted({place for name, run in runs.items() if name != "alone" for place in run.steps[column]})
    assert frame["x"].tolist() == places
    for place, y in zip(frame["x"], frame["y"], strict=True):
        newest = [
            [
                row.smse
                for row in run.steps.itertuples()
                if getattr(row, "Index" if over == "step" else "seconds") <= place
            ][-1]
            for name, run in runs.items()
            if name != "alone"
        ]
        assert y == sorted(newest)[2]
    assert [name for name, layer in layers.items() if "median" not in layer.attrs] == [
        "cholqr, median of 5 splits", "alone",
    ]  # fmt: skip
    assert frame.attrs["xlabel"] == over


def test_the_curves_of_a_family_are_faint_and_have_the_colour_of_their_median():
    runs = over_splits({"cholqr": [0.1, 0.2, 0.3], "random": [0.2, 0.3, 0.4]})
    runs = {name: run for k in range(3) for name, run in runs.items() if name.endswith(str(k))}  # as on the page

    picture = comparison_charts.curves(split_comparison.layers(runs, split_comparison.families(runs), "smse"), log=True)

    figure = hv.renderer("bokeh").get_plot(picture).state
    widths = [(each.glyph.line_width, each.glyph.line_alpha, each.glyph.line_color) for each in figure.renderers]
    blue, orange = comparison_charts.CYCLE[:2]
    assert widths == [(1, 0.35, blue), (2, 1.0, blue), (1, 0.35, orange), (2, 1.0, orange)]
    drawn = figure.renderers[0].data_source.data
    np.testing.assert_array_equal(drawn["y"], [1.0, 0.1, math.nan, 1.0, 0.2, math.nan, 1.0, 0.3])
    labels = [item.label["value"] for item in figure.legend[0].items]
    assert labels == ["cholqr, median of 3 splits", "random, median of 3 splits"]
    assert list(split_comparison.layers(runs, split_comparison.families(runs), "objective")) == []


def test_a_comparison_of_a_sweep_over_splits_says_what_they_tell():
    specs = {
        f"{method} {k}": Spec(method, {"num_inducing": 4}, ROWS, split=k, budget={"steps": 2})
        for method in ("cholqr", "random")
        for k in range(3)
    }
    compared = Compare(sweep(specs))

    result = compared.over_splits("rmse")
    for method in ("cholqr", "random"):
        values = [run.last["rmse"] for name, run in compared.finished.items() if name.startswith(method)]
        assert result.loc[method, "mean"] == pytest.approx(np.mean(values))
    page = compared._repr_html_()
    assert "3 splits cannot tell the SMSE of" in page
    assert page.count("<img") == 1
    assert "SMSE" not in Compare(list(compared.finished.values())[:2])._repr_html_()
    with pytest.raises(SettingError, match="no score 'colour'"):
        compared.over_splits("colour")


def test_sweeps_with_the_same_names_are_all_kept():
    run = scored("cholqr", [0.1])
    both = [Swept("split=0", run, ""), Swept("split=0", replace(run, spec=replace(run.spec, seed=1)), "")]

    assert list(Compare(both).finished) == ["split=0", "split=0, seed=1"]


def test_repetitions_take_the_steps_of_the_run_and_its_own_split_has_its_name():
    runs = {"a": scored("cholqr", [1.0, 0.5, 0.1], split=2), "b": scored("random", [1.0], split=2)}

    specs = split_comparison.repeated(runs | {"a again": scored("cholqr", [1.0], split=3)}, splits=4)

    assert list(specs)[:5] == ["a, split = 0", "b, split = 0", "a, split = 1", "b, split = 1", "a"]
    assert len(specs) == 8
    assert specs["a"] == replace(runs["a"].spec, budget={"steps": 2})
    assert [spec.split for name, spec in specs.items() if name.startswith("a")] == [0, 1, 2, 3]
    beyond = split_comparison.repeated({"a": scored("cholqr", [1.0, 0.5], split=13)})
    assert [spec.split for spec in beyond.values()] == list(range(10, 20))


@pytest.mark.parametrize(
    ("split", "expected"),
    [
        ({"test": 0.2, "seed": 5}, [{"test": 0.2, "seed": 5 + k} for k in range(10)]),
        ({"folds": 4, "fold": 1}, [{"folds": 4, "fold": k} for k in range(4)]),
    ],
)
def test_splits_are_of_the_kind_of_the_run(split: dict[str, float], expected: list[dict[str, float]]):
    specs = split_comparison.repeated({"a": scored("cholqr", [1.0, 0.5], split=split)})

    assert [spec.split for spec in specs.values()] == expected
    assert specs["a"].split == split


def test_a_division_in_time_is_the_only_one():
    with pytest.raises(SettingError, match="divides the rows in time"):
        split_comparison.repeated({"a": scored("cholqr", [1.0], split={"before": 0.5})})


def test_a_run_that_holds_out_no_rows_is_not_repeated_on_other_splits():
    runs = {"a": scored("cholqr", [1.0, 0.5]), "b": scored("random", [1.0], split="all")}
    with pytest.raises(SettingError, match='"all" holds out no rows, so it has no score to compare: choose a split'):
        split_comparison.repeated(runs)


def test_newest_rows_are_those_of_aligned_tables():
    tables = [pd.DataFrame({"index": [0, 1, 2]}), pd.DataFrame({"index": [1, 4]})]

    places, rows = comparison.newest_rows([table["index"].to_numpy(float) for table in tables], 10)

    assert places.tolist() == [0, 1, 2, 4]
    assert rows.tolist() == [[0, 0], [1, 0], [2, 0], [2, 1]]
