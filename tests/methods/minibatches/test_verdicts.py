"""What the outcome of a minibatch method says of the theta at its end: is it stationary, is it better than ridge?"""

from __future__ import annotations

import re

import pytest
import torch

from gpexplorer.methods.minibatches import loop
from gpexplorer.methods.minibatches.held_out_refit import ridge_error
from gpexplorer.methods.minibatches.model import Model
from oracles_minibatches import method, problem
from whole_run import finished

SMALL = {"batch_size": 8, "rate": 0.03, "minibatches": 2, "refit": "none"}


def test_the_outcome_says_whether_the_gradient_is_within_its_standard_error():
    """Exact moves reach a stationary point; the likelihood of minibatches alone has its own elsewhere."""
    at = problem(n=400, d=2, noise=0.3)
    shared = {"layers": 0, "kernel": "gaussian", "rate": 0.05, "minibatches": 1000, "evaluate_every": 1000}
    verdicts = {}
    for key, settings in (("full-batch", {"epochs": 200}), ("bsgd", {"epochs": 8, "batch_size": 4})):
        _, outcome = finished(method(key, **shared, **settings), at)
        number = re.search(
            r"The gradient of the NLML is ([0-9.e+-]+) of its standard error: ([a-z ]+)\.", outcome.message
        )
        assert number is not None
        verdicts[key] = (float(number[1]), number[2])
    assert verdicts["full-batch"][0] < 0.2
    assert verdicts["full-batch"][1] == "stationary"
    assert verdicts["bsgd"][0] > 1.0
    assert verdicts["bsgd"][1] == "not stationary"


@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_ridge_on_the_same_rows_is_that_of_centred_columns(shift: float):
    at = problem(n=60, shift=shift)
    feature_map = Model(method("scgd", **SMALL, validation=0.25), at, 0.25)
    X, y = feature_map.rows(slice(None))
    X_test, y_test = feature_map.validation()
    centred, mean = X - X.mean(0), y.mean()
    coefficients = torch.linalg.solve(centred.T @ centred + torch.eye(3, dtype=X.dtype), centred.T @ (y - mean))
    expected = (X_test - X.mean(0)) @ coefficients + mean - y_test

    assert ridge_error(feature_map) == pytest.approx(float(expected.square().mean().sqrt()), rel=1e-9)


@pytest.mark.parametrize(("key", "is_stationary"), [("full-batch", True), ("bsgd", False)])
def test_an_error_that_no_longer_improves_is_convergence_only_where_the_gradient_is_small(
    key: str, is_stationary: bool
):
    """Minibatches of four rows rest where the gradient of all rows is not small."""
    at = problem(n=400, d=2, noise=0.3)
    settings = {"layers": 0, "kernel": "gaussian", "minibatches": 1000, "validation": 0.25, "patience": 3}
    settings |= {"batch_size": 4} if key == "bsgd" else {}

    _, outcome = finished(method(key, **settings, rate=0.05, epochs=300, refit="none"), at)

    assert "did not improve in 3 evaluations" in outcome.message
    assert (": stationary." in outcome.message) == is_stationary
    assert outcome.reason == ("converged" if is_stationary else "budget")
    assert ("raise patience" in outcome.message) != is_stationary


def test_ridge_and_features_are_compared_on_the_rows_of_all_parts(monkeypatch: pytest.MonkeyPatch):
    errors = iter([3.0, 4.0])  # on the first part ridge errs more, on both together less
    learned = iter([2.0, 6.0])
    monkeypatch.setattr(loop, "ridge_error", lambda _: next(errors))
    monkeypatch.setattr(loop, "validation_error", lambda *_: next(learned, 1.0))
    at = problem(n=60)
    algorithm = method("scgd", **(SMALL | {"refit": "held-out"}), validation=0.2, epochs=1, folds=2)
    model = Model(algorithm, at, 0.2)
    start = model.start()
    state = loop.MinibatchState(0, "fold", 1, start, start.new_zeros(model.D), (), (), 0.1)
    state = state._replace(best_theta=start, best_w=state.w, fold_thetas=(start.clone(),))

    after, _ = algorithm._finish(at, model, state)

    rows = 2 * len(model.validation_rows)
    assert f"On the {rows} rows set aside, ridge regression errs by 3.536 and these features by 4.472" in after.remark


def test_the_outcome_says_where_ridge_explains_as_much(monkeypatch: pytest.MonkeyPatch):
    at = problem(n=60, noise=1.0)
    algorithm = method("scgd", **SMALL, validation=0.3, epochs=2)
    for error, is_said in ((1e-3, True), (1e3, False)):
        monkeypatch.setattr(loop, "ridge_error", lambda _, error=error: error)
        _, outcome = finished(algorithm, at)
        assert (f"ridge regression errs by {error:.4g} and" in outcome.message) == is_said
