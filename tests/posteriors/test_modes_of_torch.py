"""Posteriors in other modes of torch, default precision and inference mode, and more samples than memory holds."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch
from torch import Tensor

from gpexplorer import methods
from gpexplorer.data.standardising import inputs_in_units
from gpexplorer.errors import SettingError
from gpexplorer.posteriors import MarginalPosterior, sample_paths
from gpexplorer.runs import Run
from steps_of import small_run


@pytest.fixture(scope="module", params=sorted(methods))
def run(request: pytest.FixtureRequest) -> Run:
    return small_run(str(request.param), d=2)


def answers_of(run: Run) -> list[Tensor]:
    X, posterior = run.split.test.X[:7], run.posterior(of="y")
    said = [
        *posterior.at_scaled(X),
        torch.tensor([row.value for row in run.hyperparameters_at(-1)], dtype=torch.float64),
    ]
    if isinstance(posterior.inner, MarginalPosterior):
        return said
    X = inputs_in_units(X, run.split.test)
    quantiles = posterior.quantile(X, (0.025, 0.975))
    return [
        *said,
        quantiles,
        posterior.sample(X, 3, 1),
        posterior.asked_for("f").sample(X, 3, 1),
        posterior.paths(3, 1)(X),
    ]


def test_answers_do_not_depend_on_the_default_precision_of_torch(run: Run):
    before, answers = torch.get_default_dtype(), answers_of(run)
    try:
        torch.set_default_dtype(torch.float64)
        of_the_same = answers_of(run)
        torch.set_default_dtype(torch.float16)
        of_another_fit = answers_of(small_run(run.method.key, d=2))
    finally:
        torch.set_default_dtype(before)

    for again in (of_the_same, of_another_fit):
        for one, other in zip(again, answers, strict=True):
            torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


def test_derivatives_are_the_same_in_inference_mode(run: Run):
    posterior = run.posterior(of="y")
    X = inputs_in_units(run.split.test.X[:4], run.split.test)
    gradient = posterior.gradient(X)
    with torch.inference_mode():
        again, of_the_same = run.posterior(of="y").gradient(X + 0.0), posterior.gradient(X + 0.0)
    for one, other in zip((*again, *of_the_same), (*gradient, *gradient), strict=True):
        torch.testing.assert_close(one, other, rtol=0.0, atol=0.0)


def test_more_samples_than_memory_holds_are_refused_before_any_work(run: Run, monkeypatch: pytest.MonkeyPatch):
    posterior, X = run.posterior(of="y"), inputs_in_units(run.split.test.X[:4], run.split.test)
    monkeypatch.setattr(posterior.inner, "moments", None)
    monkeypatch.setattr(posterior.inner, "joint", None)
    with pytest.raises(
        SettingError, match=r"size is 1,000,000,000: so many samples take at least .* at most [\d,]+ at"
    ):
        posterior.sample(X, 10**9)
    with pytest.raises(
        SettingError, match=r"size is 1,000,000,000: so many samples take at least .* at most [\d,]+ at"
    ):
        posterior.paths(10**9)


def test_as_many_samples_as_are_said_to_fit_are_drawn(monkeypatch: pytest.MonkeyPatch):
    posterior, X = small_run("rff", d=2, steps=2).posterior(), np.zeros((4, 2))
    monkeypatch.setattr(sample_paths, "machine_memory", lambda: 1e5)
    for draw in (lambda size: posterior.sample(X, size), posterior.paths):
        with pytest.raises(SettingError) as refused:
            draw(10**6)
        fitting = int(re.findall(r"at most ([\d,]+) at", str(refused.value))[0].replace(",", ""))
        draw(fitting)
        with pytest.raises(SettingError, match="so many samples"):
            draw(fitting + 1)
