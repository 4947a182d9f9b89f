"""A search that is stopped before it has an answer, or that is late."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.recommendation.candidates import Candidate
from search_by_hand import Clock, halving_of

TWELVE = Candidate("twelve points", "inducing points", "random", "se-ard", {"num_inducing": 12, "learn": False})


@pytest.mark.parametrize("report", ["Looking at the rows.", "Stage 1 of"])
def test_a_request_to_stop_before_any_candidate_has_an_answer_gives_one_on_few_rows(report: str):
    rng, reports = np.random.default_rng(0), list[str]()
    X = rng.uniform(-2.0, 2.0, (400, 3))
    y = np.where(X[:, 0] > 0.0, 1.0, -1.0) * np.where(X[:, 1] > 0.0, 1.0, 3.0) * np.where(X[:, 2] > 0.0, 1.0, 5.0)
    answer = gpx.recommend(
        X, y, seconds=60.0, on_progress=lambda progress: reports.append(progress.sentence),
        should_stop=lambda: any(sentence.startswith(report) for sentence in reports),
    )  # fmt: skip
    assert not any("Stage 1" in sentence and report not in sentence for sentence in reports)
    assert np.isfinite(answer.predict(torch.tensor(X)).var.numpy()).all()
    assert "is fitted to 200 rows only" in str(answer)
    stopped = answer.table.sentence == "The search was stopped before this was tried."
    assert stopped.sum() >= len(answer.table) - 7
    if report == "Stage 1 of":  # trees are there by then, and better
        assert answer.sentences[0].startswith("Use boosted trees")


def test_a_stop_without_any_answer_says_so():
    X = np.random.default_rng(0).random((60, 2))
    with pytest.raises(SettingError) as raised:
        gpx.recommend(X, X.sum(1), seconds=60.0, memory=1.0, among=8 * [TWELVE], should_stop=lambda: True)
    assert "The search was stopped after " in str(raised.value)
    assert "within" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_an_answer_that_is_late_says_what_took_the_time():
    clock = Clock(30.0)
    search = halving_of(clock=clock)
    for now, work in ((30.0, "Fitting trees."), (50.0, "Trying a."), (55.0, "Fitting trees."), (90.0, "Trying b.")):
        clock.now = now
        search.report(work)
    clock.now = 124.9
    assert search.time_in_words() == "The recommendation took 124.9 s of 100 s."
    clock.now = 126.0
    assert search.time_in_words() == (
        "The recommendation took 126.0 s of 100 s. A step that has begun is not interrupted. The longest pieces of "
        "work were: fitting trees, 55.0 s; trying b, 36.0 s; reading the rows, 30.0 s."
    )
