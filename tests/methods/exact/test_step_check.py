"""The check of one iteration against dense algebra, and what a run says when its precision is used up."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer.methods.exact.reliability import BANDS, Point, StepCheck, check_step, used_up, way_out
from gpexplorer.methods.exact.system import System
from oracles_gbcd import SHIFTS, noise, system, wavy


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_check_of_a_step_is_that_of_dense_algebra(shift: float):
    task = wavy(shift)
    A, y, solver = system(task), task.train.y, System(task, task.theta, 0.0)
    draw = torch.Generator().manual_seed(1)
    old, new = 0.1 * torch.randn(2, 80, generator=draw, dtype=torch.float64)

    def value(alpha: torch.Tensor) -> float:
        return float(0.5 * alpha @ A @ alpha - alpha @ y)

    check = check_step(solver, Point(old, A @ old - y), Point(new, A @ new - y))
    assert check.decrease == pytest.approx(value(old) - value(new))
    assert check.objective == pytest.approx(value(new))
    assert check.largest == pytest.approx(float((A @ new - y).abs().max()))
    assert check.norm == pytest.approx(float((A @ new - y).norm()))
    assert check.error == pytest.approx(0.0, abs=1e-9)
    assert check.resolution == pytest.approx(1e-6 * max(abs(value(old)), abs(value(new))))

    wrong = 0.01 * torch.randn(80, generator=draw, dtype=torch.float64)  # an error of the new gradient
    check = check_step(solver, Point(old, A @ old - y), Point(new, A @ new - y + wrong))
    assert check.error == pytest.approx(float(old @ wrong), abs=1e-9)


@pytest.mark.parametrize(("moved", "seen"), [(1, True), (39, True), (40, True), (41, False), (80, False)])
@pytest.mark.parametrize("mixed", [True, False])
def test_the_first_step_with_float32_columns_is_compared_with_the_objective_from_scratch(
    mixed: bool, moved: int, seen: bool
):
    task = wavy()
    A, y, solver = system(task), task.train.y, System(task, task.theta, 0.0, mixed)
    alpha = torch.zeros_like(y)
    alpha[:moved] = 0.1 * y[:moved]
    wrong = A @ alpha - y + 0.01
    check = check_step(solver, Point(torch.zeros_like(y), -y), Point(alpha, wrong))
    true = float(0.5 * alpha @ A @ alpha - alpha @ y)
    error = 0.5 * 0.01 * float(alpha.sum()) if seen and mixed else 0.0
    assert check.objective == pytest.approx(true + 0.5 * 0.01 * float(alpha.sum()))
    assert check.error == pytest.approx(error, abs=1e-7)
    later = check_step(solver, Point(alpha, A @ alpha - y), Point(0.5 * alpha, 0.5 * (A @ alpha) - y))
    assert later.error == pytest.approx(0.0, abs=1e-9)


def test_a_rise_beyond_rounding_and_an_error_beside_a_small_decrease_are_seen():
    assert not StepCheck(decrease=1.0, error=0.0, resolution=0.01).rises
    assert not StepCheck(decrease=-0.01, error=0.0, resolution=0.01).rises
    assert StepCheck(decrease=-0.011, error=0.0, resolution=0.01).rises
    assert StepCheck(decrease=math.nan, error=0.0, resolution=0.01).rises
    assert StepCheck(decrease=math.inf, error=0.0, resolution=0.01).rises
    assert not StepCheck(decrease=1.0, error=0.1, resolution=0.01).unreliable
    assert StepCheck(decrease=1.0, error=-0.11, resolution=0.01).unreliable
    assert not StepCheck(decrease=0.0, error=0.01, resolution=0.01).unreliable
    assert StepCheck(decrease=0.0, error=0.02, resolution=0.01).unreliable
    assert StepCheck(decrease=1.0, error=math.nan, resolution=0.01).unreliable


def test_the_end_of_a_precision_names_the_ratio_of_signal_and_noise():
    task = wavy()
    solver = System(task, task.theta, 0.0)
    ratio = float(solver.diag.max()) / noise(task)
    up = used_up(StepCheck(decrease=-2.0, error=0.5, resolution=0.01), 9, solver)
    assert (up.reason, up.message) == (
        "diverged",
        "The objective would rise by 2 in iteration 9, although its gradient was computed from scratch: float64 is not "
        f"accurate enough where the signal variance is {ratio:.0e} times the noise. {BANDS} {way_out(torch.float64)}",
    )
    lost = used_up(StepCheck(decrease=0.25, error=-0.5, resolution=0.01), 9, solver)
    assert (lost.reason, lost.message) == (
        "budget",
        "Rounding changes the objective by 0.5 in iteration 9, which decreases it by 0.25: float64 is not accurate "
        f"enough where the signal variance is {ratio:.0e} times the noise. {BANDS} {way_out(torch.float64)}",
    )
    assert "float64" in way_out(torch.float32)
