"""What `recommend` promises: honest scores, the time it is given, the right winner where it is known, and sentences."""

from __future__ import annotations

import copy
import itertools
import json
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import gpexplorer as gpx
from benchmarks.arena.simple_models import SIMPLE
from gpexplorer.cli import app
from gpexplorer.data import Split
from gpexplorer.errors import DataError, KernelError, SettingError
from gpexplorer.problem import Dataset
from gpexplorer.recommendation import final_fit, halving, stages
from gpexplorer.recommendation.candidates import Candidate, candidates, points_for, rows_for
from gpexplorer.recommendation.held_out import RowScores, first_rows, parts
from gpexplorer.recommendation.lanes import Lane, chosen, step_until
from gpexplorer.runs import scores
from gpexplorer.runs.studies import machine_speed

SMALL = [
    Candidate("cholqr, se-ard", "inducing points", "cholqr", "se-ard", {"num_inducing": 12, "max_epochs": 2}),
    Candidate("subset, 20 rows", "exact", "subset-of-data", "se-ard", {"num_rows": 20, "learn": False}),
]


def waves(n=150, d=1, seed=0, offset=0.0):
    """A sine with noise 0.1: a Gaussian process fits it, a straight line does not."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, d))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=n) + offset


def rows(n, d=2):
    X, y = waves(n, d)
    train = Dataset(torch.tensor(X), torch.tensor(y), tuple(f"x{i}" for i in range(d)))
    return Split(train, train.rows(torch.arange(0)), "waves", key=f"waves-{n}-{d}")


@pytest.fixture(scope="module")
def answer():
    X, y = waves(offset=1000.0)
    return gpx.recommend(X, y, seconds=20.0, among=SMALL)  # it ends after 3 s where nothing else runs


def test_the_better_candidate_wins_and_predicts_in_the_units_of_the_data(answer):
    X, y = waves(400, seed=1, offset=1000.0)
    mean, var = (part.numpy() for part in answer.predict(torch.tensor(X)))
    assert answer.method == "cholqr"
    assert np.square(y - mean).mean() / y.var() < 0.05
    assert 0.88 < (np.abs(y - mean) < 1.96 * np.sqrt(var)).mean() <= 0.99
    assert answer.refitted
    assert len(answer.run.problem.train) == 150


def test_what_was_expected_is_what_new_rows_show(answer):
    X, y = waves(2000, seed=2, offset=1000.0)
    mean, var = (part.numpy() for part in answer.predict(torch.tensor(X)))
    new = RowScores.of(y, mean, var)
    expected = (answer.average or answer).expected["nlpd"]  # of what predicts
    assert expected.low < expected.value < expected.high
    assert expected.low - 0.1 < new.nlpd < expected.high + 0.1


def test_the_same_spec_on_the_same_rows_gives_the_same_predictions(answer):
    X, _ = waves(offset=1000.0)
    split = Split(answer.run.split.train, answer.run.split.test, "again", key=answer.run.split.key)
    reopened = answer.spec.open(data=split)
    reopened.finish(steps=answer.run.done)
    where = torch.tensor(X[:20])
    assert torch.equal(reopened.posterior()(where).mean, answer.run.posterior()(where).mean)


def test_the_answer_says_who_was_second_and_what_a_simple_model_reaches(answer):
    assert answer.runner_up == "subset, 20 rows"
    assert "nats" in str(answer)
    assert "boosted trees" in set(answer.table["model"])
    assert "<script>" not in answer._repr_html_()
    assert list(answer.table["nlpd"]) == sorted(answer.table["nlpd"])


def test_a_straight_line_is_the_answer_where_it_is_better():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 8))
    y = X @ np.arange(8.0) + 0.1 * rng.normal(size=120)
    poor = Candidate("twelve points", "inducing points", "random", "se-ard", {"num_inducing": 12, "learn": False})
    answer = gpx.recommend(X, y, seconds=2.0, among=[poor])
    assert answer.better_simple_model == "ridge"
    assert str(answer).startswith("Use ridge: ")
    assert answer.average.weights == {"ridge": 1.0}
    X_new = rng.normal(size=(50, 8))
    np.testing.assert_allclose(answer.predict(torch.tensor(X_new)).mean, X_new @ np.arange(8.0), atol=0.3)


def test_test_rows_of_a_data_set_are_never_used():
    X, y = waves(60)
    train = Dataset(torch.tensor(X), torch.tensor(y), ("x",))
    poisoned = Dataset(torch.full((40, 1), torch.nan), torch.full((40,), torch.nan), ("x",))
    answer = gpx.recommend(Split(train, poisoned, "poisoned", key="poisoned"), seconds=2.0, among=SMALL[:1])
    assert math.isfinite(answer.expected["nlpd"].value)


def test_held_out_rows_are_no_rows_to_fit_and_cover_a_small_set():
    split = rows(300)
    folds = parts(split, seed=3)
    assert sorted(itertools.chain.from_iterable(part.test.y.tolist() for part in folds)) == sorted(
        split.train.y.tolist()
    )
    for part in folds:
        assert not set(part.train.y.tolist()) & set(part.test.y.tolist())
        assert len(part.train) + len(part.test) == 300
    (large,) = parts(rows(5000), seed=3)
    assert (len(large.train), len(large.test)) == (4500, 500)
    assert len(first_rows(large, 1000).train) == 1000


def test_row_scores_are_the_scores_of_a_run():
    rng = np.random.default_rng(0)
    y, mean, var = rng.normal(size=50), rng.normal(size=50), rng.uniform(0.5, 2, 50)
    own = RowScores.of(y, mean, var)
    reference = scores.scores(*map(torch.tensor, (y, mean, var)), torch.tensor(y))
    assert own.smse == pytest.approx(reference["smse"], rel=1e-12)
    assert own.nlpd == pytest.approx(reference["nlpd"], rel=1e-12)
    wider = RowScores.of(y, mean, var * 4)
    less = wider.density - own.density
    assert own.better_by(wider) == pytest.approx((less.mean(), less.std() / np.sqrt(50)), rel=1e-12)


@pytest.mark.parametrize("metric", ["nlpd", "rmse", "smse"])
def test_interval_covers_the_score_of_new_rows_as_often_as_it_says(metric):
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        held_out, new = (RowScores.of(y, 0.0 * y, 1.0 + 0.0 * y) for y in (rng.normal(size=120), rng.normal(size=40)))
        interval = held_out.interval(metric)
        inside += interval.low <= getattr(new, metric) <= interval.high
    assert (0.88 if metric != "smse" else 0.8) < inside / 200 <= 0.99


def test_the_time_is_kept_by_the_clock_of_the_caller():
    """Each look at the clock costs a tenth of a second, so work ends when ten seconds are used, whatever it did."""
    ticks = itertools.count()
    answer = gpx.recommend(*waves(60), seconds=10.0, among=SMALL, clock=lambda: 0.1 * next(ticks))
    assert 0.1 * next(ticks) < 14.0
    assert "of 10 s" in answer.sentences[-1]


def test_a_request_to_stop_gives_the_best_answer_so_far():
    requests = itertools.count()
    X, y = waves(60)
    answer = gpx.recommend(X, y, seconds=60.0, among=SMALL, should_stop=lambda: next(requests) > 12)
    assert answer.method in ("cholqr", "subset-of-data")
    assert np.isfinite(answer.predict(torch.tensor(X)).var.numpy()).all()
    assert not answer.refitted


def test_a_request_to_stop_between_two_lanes_of_a_stage_compares_lanes_that_have_seen_the_same_rows():
    """Some lanes have been scored on two of three held-out parts by then, and the others on one."""
    X, y = waves(60)
    among = [replace(SMALL[-1], name=f"lane {k}") for k in range(4)]
    sentences = set[str]()
    for allowed in (26, 32, 40):
        requests = itertools.count()
        stop = partial(lambda requests, allowed: next(requests) > allowed, requests, allowed)
        answer = gpx.recommend(X, y, seconds=60.0, among=among, should_stop=stop)
        assert np.isfinite(answer.predict(torch.tensor(X)).var.numpy()).all()
        sentences |= set(answer.table["sentence"])
    assert any("as many held-out rows" in sentence for sentence in sentences)


@pytest.mark.parametrize(("n", "refit_up_to"), [(60, 10_000), (1100, 0)])
def test_a_failure_after_the_choice_leaves_the_answer_that_was_chosen(monkeypatch, n, refit_up_to):
    def raising(*_):
        raise KernelError("K_mm is not positive definite.")
        yield

    def failing_steps(run, deadline, stopped, clock):
        method = copy.copy(run.method)
        method.steps = raising
        run.method, run.outcome, steps, run._steps = method, None, run._steps, None
        if steps is not None:
            steps.close()
        step_until(run, deadline + 100.0, stopped, clock)

    monkeypatch.setattr(final_fit, "step_until", failing_steps)
    monkeypatch.setattr(final_fit, "REFIT_UP_TO", refit_up_to)
    X, y = waves(n)
    answer = gpx.recommend(X, y, seconds=1.0, among=SMALL)
    assert answer.run.error is None
    assert not answer.refitted
    assert np.isfinite(answer.predict(torch.tensor(X)).var.numpy()).all()
    assert "K_mm is not positive definite" in str(answer)


def test_a_fit_to_all_rows_that_the_time_cuts_short_is_no_answer(monkeypatch):
    monkeypatch.setattr(final_fit, "step_until", lambda run, *_: (run.advance(), run.advance()))
    X, y = waves(150)
    answer = gpx.recommend(X, y, seconds=4.0, among=SMALL[:1])
    assert not answer.refitted
    assert len(answer.run.problem.train) == 100
    assert "did not suffice" in str(answer)
    assert answer.run.done > 1


def test_progress_grows_and_names_the_work():
    seen = []
    gpx.recommend(*waves(60), seconds=2.0, among=SMALL, on_progress=seen.append)
    fractions = [progress.fraction for progress in seen]
    assert fractions == sorted(fractions)
    assert any("cholqr" in progress.sentence for progress in seen)


def test_a_candidate_that_is_too_large_is_named_with_its_reason():
    large = Candidate("all rows", "exact", "ml", "se-ard")
    answer = gpx.recommend(*waves(900), seconds=4.0, memory="10 MB", among=[large, SMALL[0]])
    reason = answer.table.set_index("model").loc["all rows", "sentence"]
    assert answer.method == "cholqr"
    assert "GB are allowed" in reason


@pytest.mark.parametrize(("memory", "most"), [(None, 2e8), ("5 GB", 5e9)])
def test_what_is_tried_in_the_time_left_holds_little_unless_memory_is_given(
    monkeypatch: pytest.MonkeyPatch, memory: str | None, most: float
):
    limits: list[float] = []
    monkeypatch.setattr(halving, "Lane", lambda *given, **rest: limits.append(given[2]) or Lane(*given, **rest))
    monkeypatch.setattr(halving, "candidates", lambda *_: SMALL)
    monkeypatch.setattr(halving, "lanes_for", lambda *_: 1)

    gpx.recommend(*waves(), seconds=1.0, memory=memory)

    assert limits[0] > 2e8
    assert set(limits[1:]) == {most}


def test_a_lane_that_falls_faster_is_expected_to_be_lower():
    flat, steep = Lane(SMALL[0], 0, 1e9), Lane(SMALL[1], 0, 1e9)
    flat.curve, steep.curve = [(1.0, 0.5), (2.0, 0.5)], [(1.0, 1.0), (2.0, 0.7)]
    assert flat.forecast(8.0) == pytest.approx(0.5)
    assert steep.forecast(8.0) == pytest.approx(0.7 - 0.3 * 2)


def test_a_short_time_tries_few_candidates_and_leaves_the_chosen_one_half_of_it():
    assert stages.lanes_for(20_000, 5.0) == 2
    assert stages.lanes_for(20_000, 60.0) < stages.lanes_for(20_000, 120.0)
    assert stages.lanes_for(20_000, 60.0) < stages.lanes_for(500, 60.0)
    assert [len(stages.shares_for(lanes)) for lanes in (1, 2, 3, 4, 5, 8, 9, 40)] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert sum(stages.shares_for(2)) <= 0.5
    (single,) = stages.parts_of_stages(parts(rows(20_000), 0), 1)
    assert len(single[0].train) == 18_000


def test_two_lanes_have_one_stage_and_the_winner_has_the_rest_of_the_time():
    seen, ticks = [], itertools.count()
    gpx.recommend(*waves(1200), seconds=10.0, among=SMALL, clock=lambda: 0.1 * next(ticks), on_progress=seen.append)
    stages_seen = [progress.sentence.split(":")[0] for progress in seen if progress.sentence.startswith("Stage")]
    assert stages_seen == ["Stage 1 of 1"] * 2
    (going_on,) = (progress for progress in seen if progress.sentence.startswith(("Going on", "Fitting cholqr")))
    assert going_on.fraction < 0.75  # the shares of the lanes are a half, and each look at this clock costs


def test_time_left_by_a_model_that_has_converged_goes_to_more_candidates_and_to_the_rows_held_out(monkeypatch):
    """One candidate is tried, and the one after it is better: a map of 1200 rows whose answer needs no more steps."""
    noise = np.random.default_rng(0).normal(size=1200)
    X, _ = waves(1200, 2)
    y = np.sin(2.0 * X[:, 0]) * np.cos(2.0 * X[:, 1]) + 0.1 * noise
    quick = {"evaluations": 4, "conditionals": 150, "rounds": 1}
    far, usual, near = (
        Candidate(name, "neighbours", "vecchia", "matern32", {**quick, "num_nearest": rows}, all_rows=True)
        for name, rows in (("one row", 1), ("usual", 30), ("ten rows", 10))
    )
    other = Candidate("other", "exact", "subset-of-data", "se-ard", {"num_rows": 20})
    monkeypatch.setattr(halving, "candidates", lambda *_: [far, other, usual, near])
    monkeypatch.setattr(halving, "lanes_for", lambda *_: 1)
    monkeypatch.setattr(halving, "fitted_members", lambda *_: ([], 0.0))
    monkeypatch.setattr(halving, "suitable_transforms", lambda *_: halving.Transforms())
    monkeypatch.setattr(final_fit, "REFIT_UP_TO", 0)
    ticks = itertools.count()
    answer = gpx.recommend(X, y, seconds=60.0, clock=lambda: 0.05 * next(ticks))
    table = answer.table.set_index("model")

    assert table.loc["usual", "nlpd"] < table.loc["one row", "nlpd"] - 0.1
    assert answer.settings["num_nearest"] == 30
    assert answer.refitted
    assert len(answer.run.problem.train) == 1200
    assert {"one row", "usual", "ten rows"} <= set(table.index)  # near rows first: they resemble the best one


def test_of_candidates_that_hardly_differ_the_first_is_chosen():
    rng = np.random.default_rng(0)
    y = rng.normal(size=100)
    first, second, far = (Lane(SMALL[k], 0, 1e9) for k in (0, 1, 1))
    first.scores = RowScores.of(y, 0.001 * y, np.ones(100))
    second.scores = RowScores.of(y, 0.001 * y + 0.001 * rng.normal(size=100), np.ones(100))
    far.scores = RowScores.of(y, y + 0.1, np.ones(100))
    lanes = [first, second, far]
    ranked = sorted(lanes[:2], key=lambda lane: lane.scores.nlpd)
    assert chosen(ranked, lanes) is first
    assert chosen(ranked[::-1], lanes[1::-1]) is second
    assert chosen([far, first, second], lanes) is far


def test_a_candidate_that_would_be_chosen_reaches_the_last_stage():
    """It is neither the best by a hair nor expected to fall, and would otherwise be given up."""
    rng = np.random.default_rng(0)
    y = rng.normal(size=100)
    split = rows(100)
    search = halving.Halving(split, 0.0, 10.0, parts(split, 0), None, lambda: False, lambda: 0.0)
    lanes = [Lane(SMALL[0], 0, 1e9) for _ in range(3)]
    for lane, error in zip(lanes, (2e-3, 1e-3, 0.0), strict=True):
        lane.scores = RowScores.of(y, 1e-2 * rng.normal(size=100) + error * y, np.full(100, 1.0))
    steep = lanes[1]
    steep.curve = [(1.0, 9.0), (2.0, lanes[1].scores.nlpd)]
    ranked = sorted(lanes, key=lambda lane: lane.scores.nlpd)
    assert search._pair(ranked, lanes) == [lanes[0], steep]
    assert lanes[0] in search._kept(ranked, lanes, rows_grow=False)


def test_an_exact_gp_that_learns_until_the_end_is_still_fitted_to_the_rows_that_were_held_out(monkeypatch):
    monkeypatch.setattr(final_fit, "ANEW_TIMES", math.inf)
    exact, ticks = Candidate("ml, se-ard", "exact", "ml", "se-ard", {"evaluations": 10_000}), itertools.count()
    answer = gpx.recommend(*waves(1100), seconds=24.0, among=[exact], clock=lambda: 0.5 * next(ticks))
    assert answer.refitted
    assert len(answer.run.problem.train) == 1100
    assert answer.spec.kernel["theta"] == pytest.approx(answer.run.trace[0].step.state.theta.tolist())


def test_an_exact_gp_is_fitted_to_all_rows_from_its_own_start():
    exact = Candidate("ml, se-ard", "exact", "ml", "se-ard")
    answer = gpx.recommend(*waves(60), seconds=20.0, among=[exact])
    assert answer.refitted
    assert answer.spec.kernel == "se-ard"
    alone = gpx.Spec("ml", kernel="se-ard", seed=0).open(data=answer.run.split)
    alone.finish(steps=answer.run.done)
    assert answer.run.trace[-1].step.info.objective == alone.trace[-1].step.info.objective


def test_sizes_grow_with_the_time_and_stay_within_the_rows(monkeypatch):
    monkeypatch.setattr(machine_speed, "machine", lambda: machine_speed.Speed(4e10, 1e10, 1e-5))
    assert points_for(20_000, 1.0) < points_for(20_000, 100.0) <= 1024
    assert points_for(100, 100.0) == 100
    assert points_for(20_000, 1.0, steps=450) == 141  # sqrt(n), of which some steps fit into the time
    assert points_for(10**6, 20.0, steps=450) == 115  # 1000, the root, would take 20 s in a step of 6 n m^2
    assert rows_for(20_000, 0.1) < rows_for(20_000, 10.0) <= 3000
    names = [candidate.method for candidate in candidates(rows(500, 2), 1.0)]
    assert {"ml", "cholqr", "scgd", "sgpr"} <= set(names)
    assert all(Candidate.spec(candidate, 500, 0) for candidate in candidates(rows(500, 2), 1.0))


@pytest.mark.parametrize("name", SIMPLE)
def test_simple_models_predict_in_the_units_given(name):
    X, y = waves(200, offset=500.0)
    mean, var = SIMPLE[name](X, y, X[:50])
    assert mean.shape == var.shape == (50,)
    assert np.abs(mean - y[:50]).max() < 3
    assert (var > 0).all()


def test_texts_go_to_kernels_of_texts():
    words = ["".join(letters) for letters in itertools.product("abc", repeat=4)]
    y = np.array([word.count("a") for word in words], dtype=float)
    answer = gpx.recommend(words, y, seconds=4.0)
    assert answer.kernel in ("spectrum", "mismatch")
    assert answer.expected["smse"].value < 0.5


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"seconds": 0}, SettingError, "seconds"),
        ({"memory": "much"}, SettingError, "2 GB"),
        ({"seed": -1}, SettingError, "seed"),
        ({"among": []}, SettingError, "among is empty"),
    ],
)
def test_bad_input_is_refused_with_a_way_out(given, error, words):
    with pytest.raises(error, match=words):
        gpx.recommend(*waves(60), **given)


def test_too_few_rows_are_refused():
    with pytest.raises(DataError, match="at least 10"):
        gpx.recommend(*waves(8))


def test_command_line_prints_the_answer_and_writes_a_spec(tmp_path):
    X, y = waves(80)
    path, out = tmp_path / "mine.csv", tmp_path / "spec.json"
    pd.DataFrame({"x": X[:, 0], "price": y}).to_csv(path, index=False)
    result = CliRunner().invoke(app, ["recommend", str(path), "--seconds", "2", "--json", "--out", str(out)])
    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert gpx.Spec.from_json(out.read_text()).method == answer["method"]
    assert answer["expected"]["smse"]["low"] <= answer["expected"]["smse"]["high"]
