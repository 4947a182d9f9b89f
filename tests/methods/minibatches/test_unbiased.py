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


def at_rest(b: int, **settings: Any) -> tuple[Tensor, float]:
    """Eigenvalues of F^(1/2) E[M] F^(1/2), all one if E[M] = F^-1, and E |A - F| / |F|: MINIMAX at a fixed theta."""
    model, learner = begun(method("minimax", batch_size=b, rate=1e-12, **WIDE, **settings), problem(n=96, shift=0.4))
    F = gram_per_row(model, exact_likelihood(model, learner.parameters.theta))
    L, total, distances = torch.linalg.cholesky(F), torch.zeros_like(learner.B), []
    for t in range(1500):
        learner.move(t)
        if t >= 500:
            total -= learner.B * (learner.mu / learner.A_norm)
            distances.append((learner.A - F).norm() / F.norm())
    return torch.linalg.eigvalsh(L.T @ (total / 1000) @ L), float(torch.stack(distances).mean())


@pytest.mark.parametrize("b", [3, 12])
def test_at_rest_the_matrices_of_minimax_are_f_and_its_inverse_with_fewer_rows_than_features(b: int):
    relative, distance = at_rest(b)

    assert float(relative.mean()) == pytest.approx(1.0, abs=0.05)
    assert float(relative[-1]) < 1.3
    assert distance < 0.06


def test_constant_rates_let_the_noise_of_small_minibatches_bias_the_multiplier():
    relative, distance = at_rest(3, rate_scaling="constant")

    assert float(relative.mean()) > 1.2
    assert distance > 0.1


def lag(epochs: int = 12, **settings: Any) -> tuple[float, float]:
    """While theta moves: the means of tr(M F) / D and of |A - F| / |F| over the second half of a short run."""
    minimax = method("minimax", batch_size=16, layers=2, width=32, activation="relu", **settings)
    model, learner = begun(minimax, problem(n=480, shift=0.4))
    inverses, distances = [], []
    for t in range(epochs * 30):
        learner.move(t)
        if t >= epochs * 15 and t % 15 == 0:
            F = gram_per_row(model, exact_likelihood(model, learner.parameters.theta))
            inverses.append(-learner.mu / learner.A_norm * float((learner.B * F).sum()) / model.D)
            distances.append(float((learner.A - F).norm() / F.norm()))
    return sum(inverses) / len(inverses), sum(distances) / len(distances)


def test_the_matrices_of_minimax_lag_behind_features_that_move_and_less_at_a_smaller_learning_rate():
    inverse, distance = lag()
    inverse_if_slow, distance_if_slow = lag(rate=1e-4)

    assert inverse > 1.15
    assert inverse_if_slow == pytest.approx(1.0, abs=0.1)
    assert distance_if_slow < 0.5 * distance


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
