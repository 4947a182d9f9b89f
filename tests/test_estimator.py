"""The scikit-learn face: its own checks, and that it answers what a run answers."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator

import gpexplorer as gpx
from gpexplorer import Estimator
from gpexplorer.errors import NotPositiveDefinite, SettingError
from gpexplorer.estimator.parameters import sized_settings
from gpexplorer.estimator.training_rows import all_for_training
from gpexplorer.methods.base import registry
from gpexplorer.runs.studies import machine_speed
from gpexplorer.runs.studies.machine_speed import points_without_time
from toy_method import Toy

pytestmark = pytest.mark.long
# A row of weight 2 is not two rows where rows are drawn at random and standardised; tests/test_row_noise.py compares
# weights with dense algebra instead.
LEFT_OUT = ("array_api", "check_sample_weight_equivalence")
CHECKS = [
    check
    for _, check in estimator_checks_generator(Estimator())
    if not any(name in check.func.__name__ for name in LEFT_OUT)
]

# What asks how well a fit predicts. All others ask for shapes, names, errors and answers that are the same in two ways:
# the first of the 200 to 250 steps of a whole fit show them as well. Sixty fit well enough for the check, which comes
# three times: one whole fit of rows as they are, and shorter ones of transformed targets and of rows on disk or in
# single precision, which differ before the first step.
FITTED = "check_regressors_train"


@pytest.mark.parametrize("transform", ["", "yeo-johnson"])
@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.func.__name__))
def test_scikit_learns_own_checks(check: Callable[[Any], None], transform: str):
    is_fitted = check.func.__name__ == FITTED
    is_whole = is_fitted and not transform and not check.keywords
    budget = None if is_whole else {"steps": 60 if is_fitted else 12}
    check(Estimator(budget=budget, target_transform=transform))


def rows(n: int = 120, shift: float = 0.0, scale: float = 1.0) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(1)
    X = rng.uniform(-2, 2, (n, 2))
    y = np.sin(2 * X[:, 0]) + 0.3 * X[:, 1] + 0.1 * rng.standard_normal(n)
    return scale * X - shift, scale * y + shift


@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (4e3, 30.0)])
def test_it_learns_and_knows_how_well(shift: float, scale: float):
    X, y = rows(240, shift, scale)
    model = Estimator(num_inducing=24).fit(X[:120], y[:120])

    mean, sd = model.predict(X[120:], return_std=True)

    assert model.score(X[120:], y[120:]) > 0.95
    assert 0.07 * scale < np.median(sd) < 0.14 * scale  # the noise of y, sd 0.1, is in it
    assert 0.6 < np.mean(np.abs(y[120:] - mean) < sd) < 0.76
    assert np.array_equal(model.predict(X[120:]), mean)
    far = model.predict(X[:1] + 100 * scale, return_std=True)
    assert far[1][0] > 5 * np.median(sd)


def test_it_is_the_run_of_a_spec():
    X, y = rows()
    model = Estimator(num_inducing=8, settings={"objective": "pp"}, budget={"steps": 5}, random_state=3).fit(X, y)

    spec = model.run_.spec

    assert (spec.seed, spec.settings["objective"], spec.settings["num_inducing"]) == (3, "pp", 8)
    assert model.run_.done == 5
    assert model.theta_.tolist() == model.run_.trace[-1].step.state.theta.tolist()
    assert model.n_features_in_ == 2
    assert np.array_equal(model.predict(X), model.run_.posterior(of="y")(X).mean.numpy())


def test_the_number_of_points_uses_the_rows_and_the_time(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(machine_speed, "machine", lambda: machine_speed.Speed(4e10, 1e10, 1e-5))
    small, budget = rows(9), {"steps": 1}
    assert Estimator(budget=budget).fit(*small).run_.spec.settings["num_inducing"] == 9
    assert [points_without_time(n) for n in (100, 1000, 15_642, 10**6)] == [100, 128, 256, 512]
    X, y = rows(1000)
    for seconds, points in ((1e-4, 64), (0.5, 128), (10.0, 512), (120.0, 1000)):
        spec = Estimator(budget={"seconds": seconds, "steps": 0})._spec(all_for_training(X, y, ()).train, "se-ard", 0)
        assert spec.settings["num_inducing"] == points
    assert Estimator("scgd", budget=budget).fit(*small).run_.spec.method == "scgd"


def test_points_move_where_their_number_is_chosen_and_a_kernel_has_a_gradient():
    X, y = rows(200)
    train = all_for_training(X, y, ()).train

    def settings(
        changes: dict[str, Any], m: Any = "auto", kernel: Any = "se-ard", key: str = "cholqr"
    ) -> dict[str, Any]:
        return sized_settings(changes, m, registry[key], train, kernel, {})

    assert settings({}) == {"num_inducing": 128, "polish": 100, "max_epochs": 3}
    timed = sized_settings({}, "auto", registry["cholqr"], train, "se", {"seconds": 1e-4})
    assert timed == {"num_inducing": 64, "polish": 1000, "max_epochs": 1}
    assert settings({"polish": 0}) == {"num_inducing": 128, "polish": 0}
    assert settings({"max_epochs": 7})["max_epochs"] == 7
    assert settings({"gap": 5.0}) == {"gap": 5.0, "num_inducing": "auto"}
    for unchanged in (settings({}, 20), settings({}, key="sgpr"), settings({}, kernel={"name": "histogram"})):
        assert list(unchanged) == ["num_inducing"]
    small = Estimator().fit(*rows(60))  # every row is an inducing point
    assert small.run_.spec.settings["polish"] == 0


def test_the_default_fit_ends_with_points_between_the_rows_and_predicts_as_a_dense_gp():
    X, y = rows(200)
    model = Estimator(settings={"num_inducing": 20}).fit(X[:150], y[:150])

    distance = np.abs(model.inducing_points_[:, None] - X[None, :150]).sum(-1).min(1)
    exact = Estimator("cholesky").fit(X[:150], y[:150])

    assert model.run_.trace[-1].step.state.phase == "polish"
    assert np.median(distance) > 1e-3
    assert np.abs(model.predict(X[150:]) - exact.predict(X[150:])).max() < 0.2
    assert model.score(X[150:], y[150:]) > 0.95


def test_more_inducing_points_than_rows_are_as_many_as_rows():
    X, y = rows(9)

    assert Estimator(num_inducing=50).fit(X, y).run_.spec.settings["num_inducing"] == 9
    assert Estimator(num_inducing=None).fit(X, y).run_.spec.settings["num_inducing"] == 0  # chosen from n


def test_a_pickled_model_predicts_and_continues_the_same():
    X, y = rows(60)
    model = Estimator(num_inducing=8, budget={"steps": 4}, keep_run=True).fit(X, y)

    unpickled = pickle.loads(pickle.dumps(model))

    assert np.array_equal(unpickled.predict(X), model.predict(X))
    assert unpickled.run_.fork().finish(steps=6).reason == model.run_.fork().finish(steps=6).reason == "budget"


def test_tensors_are_arrays_whether_they_are_sparse_or_have_a_gradient():
    X = torch.rand(40, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X = torch.where(X < 0.2, 0.0, X)
    y, weights = X.sum(1), 0.5 + X[:, 0]
    model = Estimator("ml", budget={"steps": 5}).fit(X.numpy(), y.numpy(), sample_weight=weights.numpy())
    for one, other in ((X.clone().requires_grad_(), y + 0.0), (X.to_sparse(), y)):
        leaf = one if one.requires_grad else y.clone().requires_grad_()
        same = Estimator("ml", budget={"steps": 5}).fit(
            one, other + 0.0 * leaf.sum(), sample_weight=weights + 0.0 * leaf.sum()
        )
        assert same.predict(one).tolist() == model.predict(X.numpy()).tolist()
        assert same.score(one, other) == model.score(X.numpy(), y.numpy())


def test_names_of_columns_are_kept():
    X, y = rows(40)
    frame = pd.DataFrame(X, columns=["east", "north"])
    model = Estimator(num_inducing=5, budget={"steps": 3}).fit(frame, y)

    assert model.feature_names_in_.tolist() == ["east", "north"]
    assert model.run_.problem.train.names == ("east", "north")


@pytest.mark.parametrize("form", ["array", "frame", "frame with words", "frame with dates", "objects", "Arrow"])
def test_numbers_that_may_be_gaps_are_a_question_as_in_a_file(form: str, tmp_path: Path):
    random = np.random.default_rng(2)
    level, share, y = random.uniform(10, 20, 60).round(3), random.uniform(0, 1, 60).round(3), random.normal(size=60)
    level[::15], share[7], y[[3, 50]] = -999.0, 1e20, -9999.0
    frame = pd.DataFrame({"level": level, "share": share, "depth": random.uniform(-999.0, 0.0, 60)})
    frame.loc[4, "depth"] = -999.0  # among others that are near it
    frame.loc[[5, 6, 9], "depth"] = -99.0
    frame.assign(y=y).to_csv(tmp_path / "rows.csv", index=False)
    asked = [note.partition("\n")[0] for note in gpx.load(tmp_path / "rows.csv").notes if "stand for" in note]
    assert [sentence.partition(" ")[0] for sentence in asked] == ['"level"', '"share"', '"y"']

    days = pd.date_range("2020-01-01", periods=60).to_series(index=frame.index)
    days[8] = pd.Timestamp("2262-01-01")
    X = {
        "array": frame.to_numpy(), "frame": frame, "objects": frame.astype(object),
        "frame with words": frame.assign(colour=["red", "blue"] * 30),
        "frame with dates": frame.assign(day=days), "Arrow": pa.table(frame),
    }[form]  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = Estimator(num_inducing=5, budget={"steps": 1}).fit(X, y)
    said = [str(one.message) for one in caught]
    if form == "array":
        asked = [sentence.replace("level", "x0").replace("share", "x1") for sentence in asked]
    assert [f"{sentence.partition('? ')[0]}?" for sentence in said] == asked
    ways = ["a DataFrame with NaN" if form == "array" else "give NaN"] * 2 + ["leave out"]
    assert all(way in sentence for way, sentence in zip(ways, said, strict=True))
    assert {one.filename for one in caught} == {__file__}
    assert len(model.run_.problem.train) == 60  # a question, not an error
    gaps = frame.replace({"level": {-999.0: np.nan}, "share": {1e20: np.nan}})
    Estimator(num_inducing=5, budget={"steps": 1}).fit(gaps, np.where(y < -9.0, 0.0, y))  # warnings are errors
    Estimator(num_inducing=5, budget={"steps": 1}).fit(gaps[["depth"]], share > 0.5)


def test_it_searches_and_pipes():
    X, y = rows(60)
    model = Estimator(num_inducing=8, budget={"steps": 12})
    search = GridSearchCV(make_pipeline(StandardScaler(), model), {"estimator__kernel": ["linear", "se"]}, cv=3)

    search.fit(X, y)

    assert search.best_params_ == {"estimator__kernel": "se"}
    assert clone(model).get_params() == model.get_params()


def test_a_random_state_is_drawn_from_and_none_is_zero():
    X, y = rows(30)
    seeds = [
        Estimator(num_inducing=4, budget={"steps": 1}, random_state=state).fit(X, y).run_.spec.seed
        for state in (None, 7, np.random.RandomState(0), np.random.RandomState(0))
    ]

    assert seeds[:2] == [0, 7]
    assert seeds[2] == seeds[3] > 7


def test_what_cannot_be_fitted_is_raised(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(registry, "toy", Toy)
    X, y = rows(30)

    with pytest.raises(NotPositiveDefinite):
        Estimator("toy", settings={"fault": "known"}).fit(X, y)
    with pytest.raises(SettingError, match="num_inducing is -1"):
        Estimator(num_inducing=-1).fit(X, y)
    with pytest.raises(SettingError, match="Method 'svm' is not known"):
        Estimator("svm").fit(X, y)
