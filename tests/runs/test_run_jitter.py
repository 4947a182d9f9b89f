"""Jitter that any factor needed reaches the run: the reader learns that the numbers are not quite those asked for."""

from __future__ import annotations

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs import Run
from gpexplorer.runs.counting import jitter_sentence
from gpexplorer.ui.playback.readings import facts


def problem(log_noise: float, shift: float) -> Problem:
    """Every row twice."""
    X = torch.linspace(-1.0, 1.0, 10, dtype=torch.float64).repeat(2)[:, None]
    y = torch.sin(3.0 * X[:, 0]) + shift
    return Problem(Dataset(X + shift, y), kernels.make("se", 1), torch.tensor([0.0, -1.0, log_noise]).double())


@pytest.mark.parametrize("shift", [0.0, 50.0])
@pytest.mark.parametrize("key", ["ml", "loo", "cholesky"])
def test_what_a_factor_of_all_rows_needed_is_told(key: str, shift: float):
    settings = {"learn": False} if key == "cholesky" else {"evaluations": 1}
    needy, sound = (Run(registry[key](**settings), problem(noise, shift)) for noise in (-25.0, -1.0))

    for run in (needy, sound):
        run.advance()
        assert run.jitters == {}  # the start is before any work
        run.finish(steps=1)

    assert sound.jitters == {}
    assert list(needy.jitters) == ["K + s2 I"]
    assert 0.0 < needy.jitters["K + s2 I"] < 1e-8
    assert facts(needy, 1, None, False).jitter == jitter_sentence(needy.jitters)
    assert jitter_sentence(needy.jitters).startswith(
        f"Jitter was needed: {needy.jitters['K + s2 I']:.1e} on K + s2 I. Raise"
    )
    assert jitter_sentence(sound.jitters) == ""


def test_the_jitter_of_others_is_not_the_runs():
    run = Run(registry["ml"](evaluations=1), problem(-1.0, 0.0))
    run.advance()
    assert cholesky(torch.ones(4, 4, dtype=torch.float64), "another").jitter > 0.0
    run.finish(steps=1)

    assert run.jitters == {}


@pytest.mark.parametrize("key", ["gpcv-admm", "pcg"])
def test_a_preconditioners_jitter_changes_no_answer_and_is_not_told(key: str):
    run = Run(registry[key](), problem(-1.0, 0.0))
    run.finish(steps=3)

    assert run.done == 3
    assert run.jitters == {}
