"""One number for a search: on held-out training rows, with records reported on the way."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import KFold

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.recommendation import held_out_score

SPEC = gpx.Spec("random", {"num_inducing": 5}, budget={"steps": 3})


def waves(shift=0.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (60, 1))
    return X + shift, np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=60) + shift


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_score_is_that_of_all_held_out_rows_by_dense_hands(shift):
    X, y = waves(shift)
    train = gpx.load((X, y)).train
    rows = train.X.numpy(), train.y.numpy()
    squared, density = np.zeros(len(train)), np.zeros(len(train))
    for fit, validation in KFold(3).split(rows[0]):
        model = gpx.Estimator("cholesky", "matern32").fit(rows[0][fit], rows[1][fit])
        mean, sd = model.predict(rows[0][validation], return_std=True)
        squared[validation] = (rows[1][validation] - mean) ** 2
        density[validation] = 0.5 * np.log(2 * np.pi * sd**2) + 0.5 * squared[validation] / sd**2

    exact = gpx.Spec("cholesky", budget={"steps": 100})
    score = {
        metric: held_out_score(exact, {"kernel": "matern32"}, metric=metric, data=(X, y), folds=KFold(3))
        for metric in ("smse", "nlpd")
    }

    assert score["smse"] == pytest.approx(squared.mean() / rows[1].var(), rel=1e-6)
    assert score["nlpd"] == pytest.approx(density.mean(), rel=1e-6)


def test_a_search_that_ends_a_trial_gets_its_own_error():
    class Pruned(Exception): ...

    seen = []

    def report(score, step):
        seen.append(step)
        if step == 1:
            raise Pruned

    with pytest.raises(Pruned):
        held_out_score(SPEC, data=waves(), report=report)
    assert seen == [0, 1]


@pytest.mark.parametrize(
    ("values", "options", "sentence"),
    [
        ({"num_inducnig": 3}, {}, "did you mean 'num_inducing'"),
        ({"budget": {}}, {}, "has no budget"),
        ({}, {"metric": "rmse"}, "give one of nlpd, smse"),
    ],
)
def test_what_cannot_be_scored_is_refused(values, options, sentence):
    with pytest.raises(SettingError, match=sentence):
        held_out_score(SPEC, values, data=waves(), **options)


def test_a_search_on_a_table_in_memory_predicts_the_target_of_its_spec():
    frame = pd.DataFrame({"x": np.linspace(-2.0, 2.0, 60), "y": np.linspace(-2.0, 2.0, 60) ** 2, "last": 1.0})
    frame["last"] = np.random.default_rng(0).normal(size=60)
    named = {"name": "mine", "target": "y", "drop": ["last"]}
    spec = gpx.Spec("ml", data=named, kernel="se", budget={"steps": 5})
    assert held_out_score(spec, metric="smse", data=frame) < 0.05
