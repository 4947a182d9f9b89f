"""Bias of the minibatch gradients of SCGD, and of MINIMAX's matrices along its own trajectory, with b < D."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.minibatches.exact_likelihood import exact_gradient, exact_likelihood
from gpexplorer.methods.minibatches.minimax import gram_per_row
from gpexplorer.problem import Outcome, Problem
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
    """While theta moves: the means of tr(N F) / D, with the N that stands for F^-1, and of |A - F| / |F|."""
    minimax = method("minimax", batch_size=16, layers=2, width=32, activation="relu", **settings)
    model, learner = begun(minimax, problem(n=480, shift=0.4))
    inverses, distances = [], []
    for t in range(epochs * 30):
        learner.move(t)
        if t >= epochs * 15 and t % 15 == 0:
            exact = exact_likelihood(model, learner.parameters.theta)
            N, factor = learner.inverse_of_F(t)
            inverses.append(factor * float((N * (exact.L @ exact.L.T)).sum()) / model.D)
            distances.append(learner.gap(exact)[0])
    return sum(inverses) / len(inverses), sum(distances) / len(distances)


def test_the_multiplier_of_minimax_lags_behind_features_that_move_and_less_at_a_smaller_learning_rate():
    inverse, distance = lag(multiplier="plain")
    inverse_if_slow, distance_if_slow = lag(multiplier="plain", rate=1e-4)

    assert inverse > 1.15
    assert inverse_if_slow == pytest.approx(1.0, abs=0.1)
    assert distance_if_slow < 0.5 * distance


def test_while_features_move_the_matrix_of_minimax_stays_near_the_inverse():
    inverse, _ = lag()

    assert inverse == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize(("multiplier", "damping"), [("corrected", 2.0), ("plain", 2.0), ("corrected", 1.0)])
def test_if_features_grow_at_a_constant_rate_the_delays_are_those_of_their_formulas_and_cancel(
    multiplier: str, damping: float
):
    settings = {"layers": 0, "batch_size": 40, "rate": 1e-12, "damping": damping, "multiplier": multiplier}
    model, learner = begun(method("minimax", **settings), problem(noise=0.1))
    theta, growth, a, b = learner.parameters.theta, 1e-5, learner.a, learner.b
    theta[3] += 2.0  # the constant: |A|, which also scales the multiplier, hardly depends on the inputs that grow
    learner.refresh = 1
    learner.before(1)
    learner.refresh = 0
    learner.B.copy_(learner.A_inverse * (-learner.A_norm / learner.mu))

    for t in range(400 if multiplier == "corrected" else 800):  # the slowest rate of decay is b / 2, or b / 2.7
        theta[0] += 0.5 * growth
        learner.move(t)

    F = gram_per_row(model, exact_likelihood(model, theta))
    l = 0.25 if multiplier == "corrected" else 0.0  # noqa: E741 - the letter of minimax.py
    x = (1.0 - 2.0 * l) * growth / (b + 2.0 * damping * l * a)
    z = 2.0 * growth / a + (2.0 * damping - 1.0) * x
    N, factor = learner.inverse_of_F(0)
    ahead, behind, corrected = (
        float((matrix * F).sum()) - model.D
        for matrix in (learner.A_inverse, learner.B * (-learner.mu / learner.A_norm), N * (factor * model.n))
    )
    assert ahead == pytest.approx(-x, rel=0.08)  # the formulas leave out terms of the relative order a
    assert behind == pytest.approx(z, rel=0.08)
    assert corrected == pytest.approx(0.0 if multiplier == "corrected" else z, abs=0.08 * z)


def outcome_of(method: Any, at: Problem, gaps: list[float] | None = None) -> Outcome:
    """The outcome of a run; the relative errors of its matrix are added to `gaps`."""
    steps = method.steps(at)
    while True:
        try:
            info = next(steps).info
        except StopIteration as end:
            return end.value
        if gaps is not None:
            gaps.append(info.gap)


def test_minimax_without_damping_says_that_its_matrix_diverged():
    undamped = method(
        "minimax", batch_size=3, damping=0.0, rate_scaling="constant", epochs=60, evaluate_every=2, **WIDE
    )
    values: list[float] = []
    outcome = outcome_of(undamped, problem(n=96), values)

    assert outcome.reason == "diverged"
    assert "Raise damping" in outcome.message
    assert all(value < 100.0 for value in values if value == value)


@pytest.mark.parametrize(("damping", "validation", "is_far"), [(0.0, 0.0, True), (0.0, 0.2, True), (2.0, 0.0, False)])
def test_the_outcome_says_if_the_matrix_of_minimax_is_far_from_f(damping: float, validation: float, is_far: bool):
    short = {"batch_size": 4, "width": 12, "epochs": 30, "evaluate_every": 30, "folds": 1}
    minimax = method("minimax", damping=damping, validation=validation, activation="relu", **short)

    outcome = outcome_of(minimax, problem(n=96))

    assert outcome.reason == "budget"
    assert ("no longer represents" in outcome.message) == is_far
