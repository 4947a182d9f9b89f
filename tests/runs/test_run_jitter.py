"""The run records the jitter that any Cholesky factor needed, and says so in a sentence."""

from __future__ import annotations

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.linalg.cholesky import cholesky
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem
from gpexplorer.runs import Run
from gpexplorer.runs.counting import jitter_sentence
from gpexplorer.ui.playback.readings import status_numbers


def problem(log_noise: float, shift: float) -> Problem:
    """Every row twice."""
    X = torch.linspace(-1.0, 1.0, 10, dtype=torch.float64).repeat(2)[:, None]
    y = torch.sin(3.0 * X[:, 0]) + shift
    return Problem(Dataset(X + shift, y), kernels.make("se", 1), torch.tensor([0.0, -1.0, log_noise]).double())


@pytest.mark.parametrize("shift", [0.0, 50.0])
@pytest.mark.parametrize("key", ["ml", "loo", "cholesky"])
def test_the_jitter_of_a_factor_of_all_rows_is_reported(key: str, shift: float):
    settings = {"learn": False} if key == "cholesky" else {"evaluations": 1}
    singular, regular = (Run(registry[key](**settings), problem(noise, shift)) for noise in (-25.0, -1.0))

    for run in (singular, regular):
        run.advance()
        assert run.jitters == {}  # the start is before any work
        run.finish(steps=1)

    assert regular.jitters == {}
    assert list(singular.jitters) == ["K + s2 I"]
    assert 0.0 < singular.jitters["K + s2 I"] < 1e-8
    assert status_numbers(singular, 1, None, False).jitter == jitter_sentence(singular.jitters)
    assert jitter_sentence(singular.jitters).startswith(
        f"Jitter was needed: {singular.jitters['K + s2 I']:.1e} on K + s2 I. Raise"
    )
    assert jitter_sentence(regular.jitters) == ""


def test_jitter_outside_a_step_is_not_recorded():
    run = Run(registry["ml"](evaluations=1), problem(-1.0, 0.0))
    run.advance()
    assert cholesky(torch.ones(4, 4, dtype=torch.float64), "another").jitter > 0.0
    run.finish(steps=1)

    assert run.jitters == {}


@pytest.mark.parametrize("key", ["gpcv-admm", "pcg"])
def test_the_jitter_of_a_preconditioner_changes_no_answer_and_is_not_reported(key: str):
    run = Run(registry[key](), problem(-1.0, 0.0))
    run.finish(steps=3)

    assert run.done == 3
    assert run.jitters == {}
