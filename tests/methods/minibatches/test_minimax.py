"""MINIMAX: gradients of the saddle against autograd, constraints after every step, and A = F where it ends."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from gpexplorer.linalg.cholesky import project_above, project_to_unit_ball
from gpexplorer.methods.minibatches.exact_likelihood import exact_likelihood
from oracles_minibatches import begun, method, problem, saddle

FLAT = {"metric": "flat", "mu": 3.0, "rate_ascent": 1e-3}


def symmetric(n: int) -> Tensor:
    draw = torch.randn(n, n, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return draw + draw.T


def off_the_saddle(learner: Any) -> None:
    """Anywhere but at the start, where much vanishes."""
    learner.parameters.w += 0.2
    learner.A += 0.3 * torch.eye(len(learner.A), dtype=torch.float64)
    learner.A += 0.01 * symmetric(len(learner.A))
    learner.B.copy_(0.1 * symmetric(len(learner.B)) / len(learner.B))
    learner._project_and_invert(learner.parameters)


@pytest.mark.parametrize("settings", [{}, {"kernel": "gaussian"}, {"layers": 0}])
@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_the_gradient_is_that_of_the_saddle_and_its_mean_over_minibatches(settings: dict, shift: float):
    at = problem(shift=shift)
    model, learner = begun(method("minimax", **FLAT, **settings), at)
    off_the_saddle(learner)
    n, point = model.n, learner.parameters
    parts = [part.clone().requires_grad_() for part in (point.theta, point.w, n * learner.A)]
    want = torch.autograd.grad(saddle(model, *parts, learner.B, mu=3.0), parts)

    value = learner.gradient(torch.arange(40), 0)
    whole = point.g.clone()
    order = torch.randperm(40, generator=torch.Generator().manual_seed(1)).view(5, 8)
    mean = torch.stack([learner.gradient(rows, 0) * 0 + point.g for rows in order]).mean(0)

    theirs = torch.cat([want[1], want[0], n * want[2].flatten()])  # A is moved as A / n
    torch.testing.assert_close(whole, theirs, rtol=1e-8, atol=1e-9)
    torch.testing.assert_close(mean, whole, rtol=1e-8, atol=1e-9)
    assert float(value) / 2 == pytest.approx(float(saddle(model, *parts, learner.B, mu=3.0).detach()))


def test_the_ascent_follows_the_gradient_in_b():
    at = problem()
    model, learner = begun(method("minimax", optimiser="sgd", batch_size=40, **FLAT), at)
    off_the_saddle(learner)
    B = learner.B.clone().requires_grad_()

    learner.after(0, *learner.indices(0)[1:])

    parts = learner.parameters.theta, learner.parameters.w, model.n * learner.A
    slope = torch.autograd.grad(saddle(model, *parts, B, mu=3.0), B)[0]
    torch.testing.assert_close(learner.B, B.detach() + 1e-3 * slope, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("settings", [{}, {"mu": 2.0, "mu_growth": 3.0}, FLAT, {**FLAT, "optimiser": "adadelta"}])
def test_constraints_hold_after_every_minibatch(settings: dict):
    wild = {"rate": 0.1, "batch_size": 4, "noise_floor": 0.25, "rate_matrix": 0.3, **settings, "rate_ascent": 0.3}
    model, learner = begun(method("minimax", **wild), problem())

    for t in range(60):
        learner.move(t)
        least = float(torch.linalg.eigvalsh(learner.A)[0]) * model.n
        assert least >= float(learner.parameters.s2()) * (1.0 - 1e-6)
        assert float(learner.B.norm()) <= 1.0 + 1e-12
        assert float(learner.parameters.theta[-1].exp()) >= 0.25 - 1e-12
        torch.testing.assert_close(learner.A, learner.A.T)


@pytest.mark.parametrize("shift", [0.0, 2.0])
@pytest.mark.parametrize("multiplier", ["corrected", "plain"])
def test_in_the_affine_metric_both_steps_are_those_of_their_formulas(shift: float, multiplier: str):
    settings = {"batch_size": 16, "mu": 3.0, "rate_matrix": 0.1, "multiplier": multiplier}
    model, learner = begun(method("minimax", **settings), problem(shift=shift))
    off_the_saddle(learner)
    A, B, mu, n, eye = learner.A.clone(), learner.B.clone(), 3.0, model.n, torch.eye(model.D, dtype=torch.float64)
    index, other = learner.rows(0), learner.ascent_rows(0)
    assert not torch.equal(index, other)

    def per_row(rows: Tensor) -> Tensor:
        """F / n by these rows, with the noise of now."""
        Phi = model.features(learner.parameters.parts, model.rows(rows)[0]).Phi
        return Phi.T @ Phi / len(rows) + learner.parameters.s2() / n * eye

    learner.gradient(index, 0)
    F, s2 = per_row(index), learner.parameters.s2()
    learner.parameters.theta[-1] += 0.2
    learner.parameters.project(-9.0, 1e3)  # as after each move, which reads the noise once
    moved = (learner.parameters.s2() - s2) / n * eye
    learner.after(0, *learner.indices(0)[1:])

    M = -mu * B / A.norm()
    down = 2.0 * torch.linalg.inv(torch.linalg.inv(A) + M) - A
    wanted = A - 0.1 * down - 0.1 * learner.kappa * (A - F) + moved
    torch.testing.assert_close(learner.A, wanted)
    inverse = torch.linalg.inv(wanted)
    up = inverse @ (wanted - per_row(other)) @ inverse
    damping = 0.25 * 0.1 if multiplier == "corrected" else 0.0  # of B towards the B whose multiplier is the inverse
    towards = B + inverse * wanted.norm() / mu
    torch.testing.assert_close(
        learner.B, project_to_unit_ball(B + learner.b * wanted.norm() / mu * up - damping * towards)
    )


@pytest.mark.parametrize("optimiser", ["adam", "sgd"])
def test_the_weights_of_features_follow_recursive_least_squares_and_no_optimiser(optimiser: str):
    """The inverse is that of A, which stands for the Gram matrix of earlier rows."""
    settings = {"batch_size": 16, "rate_matrix": 0.1, "optimiser": optimiser}
    model, learner = begun(method("minimax", **settings), problem(shift=1.5))
    off_the_saddle(learner)
    w, index, a = learner.parameters.w.clone(), learner.rows(0), learner.a
    X, y = model.rows(index)
    Phi, s2 = model.features(learner.parameters.parts, X).Phi, float(learner.parameters.s2())
    d = Phi.T @ (y - Phi @ w) / len(y) - s2 / model.n * w
    p = torch.linalg.solve(learner.A, d)
    wanted = w + p * min(a, float((d @ p) / (Phi @ p).square().mean()))

    learner.move(0)

    torch.testing.assert_close(learner.parameters.w, wanted)
    assert float((wanted - w).norm()) > 1e-3 * float(w.norm())
    _, descends = begun(method("minimax", head="descend", **settings), problem(shift=1.5))
    off_the_saddle(descends)
    descends.move(0)
    assert not torch.allclose(descends.parameters.w, wanted)


@pytest.mark.parametrize("growth", [10.0, 1e3, 1e6])
def test_weights_of_features_that_grow_faster_than_a_follows_stay_bounded(growth: float):
    """With many features, the first moves of theta enlarge the smallest eigenvalues of F by factors of thousands."""
    model, learner = begun(method("minimax", batch_size=8, rate=1e-300), problem(shift=1.5))
    learner.parameters.theta[-2] += 0.5 * math.log(growth)
    X, y = model.rows(slice(None))
    Phi = model.features(learner.parameters.parts, X).Phi
    before = float((Phi @ learner.parameters.w - y).norm())
    for t in range(12):
        learner.move(t)
        assert float((Phi @ learner.parameters.w - y).norm()) < max(before, 3.0 * float(y.norm()))
    assert learner.divergence() == ""


def test_where_theta_rests_the_weights_of_features_become_the_posterior_mean():
    model, learner = begun(method("minimax", batch_size=8, rate=1e-300), problem())
    exact = exact_likelihood(model, learner.parameters.theta).w
    learner.parameters.w.zero_()

    learner.take(0, 600)

    error = model.features(learner.parameters.parts, model.rows(slice(None))[0]).Phi @ (learner.parameters.w - exact)
    assert float(error.square().mean().sqrt()) < 0.1 * float(learner.parameters.s2()) ** 0.5


@pytest.mark.parametrize("turned", [(-3.0, 0.7), (-0.99, -1.5)])
def test_a_multiplier_that_noise_turned_is_held_where_the_step_of_a_is_bounded(turned: tuple[float, float]):
    model, learner = begun(method("minimax", mu=3.0), problem())
    A = learner.A.clone()
    values, Q = torch.linalg.eigh(A)
    along = torch.ones(model.D, dtype=torch.float64)
    along[[0, -1]] = torch.tensor(turned, dtype=torch.float64)  # of A^-1, in the first and the last eigenvector
    scale = 3.0 / learner.A_norm
    learner.B.copy_((Q * (along / values)) @ Q.T / -scale)

    mean = learner._half_harmonic_mean(scale)

    M = (Q * (along.clamp_min(-0.5) / values)) @ Q.T
    torch.testing.assert_close(learner.B, M / -scale)
    torch.testing.assert_close(mean, torch.linalg.inv(torch.linalg.inv(A) + M))
    assert float(torch.linalg.eigvalsh(mean)[-1]) <= 2.0 * float(values[-1]) * (1.0 + 1e-9)
    assert torch.equal(learner._half_harmonic_mean(scale), learner._half_harmonic_mean(scale))  # and held it stays


def test_projections_are_the_nearest_points():
    A = symmetric(6)
    floor = 0.5
    near = project_above(A.clone(), floor)

    assert float(torch.linalg.eigvalsh(near)[0]) >= 0.5
    values, Q = torch.linalg.eigh(A)
    torch.testing.assert_close(near, (Q * values.clamp(min=0.5)) @ Q.T, rtol=1e-5, atol=1e-6)
    kept = near + 0.1 * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(project_above(kept.clone(), floor), kept, rtol=0, atol=0)
    torch.testing.assert_close(project_to_unit_ball(A.clone()), A / A.norm())
    torch.testing.assert_close(project_to_unit_ball(0.01 * A), 0.01 * A)


def test_a_becomes_f_where_theta_rests():
    model, learner = begun(method("minimax", batch_size=16, rate=1e-12), problem(n=64))
    learner.A *= 1.7
    learner.B *= 0.5
    learner._project_and_invert(learner.parameters)
    before = learner.gap(exact_likelihood(model, learner.parameters.theta))[0]

    for t in range(400):
        learner.move(t)

    assert before > 0.5
    assert learner.gap(exact_likelihood(model, learner.parameters.theta))[0] < 0.15


def test_the_gap_is_the_distance_of_a_and_f_relative_to_f_and_the_penalty_relative_to_a():
    model, learner = begun(method("minimax", batch_size=8, rate=0.05, mu=3.0), problem())
    for t in range(5):
        learner.move(t)
    exact = exact_likelihood(model, learner.parameters.theta)
    F = (exact.gram + exact.s2 * torch.eye(model.D, dtype=exact.gram.dtype)) / model.n

    gap, penalty = learner.gap(exact)

    assert gap == pytest.approx(float((learner.A - F).norm() / F.norm()), rel=1e-9)
    assert penalty == pytest.approx(3.0 * float((learner.A - F).norm() / learner.A.norm()), rel=1e-9)
    assert abs(gap - 1.0) > 1e-3


def test_mu_grows_from_epoch_to_epoch():
    _, learner = begun(method("minimax", batch_size=8, mu=2.0, mu_growth=3.0), problem())
    per_epoch = learner.rows.per_epoch

    weights = [learner._mu(t) for t in (0, per_epoch - 1, per_epoch, 2 * per_epoch)]
    assert weights == pytest.approx([2.0, 2.0, 6.0, 18.0])


def test_a_refresh_makes_a_exact():
    model, learner = begun(method("minimax", batch_size=8, refresh=5, rate=0.05), problem())
    for t in range(5):
        learner.move(t)
    assert learner.gap(exact_likelihood(model, learner.parameters.theta))[0] > 1e-3

    learner.before(5)

    assert learner.gap(exact_likelihood(model, learner.parameters.theta))[0] < 1e-9


def test_steps_in_the_affine_metric_need_no_eigenvalues(monkeypatch: pytest.MonkeyPatch):
    def refused(*_: object) -> None:
        raise AssertionError("eigenvalues were asked for")

    monkeypatch.setattr(torch.linalg, "eigh", refused)
    model, learner = begun(method("minimax", width=30, activation="relu", batch_size=8, rate=0.02), problem())

    for t in range(60):
        learner.move(t)

    assert model.D > 8
    assert float(torch.linalg.eigvalsh(learner.A)[0]) * model.n >= float(learner.parameters.s2()) * (1.0 - 1e-6)


@pytest.mark.parametrize(
    ("settings", "weight"),
    [
        ({}, 0.05 * 0.5 / (2 * (0.02 + 2.0 * 0.05))),
        ({"rate_matrix": 0.1, "rate_ascent": 0.05, "damping": 0.5}, 0.1 * 0.5 / (2 * (0.05 + 0.5 * 0.1))),
        ({"rate_matrix": 0.1, "rate_ascent": 1e-4, "damping": 0.0}, 1.0),  # never more than M alone
    ],
)
def test_the_multiplier_has_the_weight_with_which_both_delays_cancel(settings: dict, weight: float):
    """w = a (1 - 2 l) / (2 (b + kappa a)) with l = 1/4; w M + (1 - w) A^-1 stands for F^-1."""
    at = problem()
    minimax = method("minimax", batch_size=20, **settings)
    assert minimax.multiplier_terms() == pytest.approx((0.25, weight), rel=1e-12)
    _, learner = begun(minimax, at)
    n, A_inverse = learner.model.n, learner.A_inverse

    def stands_for_inverse(B: Tensor) -> Tensor:
        learner.B.copy_(B)
        matrix, factor = learner.inverse_of_F(0)
        return matrix * factor

    torch.testing.assert_close(stands_for_inverse(torch.zeros_like(A_inverse)), (1.0 - weight) * A_inverse / n)
    M = -float(learner._mu(0)) / float(learner.A_norm)  # M = M B for a matrix B
    torch.testing.assert_close(stands_for_inverse(A_inverse / M), A_inverse / n)  # at A^-1 = M any weight is right
    torch.testing.assert_close(stands_for_inverse(3.0 * A_inverse / M), (1.0 + 2.0 * weight) * A_inverse / n)


@pytest.mark.parametrize(("settings", "diverged", "way_out"), [({}, True, "Raise damping"), (FLAT, False, "Raise mu")])
def test_only_where_A_stands_for_F_has_one_that_is_far_from_it_diverged(settings: dict, diverged: bool, way_out: str):
    """In the paper's form A is far from F on purpose: theta is moved by B alone, and log |A| has no theta in it."""
    model, learner = begun(method("minimax", batch_size=10, **settings), problem())
    exact = exact_likelihood(model, learner.parameters.theta)
    assert learner.divergence(exact) == ""
    learner.A.mul_(1e3)

    assert bool(learner.divergence(exact)) == diverged
    assert way_out in learner.remark(learner.gap(exact)[0])
    learner.B[0, 0] = math.nan
    assert "B has entries that are not finite" in learner.divergence(exact)
