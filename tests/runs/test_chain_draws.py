"""The draws of a run that samples leave it as arrays and for ArviZ."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpexplorer import Run, Spec
from gpexplorer.errors import SettingError
from gpexplorer.methods.chain_diagnostics import rhat
from gpexplorer.runs.studies.chain_draws import chain_draws, to_arviz

SETTINGS = {"num_eigenfunctions": 10, "per_step": 20, "warm_up": 2, "samples": 4, "evaluations": 5, "subset": 40}


@pytest.fixture(scope="module")
def run() -> Run:
    run = Spec("grief-mcmc", SETTINGS, data={"name": "sin-product", "n": 60}).open()
    run.finish(steps=200)
    return run


def test_the_draws_are_those_of_the_chains(run: Run):
    draws = chain_draws(run)

    assert list(draws)[:3] == ["log likelihood", "log noise variance", "log weight 1"]
    assert {each.shape[0] for each in draws.values()} == {run.method.chains}
    assert np.isfinite(draws["log noise variance"]).all()
    assert max(map(rhat, draws.values())) == pytest.approx(run.trace[-1].step.info.rhat)


def test_arviz_receives_the_draws_by_name(run: Run, monkeypatch: pytest.MonkeyPatch):
    received: dict[str, Any] = {}
    monkeypatch.setitem(sys.modules, "arviz", SimpleNamespace(from_dict=lambda **groups: received.update(groups)))

    to_arviz(run)

    draws = chain_draws(run)
    assert np.array_equal(received["sample_stats"]["lp"], draws.pop("log likelihood"))
    assert received["posterior"].keys() == draws.keys()


def test_what_has_no_draws_gets_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(SettingError, match="cholqr does not sample"):
        chain_draws(Spec("cholqr", data={"name": "sin-product", "n": 40}).open())
    with pytest.raises(SettingError, match="no draws after the warm-up yet"):
        chain_draws(Spec("grief-mcmc", SETTINGS, data={"name": "sin-product", "n": 60}).open())
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(SettingError, match=r"gpexplorer\[arviz\]"):
        to_arviz(run)
