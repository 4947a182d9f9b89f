"""Combining a step with previous steps: the best point of their plane, without any kernel entry."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer.methods.exact import cg
from gpexplorer.methods.exact.block import combine_steps
from gpexplorer.methods.exact.reliability import Point
from gpexplorer.problem import Problem
from gpexplorer.runs.counting import Counted, Counter
from oracles_gbcd import SHIFTS, gram, noise, quick, system, wavy


@pytest.mark.parametrize("shift", SHIFTS)
def test_gradient_steps_combined_with_one_previous_step_are_conjugate_gradients(shift: float):
    task = wavy(shift)
    A, y = system(task), task.train.y
    current, memory = Point(torch.zeros_like(y), -y), ()
    for k, expected in enumerate(islice(cg.cg(A.mv, cg.begin(A.mv, y, torch.zeros_like(y))), 12)):
        step = 0.01 * current.gradient
        after = Point(current.alpha - step, current.gradient - A @ step)

        current, memory = combine_steps(current, after, memory, 1, k)

        torch.testing.assert_close(current.alpha, expected.x, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("keep", [1, 2, 3])
@pytest.mark.parametrize("shift", SHIFTS)
def test_the_gradient_is_orthogonal_to_the_plane_and_each_step_keeps_its_place(keep: int, shift: float):
    task = wavy(shift)
    A, y = system(task), task.train.y
    before = None
    for k, step in enumerate(islice(quick("gbcd", conjugate=keep, coarse=10).steps(task), 1, 9)):
        state = step.state
        g = A @ state.alpha - y
        assert len(state.memory) == 2 * min(k + 1, keep)
        for p, Ap in zip(state.memory[0::2], state.memory[1::2], strict=True):
            torch.testing.assert_close(A @ p, Ap, rtol=1e-8, atol=1e-9)
            assert abs(float(p @ g)) <= 1e-9 * float(p.norm() * y.norm())
        if before is not None:
            place = 2 * (k % keep)
            torch.testing.assert_close(state.memory[place], state.alpha - before, rtol=1e-9, atol=1e-12)
        before = state.alpha


def test_gbcd_with_conjugate_steps_takes_fewer_iterations_and_kernel_entries():
    smooth, counts = wavy(n=150), {}
    task = Problem(smooth.train, smooth.kernel, torch.tensor([0.1, -0.6, -0.8, -2.5], dtype=torch.float64))
    for keep in (0, 2):
        counter = Counter()
        counted = Problem(task.train, Counted(task.kernel, counter), task.theta)
        small = quick("gbcd", conjugate=keep, cache=0.0, tolerance=1e-2, coarse=10, chunk=6)
        *_, last = small.steps(counted)
        assert last.info.largest <= 1e-2
        counts[keep] = (last.state.step, counter.entries)

    assert counts[2][0] < 0.85 * counts[0][0]
    assert counts[2][1] < 0.85 * counts[0][1]


@pytest.mark.parametrize("shift", SHIFTS)
def test_alternating_projections_with_conjugate_steps_converge_earlier_to_the_same_alpha(shift: float):
    task, counts = wavy(shift), []
    for keep in (0, 3):
        *_, last = quick("alternating-projections", conjugate=keep, block=20, tolerance=1e-4).steps(task)
        counts.append(last.state.step)
        expected = torch.linalg.solve(system(task), task.train.y)
        torch.testing.assert_close(last.state.alpha, expected, rtol=1e-2, atol=1e-2)

    assert counts[1] < 0.7 * counts[0]


def test_a_repeated_step_gives_a_singular_plane_and_still_the_right_point():
    before = Point(torch.ones(3, dtype=torch.float64), torch.tensor([1.0, 0.0, 0.0], dtype=torch.float64))
    t = torch.tensor([-0.5, 0.0, 0.0], dtype=torch.float64)
    after = Point(before.alpha + t, before.gradient + t)

    result, _ = combine_steps(before, after, (t.clone(), t.clone()), 1, 1)

    torch.testing.assert_close(result.alpha, torch.tensor([0.0, 1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(result.gradient, torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_first_rows_are_chosen_by_the_plain_gradient_if_the_coarse_step_is_negligible(shift: float):
    task = wavy(shift)
    A, y, coarse = system(task), task.train.y, 10
    first, second = islice(quick("gbcd", conjugate=0, coarse=coarse, chunk=12).steps(task), 1, 3)
    g = A @ first.state.alpha - y
    gain = g.square() / (2 * (gram(task).diagonal() + noise(task)))
    expected = gain.topk(12)

    assert set(second.info.active.tolist()) == set(expected.indices.tolist())
    torch.testing.assert_close(second.info.gains, expected.values, rtol=1e-6, atol=1e-12)
