"""A learner of a minibatch method: its rows, rates, averages and bounds."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from gpexplorer.methods.minibatches.learner import MinibatchRows
from oracles_minibatches import begun, method, model, problem
from whole_run import finished


def small(**settings: Any) -> Any:
    return method("scgd", **{"batch_size": 8, "rate": 0.03, "minibatches": 2, "epochs": 4, "refit": "none", **settings})


def test_rows_of_minibatches_depend_on_seed_stream_and_epoch_and_fit_the_size():
    rows = MinibatchRows(1, 10, 4, "rows")
    assert (rows.per_epoch, rows.size) == (2, 4)
    assert MinibatchRows(1, 3, 8, "rows").size == 3
    assert MinibatchRows(1, 3, 8, "rows").per_epoch == 1
    first = [rows(t).tolist() for t in range(4)]
    assert len(set(first[0]) | set(first[1])) == 8
    assert first[:2] != first[2:]
    assert rows(0).tolist() == first[0]  # it can go back
    assert MinibatchRows(2, 10, 4, "rows")(0).tolist() != first[0]
    assert MinibatchRows(1, 10, 4, "others")(0).tolist() != first[0]


def test_the_rate_follows_a_power_of_the_epochs():
    _, learner = begun(small(rate_decay=0.75), problem())
    assert learner.rows.per_epoch == 5
    assert learner.scheduled_rate(0) == pytest.approx(0.03)
    assert learner.scheduled_rate(10) == pytest.approx(0.03 * 3.0**-0.75)
    assert learner.last == 4 * 5


def test_a_refresh_is_due_after_the_set_number_of_minibatches_but_not_at_first():
    _, learner = begun(small(refresh=3), problem())
    assert [t for t in range(10) if learner.refreshes(t)] == [3, 6, 9]
    _, learner = begun(small(refresh=0), problem())
    assert not any(learner.refreshes(t) for t in range(10))


def test_averages_of_the_optimiser_go_on_from_the_state_and_are_copies():
    at = problem()
    algorithm = small()
    steps, _ = finished(algorithm, at)
    state = steps[3].state
    learner = algorithm.learner(model(at=at), state)
    assert len(learner.averages) == 2
    for average, stored_average in zip(learner.averages, state.averages, strict=True):
        assert torch.equal(average, stored_average)
        assert average.data_ptr() != stored_average.data_ptr()
    before = state.theta.clone()
    learner.move(state.batches)
    assert torch.equal(state.theta, before)
    copied = learner.state(state)
    assert torch.equal(copied.theta, learner.parameters.theta)
    assert copied.theta.data_ptr() != learner.parameters.theta.data_ptr()
    assert copied.w.data_ptr() != learner.parameters.w.data_ptr()
    assert copied.averages[0].data_ptr() != learner.averages[0].data_ptr()


def test_a_parameter_on_its_bound_is_divergence_and_one_below_is_not():
    _, learner = begun(small(largest=5.0), problem())
    learner.parameters.theta[0] = 4.9
    assert learner.within_bounds()
    assert learner.divergence() == ""
    learner.parameters.theta[0] = -5.0
    assert not learner.within_bounds()
    assert learner.divergence() == "A parameter reached its bound 5. Lower the rate 0.03."
    _, learner = begun(small(), problem())
    for log_noise in (354.0, 356.0, -356.0, 800.0):  # exp(2 * 354.9) is the largest number
        learner.parameters.theta[-1] = log_noise
        assert learner.within_bounds() == (log_noise == 354.0)
    assert learner.divergence() == "A parameter reached its bound 354.891. Lower the rate 0.03."
    learner.parameters.theta[-1] = 0.0
    learner.parameters.w[0] = math.nan
    assert learner.divergence()


def test_several_minibatches_are_taken_one_after_another_and_the_estimate_is_their_mean():
    at = problem()
    _, learner = begun(small(), at)
    _, other = begun(small(), at)
    learner.take(0, 4)
    values = []
    for t in range(4):
        other.move(t)
        values.append(other.estimate())
    assert torch.equal(learner.parameters.x, other.parameters.x)
    assert learner.estimate() == pytest.approx(sum(values) / 4)
    assert learner.estimate() == 0.0  # nothing since
