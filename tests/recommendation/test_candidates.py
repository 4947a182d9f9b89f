"""Which methods `recommend` tries, by the number of rows, of inputs and of seconds, and by what the inputs are."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.data import Split
from gpexplorer.problem import Dataset, MixedRows, RowGroups
from gpexplorer.recommendation import candidates as module
from gpexplorer.recommendation.candidates import (
    ANOVA_INPUTS,
    DESCENT_UP_TO,
    EXACT,
    EXACT_UP_TO,
    GRID_INPUTS,
    MOST_WORDS,
    NETWORK_FROM,
    Candidate,
    candidates,
    exact_gp,
)
from gpexplorer.recommendation.final_fit import REFIT_TIMES, SOLVE_TIMES, least_seconds
from gpexplorer.recommendation.held_out import FOLDS, FOLDS_BELOW, parts
from gpexplorer.recommendation.lanes import Lane


@pytest.fixture(autouse=True)
def _a_machine_of_known_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """An exact model of 100 rows per second of its share, and 10 inducing points per second."""
    monkeypatch.setattr(module, "rows_for", lambda n, seconds: min(n, int(100 * seconds)))
    monkeypatch.setattr(module, "points_for", lambda n, seconds: min(n, int(10 * seconds)))


def names(n: int, d: int = 3, seconds: float = 1000.0) -> list[str]:
    X = torch.zeros(1, d).expand(n, d)
    return [tried.name for tried in candidates(Split(Dataset(X, X[:, 0]), Dataset(X[:1], X[:1, 0]), "x"), seconds)]


def test_few_rows_have_exact_gps_first_and_no_network():
    assert names(NETWORK_FROM - 1) == [
        "ml, matern32-ard", "ml, anova-matern52", "ml, se-ard", "ml, linear", "ml, matern32",
        "sgpr, matern32-ard, m = 199", "cholqr, se-ard", "grief, se-ard", "ml, matern52-ard",
    ]  # fmt: skip


def test_a_network_joins_with_enough_rows():
    tried = names(NETWORK_FROM)
    assert tried[2:7] == [
        "ml, se-ard", "scgd, network", "ml, linear", "ml, matern32", "sgpr, matern32-ard, m = 200",
    ]  # fmt: skip
    assert len(tried) == 10
    assert names(NETWORK_FROM, seconds=39.0)[-2:] == ["cholqr, matern52-ard, m = 390", "sgpr, se-ard, m = 390"]


@pytest.mark.parametrize(("d", "is_tried"), [(1, False), (2, True), (ANOVA_INPUTS[1], True), (41, False)])
def test_sums_over_inputs_are_tried_where_there_are_several_and_few_rows(d: int, is_tried: bool):
    assert ("ml, anova-matern52" in names(200, d)) == is_tried
    assert not any("anova" in name for name in names(EXACT_UP_TO + 1, d, seconds=40.0))


def test_sums_over_inputs_predict_better_where_inputs_act_one_by_one():
    X = torch.rand(420, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = 0.1 * torch.randn(420, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    y = torch.sin(6.0 * X).sum(1) + X[:, 0] * X[:, 1] + noise
    split = Split(Dataset(X[:120], y[:120]), Dataset(X[120:], y[120:]), "sums").scaled()
    runs = {
        each.kernel: gpx.Spec(each.method, kernel=each.kernel).open(data=split)
        for each in candidates(split, 1000.0)
        if each.name in ("ml, matern32-ard", "ml, anova-matern52")
    }
    nlpd = {}
    for kernel, run in runs.items():
        run.finish()
        nlpd[kernel] = run.scores()["nlpd"]

    assert nlpd["anova-matern52"] < nlpd["matern32-ard"] - 0.3


def test_many_rows_begin_with_the_network_and_the_full_gp_by_blocks():
    n = EXACT_UP_TO + 1
    tried = candidates(split_of(n), 40.0)
    assert [each.name for each in tried] == [
        "scgd, network", "gbcd, matern32-ard", "sgpr, matern32-ard, m = 400", "gbcd, se-ard", "cholqr, se-ard",
        "grief, se-ard", "gbcd, matern52-ard", "cholqr, matern52-ard, m = 400", "sgpr, se-ard, m = 400",
    ]  # fmt: skip
    network, by_blocks = tried[:2]
    assert network.all_rows
    assert (by_blocks.group, by_blocks.all_rows, by_blocks.settings) == (EXACT, True, {"subset": 2000})
    assert candidates(split_of(n), 2.0)[1].settings == {"subset": 500}  # at least
    assert tried[2].settings == {"num_inducing": 400}
    assert tried[4].settings == {}


def test_many_rows_of_few_inputs_begin_with_their_nearest_rows():
    n = EXACT_UP_TO + 1
    near, network, second = candidates(split_of(n, torch.zeros(1, 3).expand(n, 3)), 40.0)[:3]
    assert (near.name, near.all_rows) == ("vecchia, matern32-ard", True)
    assert (network.name, second.name) == ("scgd, network", "vecchia, matern12-ard")
    assert not any("vecchia" in name for name in (*names(n, 4, seconds=40.0), *names(EXACT_UP_TO, 3)))


def test_many_rows_of_one_input_begin_with_states():
    n = EXACT_UP_TO + 1
    tried = candidates(split_of(n, torch.zeros(1, 1).expand(n, 1)), 40.0)
    near = [each for each in tried if each.group == "neighbours"]
    assert tried[0] == near[0]
    assert [each.name for each in near] == ["states, matern32", "states, matern12", "vecchia, matern32-ard"]
    assert all(each.all_rows for each in near)
    assert not any("states" in name for name in names(n, 2))


def test_many_rows_with_a_period_begin_with_states_and_waves():
    x = torch.linspace(0.0, 900.0, EXACT_UP_TO + 1, dtype=torch.float64)[:, None]
    noise = 0.1 * torch.randn(len(x), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = torch.sin(2.0 * math.pi * x[:, 0] / 7.0) + torch.linspace(0.0, 1.0, len(x)).double() + noise
    one, two = "states, matern32 + periodic", "states, matern32 + periodic + periodic"
    without = ["states, matern32", "states, matern12"]
    for targets, expected in ((y, [one, *without]), (y + torch.sin(x[:, 0] / 3.0), [two, one, *without])):
        split = Split(Dataset(x, targets, ("t",)), Dataset(x[:1], y[:1], ("t",)), "x")
        tried = [each.name for each in candidates(split, 10.0)]
        assert [name for name in tried if "states" in name] == expected
    for seconds, expected in ((0.03, [one, *without, two]), (0.01, [*without, two, one])):  # waves take their time
        near = module.near_rows(len(x), 1, seconds, seasons=2)
        assert [each.name for each in near if "states" in each.name] == expected


def split_of(n: int, X: Any = None) -> Split:
    X = torch.zeros(1, 4).expand(n, 4) if X is None else X
    train = Dataset(X, torch.zeros(1).expand(n))
    return Split(train, train, "x")


def test_very_many_rows_have_exact_gps_on_some_of_them():
    assert names(DESCENT_UP_TO, 4, seconds=40.0)[1] == "gbcd, matern32-ard"
    tried = names(DESCENT_UP_TO + 1, 4, seconds=40.0)
    assert tried[:2] == ["scgd, network", "subset-of-data, matern32-ard, 4000 rows"]
    assert tried.count("subset-of-data, se-ard, 4000 rows") == 1


def test_a_grid_is_for_some_inputs_only():
    assert "grief, se-ard" in names(200, GRID_INPUTS)
    assert "grief, se-ard" not in names(200, GRID_INPUTS + 1)
    without_anova = [[each for each in names(200, d) if "anova" not in each] for d in (GRID_INPUTS, GRID_INPUTS + 1)]
    assert len(without_anova[1]) == len(without_anova[0]) - 1


@pytest.mark.parametrize(
    ("n", "seconds", "method", "settings"),
    [
        (EXACT_UP_TO, 2.5, "ml", {}),  # twelve shares of the time suffice for 3000 rows
        (EXACT_UP_TO, 2.4, "subset-of-data", {"num_rows": 240}),
        (EXACT_UP_TO + 1, 1000.0, "subset-of-data", {"num_rows": 3001}),
        (600, 0.5, "ml", {}),
        (601, 0.5, "subset-of-data", {"num_rows": 50}),
    ],
)
def test_an_exact_gp_has_all_rows_where_the_time_suffices(n: int, seconds: float, method: str, settings: dict):
    tried = exact_gp("se-ard", n, seconds)
    assert (tried.method, tried.settings, tried.group, tried.kernel) == (method, settings, EXACT, "se-ard")


@pytest.mark.parametrize(("texts", "keys"), [("CCO", ("molecules", "spectrum")), ("x!", ("spectrum", "mismatch"))])
@pytest.mark.parametrize(("seconds", "exact"), [(3.0, "ml"), (1.0, "subset-of-data")])
def test_texts_are_molecules_or_strings(texts: str, keys: tuple[str, str], seconds: float, exact: str):
    tried = candidates(split_of(120, [texts] * 120), seconds)
    assert [(each.method, each.kernel) for each in tried] == [
        ("cholqr", keys[0]), (exact, keys[0]), ("cholqr", keys[1]), (exact, keys[1])
    ]  # fmt: skip
    assert tried[1].settings == ({} if exact == "ml" else {"num_rows": 100})
    assert [each.group for each in tried] == ["inducing points", EXACT] * 2


def mixed(words: list[list[str]], numbers: int) -> Split:
    n = len(words[0])
    X = MixedRows(torch.zeros(n, numbers), tuple(map(tuple, words)))
    names_of = (*(f"a{q}" for q in range(numbers)), *(f"t{q}" for q in range(len(words))))
    train = Dataset(X, torch.zeros(n), names_of)
    return Split(train, train, "x")


@pytest.mark.parametrize(("seconds", "exact"), [(3.0, "ml"), (0.5, "subset-of-data")])
def test_numbers_beside_texts_have_sums_and_products_of_a_kernel_each(seconds: float, exact: str):
    tried = candidates(mixed([["!red", "!blue"] * 60], 2), seconds)
    kernels = [f"{numbers}{sign}category[t0]" for numbers in ("se-ard", "matern32-ard") for sign in "+*"]
    assert [each.kernel for each in tried] == [kernel for kernel in kernels for _ in range(2)]
    assert [each.method for each in tried] == [exact, "cholqr"] * 4
    assert tried[0].settings == ({} if exact == "ml" else {"num_rows": 50})


def test_texts_alone_are_not_combined_with_nothing():
    assert [each.kernel for each in candidates(mixed([["!a", "!b"] * 9], 0), 60.0)] == ["category[t0]"] * 2
    tried = candidates(mixed([["!a", "!b"] * 9, ["!c"] * 18], 0), 60.0)
    assert [each.kernel for each in tried[::2]] == ["category[t0]+category[t1]", "category[t0]*category[t1]"]


@pytest.mark.parametrize(("count", "key"), [(MOST_WORDS, "category"), (MOST_WORDS + 1, "spectrum")])
def test_few_different_words_are_compared_word_by_word(count: int, key: str):
    words = [f"!word {k % count}" for k in range(3 * count)]
    assert module._key_for(words) == key


def test_without_rdkit_no_text_is_a_molecule(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "rdkit", None)
    assert module._key_for(["CCO"] * 50) == "category"


@pytest.mark.parametrize("n", [module.LEARNED_FROM - 1, module.LEARNED_FROM])
def test_many_rows_learn_from_a_start_of_fewer(n: int):
    assert exact_gp("se-ard", n, 1000.0).learned_start == (n == module.LEARNED_FROM)


def test_molecules_are_recognised_by_the_first_fifty():
    assert module._key_for(["CCO"] * 50 + ["not a molecule!"]) == "molecules"
    assert module._key_for(["CCO"] * 49 + ["not a molecule!"]) == "category"


def test_a_spec_has_no_more_points_or_rows_than_there_are_and_begins_with_a_theta_that_was_learned():
    candidate = Candidate("x", "g", "sgpr", "se-ard", {"num_inducing": 80, "max_epochs": 3})
    assert candidate.spec(50, 7).settings["num_inducing"] == 50
    assert candidate.spec(500, 7).settings["num_inducing"] == 80
    assert candidate.spec(50, 7).settings["max_epochs"] == 3
    assert candidate.spec(50, 7).seed == 7
    assert candidate.spec(50, 7, {"theta": [0.1, 0.2]}).kernel == {"name": "se-ard", "theta": [0.1, 0.2]}
    rows = Candidate("x", "g", "subset-of-data", "se-ard", {"num_rows": 80})
    assert rows.spec(50, 0).settings["num_rows"] == 50


def test_groups_come_first_by_cross_validation_of_groups_and_of_some_rows():
    X = torch.zeros(1, 2).expand(600, 2)
    rows = Dataset(X, X[:, 0], groups=RowGroups(torch.arange(600) // 10, are_folds=False))
    split = Split(rows, rows.rows(torch.arange(0)), "x", key="x")
    tried = candidates(split, 1000.0)
    assert [one.name for one in tried[:3]] == ["gpcv-admm, matern32-ard", "gpcv-admm, se-ard", "ml, matern32-ard"]
    few = candidates(split, 1.5)[0]
    assert few.name == "gpcv-admm, matern32-ard, 150 rows"
    drawn = few.prepared(split)
    assert len(drawn.train) == 150 == len(drawn.train.groups.number)
    assert few.prepared(split).key == drawn.key != split.key
    assert candidates(split, 1000.0)[0].prepared(split) is split


# -- lanes and held-out rows -------------------------------------------------------------------------------------------


def lane(*curve: tuple[float, float], all_rows: bool = False, group: str = EXACT) -> Lane:
    return Lane(Candidate("x", group, "ml", "se-ard", all_rows=all_rows), 0, 1e9, curve=list(curve))


def test_a_forecast_goes_on_falling_with_the_logarithm_of_time_and_never_rises():
    assert lane().forecast(9.0) == np.inf
    assert lane((1.0, 0.5)).forecast(9.0) == 0.5
    falling = lane((1.0, 9.0), (1.0, 0.5), (2.0, 0.3))
    assert falling.forecast(8.0) == pytest.approx(0.3 - 0.2 * math.log(4.0) / math.log(2.0))
    assert falling.forecast(1.0) == pytest.approx(0.3)  # no earlier than it is
    assert lane((1.0, 0.5), (2.0, 0.7)).forecast(8.0) == pytest.approx(0.7)
    assert lane((1.0, 0.5), (2.0, 0.3)).forecast(4.0) == pytest.approx(0.1)


def test_an_exact_gp_by_a_factor_is_one_that_is_not_continued_on_all_rows():
    assert lane().is_factored
    assert not lane(all_rows=True).is_factored
    assert not lane(group="inducing points").is_factored
    assert lane().learned_theta() is None
    assert lane().seconds_of_a_run == 0.0


def solved(*steps: tuple[float, float]) -> Lane:
    """A lane of a method that learns theta and then solves: seconds and theta of each record."""
    records = [
        SimpleNamespace(seconds=seconds, step=SimpleNamespace(state=SimpleNamespace(theta=torch.tensor([theta]))))
        for seconds, theta in steps
    ]
    candidate = Candidate("x", EXACT, "gbcd", "se-ard", all_rows=True)
    return Lane(candidate, 0, 1e9, runs={0: SimpleNamespace(trace=records)})  # type: ignore[dict-item]


def test_a_fit_to_all_rows_needs_the_seconds_after_learning_where_theta_is_kept():
    kept = solved((0.0, 0.1), (1.0, 0.2), (2.0, 0.3), (3.5, 0.3), (4.0, 0.3))
    assert kept.after_learning == (2, pytest.approx(2.0))
    assert least_seconds(kept) == pytest.approx(SOLVE_TIMES * 2.0)
    later = solved((0.0, 0.1), (1.0, 0.2), (2.0, 0.3), (3.0, 0.4), (4.5, 0.4))
    assert later.after_learning == (1, pytest.approx(1.5))
    learning = solved((0.0, 0.1), (1.0, 0.2), (2.0, 0.3))
    assert learning.after_learning == (0, 0.0)
    assert least_seconds(learning) == pytest.approx(REFIT_TIMES[False] * 2.0)
    assert lane().after_learning == (0, 0.0)
    assert Lane(Candidate("x", "groups", "gpcv-admm", "se-ard"), 0, 1e9).is_factored


def test_near_rows_keep_theta_for_the_seconds_of_their_longest_step():
    near = solved((0.0, 0.1), (2.0, 0.2), (2.5, 0.3), (3.0, 0.4))
    near.candidate = replace(near.candidate, group="neighbours", method="vecchia")
    near.first_run.outcome = None
    assert near.after_learning == (0, 0.0)
    near.first_run.outcome = "converged"
    assert near.after_learning == (1, pytest.approx(2.0))
    assert least_seconds(near) == pytest.approx(SOLVE_TIMES * 2.0)


@pytest.mark.parametrize("n", [FOLDS_BELOW - 1, FOLDS_BELOW])
@pytest.mark.parametrize("make", [None, lambda n: RowGroups(torch.arange(n) // 5, are_folds=False)])
def test_few_rows_are_held_out_in_folds_and_many_in_one_part(n: int, make: Callable[[int], RowGroups] | None):
    X = torch.randn(n, 2, generator=torch.Generator().manual_seed(0))
    train = Dataset(X, X[:, 0], groups=make(n) if make else None)
    splits = parts(Split(train, train, "x"), seed=3)
    assert len(splits) == (FOLDS if n < FOLDS_BELOW else 1)
    held_out = torch.cat([part.test.X for part in splits])
    assert len(held_out) == len({tuple(row) for row in held_out.tolist()})
    assert (len(held_out) == n) == (n < FOLDS_BELOW)
    for part in splits:
        assert len(part.train) + len(part.test) == n
        if make:
            assert part.test.groups is not None
            assert not set(part.train.groups.number.tolist()) & set(part.test.groups.number.tolist())
    assert [part.key for part in splits] == [part.key for part in parts(Split(train, train, "x"), seed=3)]


def test_few_rows_have_priors_in_the_units_of_the_file_and_many_have_none() -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(70, 2)) * [3.0, 1e-3], 50.0 * rng.normal(size=70)
    for n, has_priors in ((59, True), (60, False)):
        split = gpx.load((X[:n], y[:n]), split="all")
        found = candidates(split, 1.0)
        assert {own.has_priors for own in found if own.method == "ml"} == {has_priors}
        kernel = found[0].opened(split, 0).spec.kernel
        assert ("priors" in kernel) == has_priors
        if has_priors:
            modes = {name: math.exp(float(text[10:-4]) - 1.0) for name, text in kernel["priors"].items()}
            names = [f"{found[0].kernel}.lengthscale[x{k}]" for k in (0, 1)]
            assert modes == pytest.approx(
                {name: math.sqrt(2.0) * sd for name, sd in zip(names, X[:n].std(0), strict=True)}
                | {"noise": 0.3 * y[:n].std()},
                rel=1e-5,
            )


def test_a_dozen_rows_of_noise_are_not_explained_without_noise() -> None:
    """The likelihood alone is highest at the least noise for some such rows, and its bands then hold no new row."""
    free, with_priors = [], []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        split = gpx.load((rng.normal(size=(12, 3)), rng.poisson(1.5, 12).astype(float)), split="all")
        for has_priors, found in ((False, free), (True, with_priors)):
            run = Candidate("ml", EXACT, "ml", "matern32-ard", has_priors=has_priors).opened(split, 0)
            run.finish(steps=60)
            noise = next(row for row in run.hyperparameters if row.name == "noise")
            found.append(noise.value / float(split.train.y.std()))
    assert min(free) < 0.01
    assert min(with_priors) > 0.05
