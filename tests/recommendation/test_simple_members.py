"""Trees and other simple models in the answer of a recommendation, and the options that choose among them."""

from __future__ import annotations

import time
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data import Split
from gpexplorer.data.quoting import about
from gpexplorer.problem import Dataset, RowGroups
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.promises import planned
from gpexplorer.recommendation.simple_members import (
    TREES,
    TREES_AND_GP,
    cross_fitted_trees,
    cross_fitting_folds,
    simple_posteriors,
)
from gpexplorer.recommendation.skewness import Transforms
from gpexplorer.recommendation.stages import TimedSearch
from gpexplorer.runs.studies import machine_speed


def search(seconds: float, rows: Dataset) -> TimedSearch:
    split = Split(rows, rows.rows(torch.arange(0)), "rows", key="rows")
    return TimedSearch(split, time.perf_counter(), seconds, [split], None, lambda: False, time.perf_counter)


POOR = Candidate("twelve points", "inducing points", "random", "se-ard", {"num_inducing": 12, "learn": False})


def steps_and_boxes(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets that trees learn well, and a smooth kernel badly."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, 6))
    y = 5.0 * (X[:, 0] > 0.37) * (X[:, 1] > 0.6) - 4.0 * (X[:, 2] > 0.2) * (X[:, 3] < 0.5)
    return X, y + 0.1 * rng.normal(size=n)


@pytest.fixture(scope="module")
def answers() -> dict[str, gpx.recommendation.Recommendation]:
    """In less than five seconds, trees are fewer, and much better than twelve points all the same."""
    X, y = steps_and_boxes(400, 0)
    given = {"seconds": 4.5, "clock": time.process_time, "among": [POOR]}
    return {prefer: gpx.recommend(X, y, **given, prefer=prefer) for prefer in ("nlpd", "rmse", "gp")}


def test_trees_predict_where_they_are_better(answers, tmp_path) -> None:
    X_new, y_new = steps_and_boxes(500, 1)
    rmse = {key: float((answer.predict(X_new).mean.numpy() - y_new).std()) for key, answer in answers.items()}
    assert max(rmse["nlpd"], rmse["rmse"]) < 0.5 * rmse["gp"]
    average = answers["nlpd"].average
    assert average is not None
    assert any("boosted trees" in name for name in average.weights)
    mean, var = answers["nlpd"].predict(X_new)
    inside = np.abs(mean.numpy() - y_new) < 1.96 * var.sqrt().numpy()
    assert 0.88 < inside.mean() <= 1.0
    answers["nlpd"].posterior.save(tmp_path / "m.safetensors")
    loaded = gpx.load_posterior(tmp_path / "m.safetensors")
    torch.testing.assert_close(loaded(X_new).mean, mean)


def test_an_option_keeps_the_gaussian_process(answers) -> None:
    assert answers["gp"].average is None
    assert str(answers["gp"]).startswith("Use twelve points")
    assert "boosted trees" in answers["gp"].better_simple_model
    with pytest.raises(gpx.errors.SettingError, match='give "nlpd", "rmse" or "gp"'):
        gpx.recommend(*steps_and_boxes(40, 0), seconds=1.0, prefer="trees")


def test_residuals_come_from_trees_of_other_rows_groups_and_times() -> None:
    rng = np.random.default_rng(2)
    X, noise = rng.normal(size=(300, 2)), rng.normal(size=300)
    plain = Dataset(torch.from_numpy(X), torch.from_numpy(noise), ("t", "x"))
    groups = RowGroups(torch.arange(300) // 10, are_folds=False)
    grouped = cross_fitting_folds(Dataset(plain.X, plain.y, plain.names, groups=groups), X, "")
    assert all(len(set(grouped[k : k + 10])) == 1 for k in range(0, 300, 10))
    assert len(set(grouped)) == 3
    in_time = cross_fitting_folds(plain, X, "t")
    assert (np.diff(in_time[np.argsort(X[:, 0])]) >= 0).all()
    assert set(in_time) == {0, 1, 2, 3}
    rising = np.linspace(0.0, 30.0, 300)
    in_order = np.column_stack([rising, X[:, 1]])
    folds = cross_fitting_folds(Dataset(torch.from_numpy(in_order), plain.y, plain.names), in_order, "t")
    _, ahead = cross_fitted_trees(in_order, rising, folds, search(1000.0, plain), forward=True)
    assert np.isnan(ahead[folds == 0]).all()
    assert (ahead[folds > 0] > 0.0).all()  # trees of earlier rows do not rise
    trees, residuals = cross_fitted_trees(X, noise, cross_fitting_folds(plain, X, ""), search(1000.0, plain))
    seen = noise - trees(plain.X).numpy()
    assert seen.std() < 0.9 < residuals.std()  # there is nothing to learn, and the noise is 1
    _, of_one_fold = cross_fitted_trees(X, noise, cross_fitting_folds(plain, X, ""), search(1e-6, plain))
    assert np.isfinite(of_one_fold).sum() == 100  # there was time for one fit
    assert np.nanstd(of_one_fold) > 0.9


@pytest.mark.parametrize("forward", [False, True])
def test_the_noise_of_few_rows_comes_from_all_folds_however_little_time_there_is(forward: bool) -> None:
    X, y = np.linspace(0.0, 1.0, 12)[:, None], np.random.default_rng(0).normal(size=12)
    rows = Dataset(torch.from_numpy(X), torch.from_numpy(y), ("t",))
    folds = cross_fitting_folds(rows, X, "t" if forward else "")
    _, residuals = cross_fitted_trees(X, y, folds, search(1e-6, rows), forward=forward)
    assert np.isfinite(residuals).sum() == (9 if forward else 12)


def test_trees_of_many_rows_stop_where_rows_set_aside_do_not_improve_and_those_of_few_do_not() -> None:
    """There is nothing to learn, and the noise is 1: with all their trees, residuals of seen rows are much smaller."""
    rng, seen = np.random.default_rng(5), dict[int, float]()
    for n in (450, 1200):
        X, noise = rng.normal(size=(n, 2)), rng.normal(size=n)
        rows = Dataset(torch.from_numpy(X), torch.from_numpy(noise), ("a", "b"))
        trees, _ = cross_fitted_trees(X, noise, cross_fitting_folds(rows, X, ""), search(1000.0, rows))
        seen[n] = float((noise - trees(rows.X).numpy()).std())
    assert seen[450] < 0.75
    assert seen[1200] > 0.9


def members_of(X: np.ndarray, y: np.ndarray, names: tuple[str, ...] = ()):
    """The simple models of some rows; no time passes while they are fitted."""
    rows = Dataset(torch.from_numpy(X), torch.from_numpy(y), tuple(f"x{k}" for k in range(X.shape[1])))
    own = search(4.0, rows)
    own.clock = lambda: 0.0
    return simple_posteriors(own, rows, Transforms(), "", names)


def steps_and_waves(n: int, d: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Targets of which a GP learns what trees leave; inputs after the second explain nothing."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, d))
    return X, 3.0 * (X[:, 0] > 0.0) + np.sin(4.0 * X[:, 1]) + 0.1 * rng.normal(size=n)


def test_the_gp_of_what_trees_leave_learns_until_its_share_of_the_time() -> None:
    X_new, y_new = steps_and_waves(1000, 2, seed=7)
    mean, var = members_of(*steps_and_waves(240, 2, seed=6), (TREES_AND_GP,))[TREES_AND_GP](torch.from_numpy(X_new))
    inside = np.abs(mean.numpy() - y_new) < 1.96 * var.sqrt().numpy()
    assert 0.92 < inside.mean() < 1.0  # with its initial values, about two thirds


@pytest.mark.parametrize(("d", "names", "expected"), [(60, (), True), (61, (), False), (2, (TREES,), False)])
def test_a_gp_joins_trees_of_up_to_sixty_inputs_where_it_is_wanted(d: int, names: tuple[str, ...], expected: bool):
    members = members_of(*steps_and_waves(60, d, seed=6), names)
    assert TREES in members
    assert (TREES_AND_GP in members) == expected


def test_subjects_that_are_measured_again_are_groups_whatever_their_name() -> None:
    rng = np.random.default_rng(3)
    subject = np.repeat(np.arange(30), 8)
    week = np.tile(np.arange(8), 30)
    breed, level = rng.choice(["a", "b", "c"], 30)[subject], rng.normal(0, 3, 30)[subject]
    y = level + 2.0 * week + rng.normal(size=240)
    ewes = pd.DataFrame({"ewe": 101 + subject, "breed": breed, "week": week, "y": y})
    assert planned(ewes, None, {"target": "y"}, None, None, None)[1].column == "ewe"
    words = ewes.assign(ewe=[f"ewe {k:02d}" for k in subject])
    assert planned(words, None, {"target": "y"}, None, None, None)[1].column == "ewe"
    assert planned(words.drop(columns="breed"), None, {"target": "y"}, None, None, None)[1].column == "ewe"
    shops = ewes.assign(week=rng.normal(size=240), breed=rng.choice(["a", "b", "c"], 240))  # a place, not a subject
    assert planned(shops, None, {"target": "y"}, None, None, None)[1].kind == "random"


def test_numbers_have_marks_and_three_digits() -> None:
    assert [about(value) for value in (351234.0, 68.5312, 0.012345, 1234567.0)] == [
        "351,000",
        "68.5",
        "0.0123",
        "1,230,000",
    ]


def test_on_a_slow_machine_one_candidate_has_the_time_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step is said to take 0.9 s, which is more than the share of each candidate."""
    monkeypatch.setattr(machine_speed, "machine", lambda: SimpleNamespace(seconds=lambda cost: 0.9))
    X, y = steps_and_boxes(60, 0)
    tried = [Candidate(f"ml, {kernel}", "exact", "ml", kernel) for kernel in ("se", "se-ard", "matern32", "matern52")]
    seen: list[str] = []
    answer = gpx.recommend(
        X, y, seconds=4.0, among=tried, prefer="gp", on_progress=lambda progress: seen.append(progress.sentence)
    )
    assert "Trying ml, se with more time." in seen
    assert answer.kernel == "se"


def test_few_long_series_are_continued_and_many_short_ones_are_groups() -> None:
    rng = np.random.default_rng(4)
    for towns, months, kind in ((12, 90, "time"), (90, 12, "groups")):
        month, town = np.repeat(np.arange(months), towns), np.tile(np.arange(towns), months)
        y = rng.normal(100, 15, towns)[town] + np.cumsum(rng.normal(0.2, 1.0, months))[month]
        date = pd.Timestamp("2010-01-01") + pd.to_timedelta(30 * month, unit="D")
        panel = pd.DataFrame({"date": date, "town": [f"town {k}" for k in town], "x": rng.normal(size=len(y)), "y": y})
        assert planned(panel, None, {"target": "y"}, None, None, None)[1].kind == kind
