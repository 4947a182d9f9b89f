"""A swap that a person asks for: its effect on the inducing set, the objective and the run, and how to undo it."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gpexplorer import Spec, views
from gpexplorer.errors import SettingError
from gpexplorer.runs import Run
from oracles import dense_objective


@pytest.fixture(params=[1, 3])
def run(request: pytest.FixtureRequest) -> Run:
    rows = {"name": "hypercube", "n": 70, "d": request.param, "noise": 0.2, "seed": 2}
    run = Spec("cholqr", {"num_inducing": 6, "swaps_per_epoch": 5, "evaluations": 4}, data=rows).open()
    for _ in range(14):
        run.advance()
    return run


@pytest.mark.parametrize("at", [1, 4, 8, 13])
def test_a_forced_swap_changes_one_point_and_reports_the_change_of_the_objective(run: Run, at: int):
    before, train = run.trace[at].step.state, run.problem.train
    row = next(r for r in range(len(train)) if r not in before.inducing.tolist())

    step = run.method.force_swap(run.problem, before, row)

    gone = set(before.inducing.tolist()) - set(step.state.inducing.tolist())
    assert set(step.state.inducing.tolist()) - set(before.inducing.tolist()) == {row}
    assert gone == {step.info.removed}
    totals = [
        float(dense_objective(run.problem.kernel, before.theta, train.X, train.y, train.X[rows], "vfe"))
        for rows in (before.inducing, step.state.inducing)
    ]
    assert step.state.objective == pytest.approx(totals[1], rel=1e-9)
    assert step.info.exact == pytest.approx(totals[0] - totals[1], rel=1e-6, abs=1e-8)


def test_only_a_row_that_the_remaining_points_explain_is_refused():
    thrice = np.repeat(np.linspace(0.0, 6.0, 12), 3)[:, None]
    run = Spec("cholqr", {"num_inducing": 4}).open(data=(thrice, np.sin(3 * thrice[:, 0])))
    state = run.advance().step.state
    _, slot = run.method.prepare(run.problem, state)
    X, inducing = run.problem.train.X[:, 0], state.inducing
    others = torch.tensor([r for r in range(len(X)) if r not in inducing.tolist()])

    def twin(position: int) -> int:
        return int(others[X[others] == X[inducing[position]]][0])

    assert run.method.force_swap(run.problem, state, twin(slot)).info.proposed == twin(slot)
    for stays in {0, 1, 2, 3} - {slot}:
        with pytest.raises(SettingError, match="is explained"):
            run.method.force_swap(run.problem, state, twin(stays))


def test_a_run_continues_from_a_forced_swap_and_can_be_forked_before_it(run: Run):
    last = run.trace[13].step.state
    row = next(r for r in range(len(run.problem.train)) if r not in last.inducing.tolist())
    step = run.method.force_swap(run.problem, last, row)

    other = run.fork(13, step)
    for _ in range(6):
        other.advance()

    assert other.trace[14].index == 14
    assert other.trace[14].step.info.phase == "forced"
    assert torch.equal(other.trace[14].step.state.inducing, step.state.inducing)
    assert len(other.trace) == 21
    assert other.trace[20].step.state.objective <= step.state.objective
    assert len(other.fork(13).trace) == 14
    assert len(run.trace) == 14


@pytest.mark.parametrize("show", ["over the data", "predicted against exact", "ranks"])
def test_a_click_forces_the_swap_of_the_nearest_row(run: Run, show: str):
    view = next(view for view in views.for_run(run) if view.key == "landscape")
    view.show = show
    shown = view.data(run, 13)["exact"]
    target = shown.iloc[len(shown) // 2]

    step = view.clicked(run, 13, float(target["x"]), float(target["y"]))

    assert step is not None
    assert step.info.proposed == int(target["row"])
    assert step.info.exact == pytest.approx(float(target["exact"]), rel=1e-6, abs=1e-8)


def test_a_row_that_is_inducing_already_is_refused_with_a_sentence(run: Run):
    state = run.trace[13].step.state
    with pytest.raises(SettingError, match="is an inducing point already; choose another row"):
        run.method.force_swap(run.problem, state, int(state.inducing[0]))
