"""Which rows are held out, as asked for or as the rows suggest, and how long the scores between rows may take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpexplorer.errors import SettingError
from gpexplorer.recommendation import promises
from gpexplorer.recommendation.promises import planned, scores_between_rows
from search_by_hand import FakeRun, scores, search_of


def rows(n: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Rows in no order, of no groups."""
    rng = np.random.default_rng(0)
    return rng.standard_normal((n, 2)), rng.standard_normal(n)


@pytest.mark.parametrize(
    ("folds", "before", "groups", "words"),
    [(None, 1.0, "groups", "give it alone"), ("random", 1.0, None, "give it alone"),
     ("groups", 1.0, None, "give it alone"),
     ("random", None, "groups", "give one of them"), ("weeks", None, None, "folds is"),
     ("groups", None, None, "found no column of groups")],
)  # fmt: skip
def test_what_contradicts_itself_is_refused(folds: Any, before: Any, groups: Any, words: str):
    X, y = rows()
    with pytest.raises(SettingError, match=words):
        planned(X, y, {}, folds, before, np.arange(60) // 6 if groups else None)


def test_what_is_asked_for_is_held_out_whatever_the_rows_say():
    X, y = rows()
    days = np.arange(60.0)[:, None]

    split, plan = planned(X, y, {}, None, None, np.arange(60) // 6)
    assert (plan.kind, plan.column, plan.pairs) == ("groups", "", ())  # although groups are not alike
    assert split.train.groups is not None
    assert planned(X, y, {}, "random", None, None)[1].kind == "random"
    _, plan = planned(days, y, {}, None, 50.0, None)
    assert plan.kind == "time"
    [pair] = plan.pairs
    assert pair.test.tolist() == list(range(50, 60))
    assert planned(days, y, {}, "time", 50.0, None)[1].pairs[0].train.tolist() == list(range(50))
    assert planned(X, y, {}, [(np.arange(9), np.arange(9, 60))], None, None)[1].kind == "random"


def test_groups_are_sought_in_tables_and_not_in_inputs_beside_their_targets():
    rng = np.random.default_rng(1)
    patient = np.arange(60) // 6
    frame = pd.DataFrame({"dose": rng.random(60), "patient": patient, "pulse": patient % 5 + 0.01 * rng.random(60)})
    assert planned(frame, None, {"target": "pulse"}, None, None, None)[1].column == "patient"
    inputs, pulse = frame[["dose", "patient"]], frame["pulse"].to_numpy()
    assert planned(inputs, pulse, {}, None, None, None)[1].kind == "random"


def test_scores_between_rows_take_a_twentieth_of_the_time_and_groups_do_not_count(monkeypatch: pytest.MonkeyPatch):
    ends: list[float] = []
    run = FakeRun(trace=[None])
    own: Any = SimpleNamespace(
        name="a", seed=0, learned_logs=lambda: [0.5], marginals=lambda run, part: "marginals",
        candidate=SimpleNamespace(opened=lambda part, seed, logs: run),
    )  # fmt: skip
    monkeypatch.setattr(promises, "step_until", lambda run, end, *_: ends.append(end))
    monkeypatch.setattr(promises, "scores_of_parts", lambda parts, marginals, column: (scores(0.5), None))
    search = search_of(60)
    search.clock.now = 30.0

    found = scores_between_rows(search, own)

    assert ends == [35.0]
    assert found is not None
    assert found.rmse == pytest.approx(0.5)
    assert run.closed
    run.trace.clear()
    assert scores_between_rows(search, own) is None
    run.trace.append(None)
    monkeypatch.setattr(promises, "scores_of_parts", lambda *_: (scores(np.nan), None))
    assert scores_between_rows(search, own) is None
