"""The facts of an answer in words: rows with a noise of their own, logarithms, widened bands, and both promises."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import t as student_t

from gpexplorer.data import Split
from gpexplorer.data.quoting import about
from gpexplorer.errors import GPExplorerError
from gpexplorer.posteriors import NormalMarginals, Widening
from gpexplorer.problem import Dataset
from gpexplorer.recommendation import horizon_widening, relevance_pursuit, result
from gpexplorer.recommendation.held_out import RowScores
from gpexplorer.recommendation.horizon_widening import (
    FoldErrors,
    errors_after,
    learned_widening,
    scores_of_parts,
    widening_in_words,
)
from gpexplorer.recommendation.promises import promise
from gpexplorer.recommendation.relevance_pursuit import Pursued
from gpexplorer.recommendation.row_order import Plan
from search_by_hand import Y, lane, scores, split_of


@pytest.mark.parametrize(
    ("rows", "names"),
    [
        ([0], "1 row (1) has a noise of its own"),
        (range(8), "8 rows (1, 2, 3, 4, 5, 6, 7, 8) have a noise of their own"),
        (range(999, 1008), "1,007, ...) have a noise of their own"),
    ],
)
def test_rows_with_a_noise_of_their_own_are_named_and_the_error_is_that_of_the_others(
    monkeypatch: pytest.MonkeyPatch, rows: Any, names: str
):
    pursued = Pursued(np.array(list(rows)), torch.ones(2000), sd=2.0)
    monkeypatch.setattr(result, "pursuit", lambda *_: pursued)
    errors = np.array([0.3] * 50 + [0.99] * 8 + [1.0, 7.0])
    own, predicting = lane(candidate={"pursues": True}), RowScores.of(Y, Y + errors, np.ones(60))

    (words,) = result._pursued_in_words(split_of(9), own, predicting)

    assert names in words
    assert f"In {own.name}, " in words
    assert "with a standard deviation of 2, and so" in words
    rmse, them = np.sqrt(np.square(errors[:58]).mean()), "it" if len(rows) == 1 else "them"
    assert f"On the 58 held-out rows that are not like {them} the error (RMSE) of this answer is {rmse:.3g}." in words
    assert result._pursued_in_words(split_of(9), lane(), predicting) == ()
    pursued = Pursued(np.array([], dtype=int), torch.ones(2000), 0.0)
    assert result._pursued_in_words(split_of(9), own, predicting) == ()


@pytest.mark.parametrize(("logs", "words"), [([0.0, 0.5], '"x1" has a long tail'), ([0.5, 0.5], "have long tails")])
def test_inputs_that_are_taken_as_logarithms_are_named(logs: list[float], words: str):
    own = lane(candidate={"input_transform": "log"})
    scale = SimpleNamespace(x_log=torch.tensor(logs))
    own.runs = {0: SimpleNamespace(problem=SimpleNamespace(train=SimpleNamespace(scale=scale)))}  # type: ignore[dict-item]
    train = Dataset(torch.zeros(3, 2), torch.zeros(3), ("x0", "x1"))
    assert words in " ".join(result._logarithms(own, train))
    scale.x_log = None
    assert result._logarithms(own, train) == ()


def test_a_promise_says_both_errors_and_which_one_is_needed():
    train = Dataset(torch.zeros(60, 1), torch.zeros(60), ("day",), "sales")
    own, between = scores(2.0), scores(0.5)
    for kind, beyond, need in (("time", "after the last row", "To forecast you need the second"),
                               ("groups", "for new groups", "you need the second")):  # fmt: skip
        plan = Plan(kind, sentence="Why.")
        first, words, third = promise(own, train, plan, between)
        _, low, high = own.interval("rmse")
        assert first == "Why."
        ends = f"(95 % interval {about(low)} to {about(high)}, from 60 held-out rows)"
        assert f'in the units of "sales": 0.5 {plan.between}; 2 {beyond} {ends}.' in words
        assert need in words
        assert third.startswith("The second is SMSE ")
        _, words, third = promise(own, train, plan, None)
        assert f'in the units of "sales": 2 {beyond} {ends}.' in words
        assert "second" not in words
        assert third.startswith("That is SMSE ")


# -- forecasts ---------------------------------------------------------------------------------------------------------


def test_dependent_residuals_are_worth_fewer_than_there_are():
    def share(z: list[float]) -> float:
        return FoldErrors(np.arange(float(len(z))), np.array(z)).independent_share

    assert share([1.0, -1.0, 1.0, -1.0]) == 1.0  # a negative correlation counts as none
    assert share([1.0, 1.0, -1.0, 1.0, 1.0, 1.0]) == pytest.approx((1 - 1 / 6) / (1 + 1 / 6))
    assert share([1.0] * 50) == pytest.approx(1 / 50, abs=0.01)
    assert share([0.0, 0.0]) == 1.0
    assert share([]) == 1.0


def test_factors_do_not_depend_on_the_unit_of_time():
    rng = np.random.default_rng(0)
    folds = [FoldErrors(np.arange(1.0, 41.0), (1.0 + k) * rng.standard_normal(40)) for k in range(2)]
    horizons, factors = learned_widening(folds)
    short = [own._replace(horizon=1e-6 * own.horizon) for own in folds]
    assert learned_widening(short)[1] == pytest.approx(factors)
    assert learned_widening(short)[0] == pytest.approx(tuple(1e-6 * each for each in horizons))
    assert learned_widening([FoldErrors(np.zeros(9), np.ones(9))]) == ((), ())


def test_each_range_of_horizons_has_the_scale_of_its_own_errors():
    horizon = np.arange(1.0, 81.0)
    z = np.where(horizon > 40, 3.0, 1.0) * np.resize([1.0, -1.0], 80)  # of no correlation from one row to the next

    horizons, factors = learned_widening([FoldErrors(horizon, z)])

    ranges = [(0, 10), (10, 20), (20, 40), (40, 80)]  # shares of the largest horizon
    assert horizons == pytest.approx([*((low + 1 + high) / 2 for low, high in ranges), 80.0])
    widest = (4.0 + 40 * 9.0) / (4.0 + 40) * (student_t.ppf(0.975, 4.0 + 40) / 1.959964) ** 2
    assert factors[-2] == pytest.approx(widest, rel=0.01)
    assert 1.0 < factors[0] == factors[1] == factors[2] < 1.6  # whose few residuals are those of the model


def fold(first: float, count: int) -> Split:
    """Rows up to a moment, and rows after it, the last one first."""
    past = torch.arange(first - 9, first + 1)[:, None].double()
    later = (first + torch.arange(count, 0, -1)[:, None]).double()
    return Split(Dataset(past, past[:, 0], ("day",)), Dataset(later, torch.zeros(count).double(), ("day",)), "fold")


def test_the_errors_of_a_fold_are_in_the_order_of_their_horizon():
    part = fold(100.0, 3)
    found = errors_after(
        part, NormalMarginals(torch.tensor([3.0, 2.0, 1.0]).double(), torch.full((3,), 4.0).double()), "day"
    )
    assert found.horizon.tolist() == [1.0, 2.0, 3.0]
    assert found.z.tolist() == [-0.5, -1.0, -1.5]
    far = errors_after(part, NormalMarginals(torch.full((3,), 1e9).double(), torch.ones(3).double()), "day")
    assert far.z.tolist() == [-1e3] * 3


def test_each_fold_is_widened_by_the_factors_of_the_others_and_new_rows_by_those_of_all(
    monkeypatch: pytest.MonkeyPatch,
):
    parts = [fold(100.0, 4), fold(200.0, 4)]
    marginals = [NormalMarginals(torch.zeros(4).double(), torch.ones(4).double()) for _ in parts]
    asked: list[list[float]] = []

    def learned(folds: Any) -> Any:
        asked.append([float(own.horizon[-1]) for own in folds])
        return (2.0,), (9.0,)

    monkeypatch.setattr(horizon_widening, "learned_widening", learned)
    own, widening = scores_of_parts(parts, marginals, "day")  # type: ignore[arg-type]
    assert asked == [[4.0, 4.0], [4.0], [4.0]]
    assert widening == Widening("day", 100.0, (2.0,), (9.0,))
    assert own.var[:4].tolist() == pytest.approx(own.var[4:].tolist())
    factors = Widening("day", 100.0, (2.0,), (9.0,)).at(torch.tensor([104.0, 103.0, 102.0, 101.0]).double())
    assert own.var[:4].tolist() == pytest.approx(factors.tolist())
    plain, none = scores_of_parts(parts, marginals, "")  # type: ignore[arg-type]
    assert none is None
    assert plain.var.tolist() == [1.0] * 8


def test_the_widening_is_in_standard_deviations_at_the_first_and_the_last_horizon():
    few, much = Widening("day", 9.0, (1.0, 4.0), (2.56, 4.0)), Widening("day", 9.0, (2.0, 5000.0), (2.25, 9.0))
    (words,) = widening_in_words([few, None, much])
    assert 'multiplied by up to 1.5 at 2 and 3 at 5,000 units of "day" ahead' in words
    (words,) = widening_in_words([few])
    assert "multiplied by 1.6 at 1 and 2 at 4 units" in words
    assert widening_in_words([None, Widening("day", 9.0, (1.0,), (1.0,))]) == ()


@pytest.mark.parametrize("far", [[0.6, -0.8], [3.0, -3.2, 3.4, -3.6, 3.8, -4.0, 4.2, -4.4]])
def test_rows_whose_gain_exceeds_log_n_and_three_get_the_noise_of_their_residual(
    monkeypatch: pytest.MonkeyPatch, far: list[float]
):
    y = np.array([0.15, -0.15] * 26 + far + [0.15, -0.15] * ((8 - len(far)) // 2))
    n, s = len(y), 0.2  # a model of noise alone, whose residuals are the targets
    rows = Dataset(torch.arange(float(n))[:, None].double(), torch.tensor(y))
    theta = torch.tensor([math.log(1e-4), 0.0, math.log(s)]).double()
    monkeypatch.setattr(relevance_pursuit, "_learned", lambda *_: theta)
    z2 = np.square((y - y.mean()) / y.std() / s)
    gain = np.where(z2 > 1, (z2 - 1 - np.log(z2)) / 2, 0)
    expected = np.flatnonzero(gain > max(math.log(n) + 3, 0.2 * gain.max()))
    expected = np.sort(expected[np.argsort(-gain[expected])][: n // 10])

    found = relevance_pursuit._pursued(f"far {len(far)}", "se", rows)

    assert found.rows.tolist() == expected.tolist()
    assert 0 < len(expected) < len(far) or len(far) == 2
    np.testing.assert_allclose(found.ratio[expected], z2[expected], rtol=1e-3)
    assert found.sd == pytest.approx(s * math.sqrt(z2[expected].mean()) * y.std(), rel=1e-3)
    theta[-1] = 0.0
    level = relevance_pursuit._pursued(
        f"none {len(far)}", "se", Dataset(rows.X, torch.tensor(np.tile([1.0, -1.0], n // 2)))
    )
    assert (len(level.rows), level.sd) == (0, 0.0)


def test_no_row_is_pursued_where_no_exact_model_can_be_fitted(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object) -> None:
        raise GPExplorerError("not positive definite")

    monkeypatch.setattr(relevance_pursuit, "_pursued", fail)
    found = relevance_pursuit.pursuit(split_of(7), "se")
    assert (len(found.rows), found.ratio.tolist(), found.sd) == (0, [1.0] * 7, 0.0)


def test_an_answer_ends_with_its_gain_its_runner_up_and_its_time():
    winner, other = lane("winner"), lane("other", sentence="It is slower.")

    def answer(weights: dict[str, float] | None, others: list[Any]) -> list[str]:
        average: Any = weights and SimpleNamespace(weights=weights, scores=scores(0.1), gain=(0.5, 0.1), widenings=())
        return list(result.sentences(
            split_of(60), winner, others, {}, average, "It took 3 s.", "A note.", Plan(), None, ("A fact.",),
        ))  # fmt: skip

    words = answer(None, [other])
    assert words[0].startswith("Use winner: ")
    assert "learned from 60 rows." in words[1]
    assert words[-3:] == ["The runner-up is other. It is slower.", "A note.", "It took 3 s."]
    assert "A fact." in words
    both = answer({"winner": 0.6, "other": 0.4}, [])
    assert "the NLPD of the average is lower by 0.5 nats" in both[-3]
    assert not any("runner-up" in each for each in both)
    assert not any("NLPD of the average" in each for each in answer({"trees": 1.0}, []))


def test_an_answer_in_a_notebook_has_its_sentences_and_a_table_without_numbers_of_rows():
    table = pd.DataFrame({"model": ["<a>", "b"], "nlpd": [0.123456, 2.0]})
    answer: Any = result.Recommendation("ml", "se", {}, None, None, {}, table, sentences=("x < y",))  # type: ignore[arg-type]
    html = answer._repr_html_()
    assert html.startswith("<p>x &lt; y</p><table")
    assert "&lt;a&gt;" in html
    assert "0.1235" in html
    assert "<th>0</th>" not in html


def test_relevance_pursuit_of_too_many_rows_is_not_tried():
    rows = Dataset(torch.zeros(3001, 1), torch.zeros(3001))
    found = relevance_pursuit._pursued("many", "se", rows)
    assert (len(found.rows), found.sd, len(found.ratio)) == (0, 0.0, 3001)
