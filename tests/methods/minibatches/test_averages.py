"""What minibatches leave behind: averages that rounding takes little from, and tensors free to use."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from gpexplorer.problem import Problem
from oracles_minibatches import begun, dense, method, model, problem

MINIBATCHES = 1500  # thirty times as many as the averages remember


@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_single_precision_loses_little_however_long_it_runs(shift: float):
    at = problem(shift=shift)
    train = replace(at.train, X=at.train.X.float(), y=at.train.y.float())
    small = method("scgd", batch_size=8, layers=0, width=4)
    _, double = begun(small, at)
    _, single = begun(small, Problem(train, at.kernel, at.theta.float()))
    assert single.S.dtype is torch.float32

    lost = []
    for t in range(MINIBATCHES):
        double.gradient(double.rows(t), t)
        single.gradient(single.rows(t), t)
        lost.append(float((single.S - double.S).norm() / double.S.norm()))

    assert 0.0 < max(lost) < 1e-5  # about eps / b_0 = 3e-6
    assert max(lost[MINIBATCHES // 2 :]) < 2.0 * max(lost[: MINIBATCHES // 2])


@pytest.mark.parametrize("key", ["scgd", "minimax", "bsgd", "full-batch", "svgp"])
def test_what_a_step_leaves_can_be_differentiated_and_written_to(key: str):
    at = problem()
    small = method(key, minibatches=2)
    steps = small.steps(at)
    state = [next(steps) for _ in range(3)][-1].state

    theta = state.theta.requires_grad_()
    value = dense(model(key, at), theta)

    assert torch.autograd.grad(value, theta)[0].abs().max() > 0
    for part in (state.w, *state.averages, *state.matrices):
        assert torch.equal(part.zero_(), torch.zeros_like(part))
