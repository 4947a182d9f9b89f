"""Bias of the minibatch gradients of SCGD, and of MINIMAX's matrices along its own trajectory, with b < D."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.minibatches.exact_likelihood import exact_gradient, exact_likelihood
from gpexplorer.methods.minibatches.minimax import gram_per_row
from oracles_minibatches import begun, method, problem

WIDE: dict[str, Any] = {"width": 24, "activation": "relu"}


def mean_gradient_of_scgd(b: int, shift: float = 0.0, **settings: Any) -> tuple[Tensor, Tensor]:
    """The mean over all minibatches of one epoch, each from exact averages, and the exact gradient, both per row."""
    at, gradients = problem(n=48, shift=shift), []
    scgd = method("scgd", batch_size=b, averaging=0.3, **WIDE, **settings)
    for rows in torch.randperm(48, generator=torch.Generator().manual_seed(2)).view(-1, b):
        model, learner = begun(scgd, at)
        learner.gradient(rows, 0)
        gradients.append(learner.parameters.g[model.D : model.D + model.size].clone())
    theta = learner.parameters.theta
    return torch.stack(gradients).mean(0), exact_gradient(model, theta, exact_likelihood(model, theta)) / 48


@pytest.mark.parametrize("shift", [0.0, 1.5])
@pytest.mark.parametrize("b", [4, 16])
def test_the_mean_minibatch_gradient_of_scgd_is_the_exact_gradient(b: int, shift: float):
    mean, exact = mean_gradient_of_scgd(b, shift)

    torch.testing.assert_close(mean, exact, rtol=1e-7, atol=1e-9)


def test_scgd_is_biased_if_the_minibatch_enters_the_average_before_its_gradient():
    far, near = (
        float((mean - exact).norm() / exact.norm())
        for mean, exact in (mean_gradient_of_scgd(b, gram_update="before") for b in (4, 16))
    )

    assert far > 0.3
    assert near < far


def mean_multiplier(b: int, **settings: Any) -> Tensor:
    """Eigenvalues of F^(1/2) E[M] F^(1/2) on the trajectory of MINIMAX at a fixed theta: all one if E[M] = F^-1."""
    model, learner = begun(method("minimax", batch_size=b, rate=1e-12, **WIDE, **settings), problem(n=96, shift=0.4))
    L = torch.linalg.cholesky(gram_per_row(model, exact_likelihood(model, learner.parameters.theta)))
    total = torch.zeros_like(learner.B)
    for t in range(1500):
        learner.move(t)
        if t >= 500:
            total -= learner.B * (learner.mu / learner.A_norm)
    return torch.linalg.eigvalsh(L.T @ (total / 1000) @ L)


@pytest.mark.parametrize("b", [3, 12])
def test_the_mean_multiplier_of_minimax_is_the_inverse_of_f_with_fewer_rows_than_features(b: int):
    relative = mean_multiplier(b)

    assert float(relative.mean()) == pytest.approx(1.0, abs=0.05)
    assert float(relative[-1]) < 1.3


def test_constant_rates_let_the_noise_of_small_minibatches_bias_the_multiplier():
    assert float(mean_multiplier(3, rate_scaling="constant").mean()) > 1.2


def test_minimax_without_damping_says_that_its_matrix_diverged():
    undamped = method(
        "minimax", batch_size=3, damping=0.0, rate_scaling="constant", epochs=60, evaluate_every=2, **WIDE
    )
    steps = undamped.steps(problem(n=96))
    values = []
    while True:
        try:
            values.append(next(steps).info.gap)
        except StopIteration as end:
            outcome = end.value
            break

    assert outcome.reason == "diverged"
    assert "Raise damping" in outcome.message
    assert all(value < 100.0 for value in values if value == value)
