"""An inducing point that a person drags: its new position, the bound there, and a run that continues from it."""

from __future__ import annotations

import pytest
import torch

from gpexplorer import Spec
from gpexplorer.methods.capabilities import HasMovablePoints
from gpexplorer.runs import Run
from oracles import dense_objective

ROWS = {"name": "hypercube", "n": 70, "d": 2, "noise": 0.2, "seed": 2}
SETTINGS = {"num_inducing": 6, "evaluations": 4}


def opened(method: str, steps: int) -> Run:
    run = Spec(method, SETTINGS, data=ROWS).open()
    for _ in range(steps):
        run.advance()
    return run


def dense(run: Run, state: object, Z: torch.Tensor) -> float:
    train = run.problem.train
    return float(dense_objective(run.problem.kernel, state.theta, train.X, train.y, Z, "vfe"))


@pytest.mark.parametrize("steps", [1, 5])
def test_a_point_between_the_rows_moves_to_the_given_position(steps: int):
    run = opened("sgpr", steps)
    before, to = run.trace[-1].step.state, torch.tensor([0.3, -0.7], dtype=torch.float64)

    step = run.method.move_point(run.problem, before, 2, to)

    assert torch.equal(step.state.Z[2], to)
    assert torch.equal(step.state.Z[[0, 1, 3, 4, 5]], before.Z[[0, 1, 3, 4, 5]])
    assert step.info.objective == pytest.approx(dense(run, step.state, step.state.Z), rel=1e-9)
    assert step.info.fit + step.info.logdet + step.info.trace == pytest.approx(step.info.objective, rel=1e-12)
    other = run.fork(steps - 1, step)
    for _ in range(4):
        other.advance()
    assert other.trace[-1].step.info.objective < step.info.objective


def test_a_point_that_is_a_row_becomes_the_nearest_free_row():
    run = opened("cholqr", 5)
    before, X = run.trace[-1].step.state, run.problem.train.X
    free = [row for row in range(len(X)) if row not in before.inducing.tolist()]

    step = run.method.move_point(run.problem, before, 3, X[free[7]] + 1e-4)

    assert int(step.state.inducing[3]) == free[7]
    assert step.info.removed == int(before.inducing[3])
    assert step.info.objective == pytest.approx(dense(run, step.state, X[step.state.inducing]), rel=1e-9)
    taken = run.method.move_point(run.problem, before, 3, X[before.inducing[0]])
    assert len(set(taken.state.inducing.tolist())) == 6


@pytest.mark.parametrize("method", ["cholqr", "sgpr"])
def test_the_bound_before_any_work_is_the_dense_one(method: str):
    run = opened(method, 1)
    state = run.trace[0].step.state
    Z = state.Z if method == "sgpr" else run.problem.train.X[state.inducing]

    assert isinstance(run.method, HasMovablePoints)
    assert run.method.bound_terms(run.problem, state).total("vfe") == pytest.approx(dense(run, state, Z), rel=1e-9)


def test_methods_without_inducing_points_have_no_movable_points():
    run = Spec("gbcd", data=ROWS).open()
    run.advance()

    assert not isinstance(run.method, HasMovablePoints)
