"""The average of a recommendation: its weights, honest expected scores, and what people get of it."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import norm
from typer.testing import CliRunner

import gpexplorer as gpx
from gpexplorer.cli import app
from gpexplorer.errors import KernelError
from gpexplorer.posteriors import AveragePosterior, InUnits, Of
from gpexplorer.problem import RowGroups
from gpexplorer.recommendation import averaging, final_fit
from gpexplorer.recommendation.averaging import (
    averaged_scores,
    best_scores,
    gain_of_average,
    is_worthwhile,
    large_weights,
    stacking_weights,
    weights_of_blocks,
)
from gpexplorer.recommendation.candidates import Candidate
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.lanes import Lane
from gpexplorer.recommendation.result import STANDINGS, shares
from gpexplorer.recommendation.stages import TimedSearch
from gpexplorer.ui.text import MAX_LENGTH

pytestmark = pytest.mark.usefixtures("few_trees")
KERNELS = ("se[x0]", "se[x1]", "se[x2]")  # each knows a part of the function
FEW = {"evaluations": 12}  # of the likelihood: averages are the claim, and not that hyperparameters have converged
EXACT = [Candidate(f"ml, {kernel}", "exact", "ml", kernel, FEW) for kernel in KERNELS]


def waves(n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A sum of one function of each input, far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-3, 3, (n, 3))
    return X, 500.0 + np.sin(2 * X).sum(1) + 0.1 * rng.normal(size=n)


def models(t: int = 400, k: int = 3, seed: int = 0, offset: float = 0.0) -> list[RowScores]:
    """Models with errors of their own beside an error that all of them make."""
    rng = np.random.default_rng(seed)
    y, common = rng.normal(size=t), 0.3 * rng.normal(size=t)
    errors = [common + (0.5 + 0.02 * j) * rng.normal(size=t) for j in range(k)]
    return [RowScores.of(y + offset, y + error + offset, np.full(t, 0.36 + 0.02 * j)) for j, error in enumerate(errors)]


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_weights_maximise_the_density_of_the_average(offset: float) -> None:
    log_densities = np.column_stack([-own.density for own in models(offset=offset)])

    def nlpd(z: np.ndarray) -> float:
        weights = np.exp(z) / np.exp(z).sum()
        return float(-np.log((weights * np.exp(log_densities)).sum(1)).mean())

    weights = stacking_weights(log_densities)
    best = minimize(nlpd, np.zeros(3), method="Nelder-Mead", options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 5000})

    assert weights.sum() == pytest.approx(1.0)
    assert nlpd(np.log(weights)) == pytest.approx(best.fun, abs=1e-6)
    # densities may be as small as exp(-2000)
    np.testing.assert_allclose(stacking_weights(log_densities - 2000.0), weights, rtol=1e-9)


def test_scores_of_an_average_are_those_of_the_mixture(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = np.array([0.5, 0.0, 0.5])
    monkeypatch.setattr(averaging, "large_weights", lambda scores: weights)
    own = models(offset=7.0)
    result = averaged_scores(own)
    y, means = own[0].targets, np.column_stack([model.mean for model in own])
    sd = np.sqrt(np.column_stack([model.var for model in own]))
    mean = means @ weights

    np.testing.assert_allclose(result.mean, mean)
    np.testing.assert_allclose(result.squared, (y - mean) ** 2)
    np.testing.assert_allclose(result.var, (sd**2 + means**2) @ weights - mean**2, rtol=1e-9)
    np.testing.assert_allclose(result.density, -np.log(norm.pdf(y[:, None], means, sd) @ weights))
    np.testing.assert_allclose(result.probability, norm.cdf(y[:, None], means, sd) @ weights, atol=1e-15)
    np.testing.assert_array_equal(result.targets, y)


def test_a_model_that_is_best_everywhere_gets_all_of_the_weight() -> None:
    y = np.random.default_rng(0).normal(size=200)
    good, poor = RowScores.of(y, y + 0.01, np.full(200, 0.01)), RowScores.of(y, 0 * y, np.full(200, 9.0))
    np.testing.assert_array_equal(large_weights([good, poor]), [1.0, 0.0])
    np.testing.assert_array_equal(large_weights([poor, good]), [0.0, 1.0])


def test_small_weights_are_left_out_and_the_others_are_learned_again() -> None:
    scores = models(k=3)
    poor = RowScores.of(scores[0].targets, scores[0].targets + 3.0, np.full(400, 9.0))
    weights = large_weights([*scores, poor])
    assert weights[3] == 0.0
    np.testing.assert_allclose(weights[:3], large_weights(scores), atol=1e-9)
    assert weights[:3].min() >= averaging.LEAST_WEIGHT


def test_expected_scores_are_those_of_new_rows() -> None:
    """Weights of many useless models fit the rows that they are learned from, which must not count as a gain."""
    rng = np.random.default_rng(1)
    own, fresh = [], []
    for _ in range(60):
        y, new = rng.normal(size=(2, 60))
        noise, new_noise = rng.normal(size=(2, 12, 60))
        scores = [RowScores.of(y, error, np.ones(60)) for error in noise]
        new_scores = [RowScores.of(new, error, np.ones(60)) for error in new_noise]
        weights = large_weights(scores)
        mean = weights @ np.array([part.mean for part in new_scores])
        var = weights @ (1.0 + (np.array([part.mean for part in new_scores]) - mean) ** 2)
        fresh.append(RowScores.of(new, mean, var).nlpd)
        own.append(averaged_scores(scores).nlpd)
    error = np.std(np.subtract(own, fresh)) / np.sqrt(60)
    assert abs(np.mean(own) - np.mean(fresh)) < 3.0 * error + 0.02


def test_gain_compares_with_a_model_that_was_chosen_on_other_rows() -> None:
    """Of equal models the best on some rows is no better on others: the choice must not look good by its luck."""
    rng = np.random.default_rng(2)
    y = rng.normal(size=300)
    scores = [RowScores.of(y, 0.5 * rng.normal(size=300), np.full(300, 1.25)) for _ in range(20)]
    assert min(own.nlpd for own in scores) < best_scores(scores).nlpd
    lower, error = gain_of_average(scores)
    assert lower == pytest.approx(best_scores(scores).nlpd - averaged_scores(scores).nlpd)
    assert lower > 2.0 * error > 0.0


def test_an_average_needs_models_rows_and_no_clear_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = models()
    assert is_worthwhile(scores)
    assert not is_worthwhile(scores[:1])
    assert not is_worthwhile(models(t=averaging.FEWEST_ROWS - 1))
    assert is_worthwhile(models(t=averaging.FEWEST_ROWS))
    for lower, error, expected in ((-0.1, 0.11, True), (-0.1, 0.09, False), (0.0, 0.0, True)):
        monkeypatch.setattr(averaging, "gain_of_average", lambda _, pair=(lower, error): pair)
        assert is_worthwhile(scores) is expected


@pytest.fixture(scope="module")
def answer() -> gpx.Recommendation:
    return gpx.recommend(*waves(150), seconds=20.0, among=EXACT, prefer="gp")


def test_predictions_are_those_of_models_of_all_rows(answer: gpx.Recommendation) -> None:
    average = answer.average
    assert average is not None
    assert len(average.weights) >= 2
    assert list(average.weights.values()) == sorted(average.weights.values(), reverse=True)
    X, y = waves(1000, seed=1)
    mean = torch.zeros(1000, dtype=torch.float64)
    for name, weight in average.weights.items():
        run = gpx.Spec("ml", FEW, kernel=name.removeprefix("ml, ")).open(data=answer.run.split)
        assert len(run.problem.train) == 150
        run.finish()
        mean += weight * run.posterior().mean(torch.tensor(X))

    predicted = answer.predict(torch.tensor(X))

    np.testing.assert_allclose(predicted.mean, mean, rtol=1e-4)
    new = RowScores.of(y, *(part.numpy() for part in predicted))
    assert new.nlpd < RowScores.of(y, *(part.numpy() for part in answer.run.posterior(of="y")(torch.tensor(X)))).nlpd
    low, high = average.expected["nlpd"][1:]
    assert low - 0.1 < new.nlpd < high + 0.1


def test_the_answer_names_models_weights_and_gain(answer: gpx.Recommendation) -> None:
    average = answer.average
    assert average is not None
    heading, sentence = answer.sentences[0], str(answer)
    assert heading.startswith(f"Use the average of {len(average.weights)} models")
    for name, weight in average.weights.items():
        assert f"{100 * weight:.0f} % of {name}" in heading
    assert f"{abs(average.gain[0]):.2g} nats" in sentence
    inside = np.abs(average.scores.probability - 0.5) <= 0.475  # of a mixture, which is not normal
    assert f"{100 * inside.mean():.0f} % of these rows lie in their 95 % interval" in sentence
    assert max(map(len, answer.sentences)) <= MAX_LENGTH  # longer ones are cut on the page
    row = answer.table.set_index("model").loc[f"average of {len(average.weights)} models"]
    assert row["nlpd"] == pytest.approx(average.expected["nlpd"].value)
    assert row["held_out"] == 150
    assert answer.spec.method == "ml"
    assert row["sentence"].startswith(f"The answer: {100 * next(iter(average.weights.values())):.0f} % of ")
    (chosen,) = (text for text in answer.table["sentence"] if text.startswith(tuple(f"The {own}" for own in STANDINGS)))
    assert f"Of single models, the {chosen[4:-1]} is ml" in sentence
    simple = answer.table[answer.table["sentence"] == "A simple model."]["nlpd"].min()
    beaten = "A simple model is better" in str(answer)  # than the average, which predicts
    assert beaten == (simple < average.expected["nlpd"].value)
    assert "average" in answer._repr_html_()


def test_of_many_models_the_smallest_are_added_up(answer: gpx.Recommendation) -> None:
    assert answer.average is not None
    weights = {"a": 0.4, "b": 0.3, "c": 0.15, "d": 0.1, "e": 0.05}
    assert shares(replace(answer.average, weights=weights)) == "40 % of a; 30 % of b; 15 % of c and 15 % of 2 others"
    del weights["e"]
    assert shares(replace(answer.average, weights=weights)) == "40 % of a; 30 % of b; 15 % of c and 10 % of d"


def test_lanes_that_were_given_up_early_are_completed_on_all_held_out_rows(answer: gpx.Recommendation) -> None:
    table = answer.table.set_index("model")
    assert (table["held_out"] == 150).all()
    assert (table.loc[[candidate.name for candidate in EXACT], "sentence"] != "").all()


def test_without_time_left_the_models_of_the_search_are_averaged() -> None:
    """Each look at the clock costs half a second."""
    ticks = itertools.count()
    answer = gpx.recommend(*waves(150), seconds=12.0, among=EXACT, prefer="gp", clock=lambda: 0.5 * next(ticks))
    average = answer.average
    assert average is not None
    X, y = waves(400, seed=1)
    names, of_parts = list(average.weights), iter(zip(average.posterior.weights, average.posterior.parts, strict=True))
    for name in names:
        parts = [next(of_parts) for _ in range(1 if answer.refitted and name == f"ml, {answer.kernel}" else 3)]
        assert sum(weight for weight, _ in parts) == pytest.approx(average.weights[name])
        assert len({float(part.mean(torch.tensor(X[:1]))) for _, part in parts}) == len(parts)  # of other rows each
    assert next(of_parts, None) is None
    new = RowScores.of(y, *(part.numpy() for part in answer.predict(torch.tensor(X))))
    assert new.nlpd < average.expected["nlpd"].high + 0.1


def test_a_request_to_stop_gives_no_average() -> None:
    stopped = []

    def on_progress(progress: gpx.recommendation.Progress) -> None:
        stopped.append("to all" in progress.sentence)

    answer = gpx.recommend(
        *waves(150), seconds=20.0, among=EXACT, prefer="gp", on_progress=on_progress, should_stop=lambda: any(stopped)
    )
    assert answer.average is None


def test_a_model_whose_distribution_cannot_be_computed_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = gpx.Run.posterior

    def posterior(self: gpx.Run, at: int = -1, of: Of = "f") -> InUnits:
        if len(self.problem.train) == 150 and self.problem.kernel.key == "se[x2]":
            raise KernelError("K_mm is not positive definite.")
        return whole(self, at, of)

    monkeypatch.setattr(gpx.Run, "posterior", posterior)
    answer = gpx.recommend(*waves(150, seed=1), seconds=20.0, among=EXACT, prefer="gp")
    assert answer.average is not None
    assert set(answer.average.weights) == {"ml, se[x0]", "ml, se[x1]"}
    assert sum(answer.average.weights.values()) == pytest.approx(1.0)


def test_a_model_that_fails_on_all_rows_is_averaged_as_the_search_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = averaging.refit_to_all_rows

    def refit(search: TimedSearch, lane: Lane, end: float) -> tuple[gpx.Run, str]:
        run, note = whole(search, lane, end)
        return run, note or ("failed" if lane.candidate.kernel == "se[x2]" else "")

    monkeypatch.setattr(averaging, "refit_to_all_rows", refit)
    answer = gpx.recommend(*waves(150, seed=1), seconds=20.0, among=EXACT, prefer="gp")
    assert answer.average is not None
    assert len(answer.average.weights) == 3
    assert len(answer.average.posterior.parts) == 2 + 3


def test_models_with_larger_weights_are_fitted_first() -> None:
    seen: list[str] = []
    answer = gpx.recommend(
        *waves(150, seed=1),
        seconds=20.0,
        among=EXACT,
        prefer="gp",
        on_progress=lambda progress: seen.append(progress.sentence),
    )
    assert answer.average is not None
    others = [name for name in answer.average.weights if name != f"ml, {answer.kernel}"]
    assert len(others) == 2
    assert [text for text in seen if "to all" in text][1:] == [f"Fitting {name} to all 150 rows." for name in others]


def test_with_many_rows_the_models_of_the_search_are_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(final_fit, "REFIT_UP_TO", 0)
    several = [
        Candidate(f"cholqr, {kernel}", "inducing points", "cholqr", kernel, {"num_inducing": 12, "max_epochs": 1})
        for kernel in KERNELS
    ]
    X, y = waves(1200)
    answer = gpx.recommend(X, y, seconds=6.0, among=several)
    assert not answer.refitted
    average = answer.average
    assert average is not None
    assert isinstance(answer.posterior, AveragePosterior)
    assert all(len(part.mean(torch.tensor(X[:3]))) == 3 for part in average.posterior.parts)
    held_out = answer.table["held_out"].dropna().unique()
    assert held_out.tolist() == [200]


def test_the_command_saves_the_average_and_says_so(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (160, 3))
    y = np.sign(X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=160)  # no kernel describes the jump
    path, model, out = tmp_path / "mine.csv", tmp_path / "model.safetensors", tmp_path / "spec.json"
    pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "price": y}).to_csv(path, index=False)

    arguments = [
        "recommend",
        str(path),
        "--seconds",
        "12",
        "--prefer",
        "rmse",
        "--json",
        "--model",
        str(model),
        "--out",
        str(out),
    ]
    result = CliRunner().invoke(app, arguments)

    assert result.exit_code == 0, result.output
    answer = json.loads(result.stdout)
    assert sum(answer["average"]["weights"].values()) == pytest.approx(1.0)
    assert set(answer["average"]["expected"]) == {"rmse", "smse", "nlpd"}
    posterior = gpx.load_posterior(model)
    assert isinstance(posterior, AveragePosterior)
    weights, shares = (np.cumsum(list(own)) for own in (answer["average"]["weights"].values(), posterior.weights))
    assert (
        np.isclose(shares[:, None], weights).any(0).all()
    )  # models of the search share the weight of one not refitted
    assert np.square(posterior.mean(torch.tensor(X)).numpy() - y).mean() < 0.2
    assert gpx.Spec.from_json(out.read_text()).method == answer["method"]


def in_blocks(errors: list[float], sd: float, each: int = 50) -> RowScores:
    """A model with its own error in each of four runs of 50 rows, which are divided into blocks of so many rows."""
    y, run = np.random.default_rng(0).normal(size=200), np.arange(200) // 50
    groups = RowGroups(torch.arange(200) // each, are_folds=False)
    return RowScores.of(y, y + np.array(errors)[run], np.full(200, sd**2), groups)


def test_weights_by_few_blocks_are_the_probabilities_of_being_the_best() -> None:
    means = np.array([[-1.0, -1.3, -4.0], [-1.2, -0.9, -4.5], [-0.8, -1.0, -3.0], [-1.1, -2.4, -4.0]])  # [G, k]
    block = np.repeat([3, 5, 8, 13], [10, 40, 20, 30])
    weights = weights_of_blocks(np.repeat(means, [10, 40, 20, 30], axis=0), block)

    random, total = np.random.default_rng(1), np.zeros(3)
    for _ in range(20_000):
        share = random.gamma(1.0, size=4)
        odds = np.exp(4.0 * (share / share.sum()) @ means)
        total += odds / odds.sum()
    np.testing.assert_allclose(weights, total / 20_000, atol=0.01)
    more_rows = np.repeat(means, [100, 4, 2, 300], axis=0)
    np.testing.assert_allclose(weights_of_blocks(more_rows, np.repeat(np.arange(4), [100, 4, 2, 300])), weights)


def test_few_blocks_of_time_never_choose_one_model_that_may_fail_in_the_next() -> None:
    steady, lucky = ([0.1] * 4, 0.4), ([0.1, 0.1, 0.1, 0.9], 0.2)  # in three of four blocks the second is better
    few = [in_blocks(*steady), in_blocks(*lucky)]
    assert is_worthwhile(few)
    assert 0.1 < large_weights(few)[0] < 0.9
    alone = stacking_weights(np.column_stack([-own.density for own in few]))
    many = [in_blocks(*steady, each=5), in_blocks(*lucky, each=5)]  # 40 blocks are enough for stacking
    np.testing.assert_allclose(large_weights(many), alone)
    clear = large_weights([in_blocks(*steady), in_blocks([5.0, 4.0, 6.0, 5.0], 1.0)])
    assert clear.tolist() == [1.0, 0.0]
