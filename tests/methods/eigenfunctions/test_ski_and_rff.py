"""Interpolation from the grid and random Fourier features, with the likelihood of the eigenfunctions."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import KernelError, SettingError
from gpexplorer.features.basis_choices import Fourier, Interpolated, interpolation
from gpexplorer.features.grid_eigenfunctions import Grid
from gpexplorer.features.random_fourier import KINDS, RandomFourier
from gpexplorer.methods.base import registry
from gpexplorer.methods.eigenfunctions.evidence import evidence_gradient, regress
from gpexplorer.problem import Dataset, Problem
from oracles_grief import nlml, predicted, problem

SHIFTS = [0.0, 1000.0]


def choice_of(kind: str, task: Problem):
    if kind == "rff":
        return Fourier(RandomFourier(task.train.d, 14, "paired", 0).to(task.theta))
    grid = Grid(task.kernel, task.train.X, 6)
    return Interpolated(grid, grid.spectrum(task.theta, 12).axis_indices)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("points", [2, 3, 4, 9])
def test_interpolation_is_exact_for_cubics_and_zero_outside_the_axis(points: int, shift: float):
    U = shift + torch.linspace(-1.0, 2.0, points, dtype=torch.float64)
    x = shift + torch.linspace(-0.99, 1.99, 57, dtype=torch.float64)
    E = interpolation(U, x)

    for power in range(min(points, 4)):
        torch.testing.assert_close((U - shift) ** power @ E, (x - shift) ** power, rtol=1e-9, atol=1e-9)
    assert not interpolation(U, torch.stack([U[0] - 1.0, U[-1] + 1.0])).any()
    torch.testing.assert_close(interpolation(U, U), torch.eye(points, dtype=torch.float64), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("place", "used"),
    [(0.0, [0, 1, 2, 3]), (0.4, [0, 1, 2, 3]), (1.5, [0, 1, 2, 3]), (3.5, [2, 3, 4, 5]), (6.9, [4, 5, 6, 7])],
)
def test_interpolation_uses_the_four_nearest_points(place: float, used: list[int]):
    U = torch.linspace(2.0, 9.0, 8, dtype=torch.float64)
    weights = interpolation(U, torch.tensor([2.0 + place], dtype=torch.float64))[:, 0]
    assert set(weights.nonzero()[:, 0].tolist()) <= set(used)
    if place % 1.0:
        assert weights.nonzero()[:, 0].tolist() == used
    for j in used:  # Lagrange's formula
        others = [i for i in used if i != j]
        wanted = math.prod((place - i) / (j - i) for i in others)
        assert float(weights[j]) == pytest.approx(wanted, abs=1e-12)


def test_a_fingerprint_depends_on_theta_but_its_noise_and_on_functions_and_grid():
    task = problem()
    method = registry["ski"](num_eigenfunctions=9, grid_points=6, learn=False)
    choice = method.eigenfunctions(task, next(method.steps(task)).state)
    theta = task.theta.clone()
    before = choice.fingerprint(theta)
    theta[-1] += 1.0
    assert choice.fingerprint(theta) == before
    for k in range(len(theta) - 1):
        theta[k] += 1e-3
        assert choice.fingerprint(theta) != before
        before = choice.fingerprint(theta)


@pytest.mark.parametrize("shift", SHIFTS)
def test_all_functions_together_equal_the_interpolated_kernel(shift: float):
    task = problem(shift)
    grid = Grid(task.kernel, task.train.X, 5)
    choice = Interpolated(grid, grid.spectrum(task.theta, 25).axis_indices)
    K = torch.ones(60, 60, dtype=torch.float64)
    for q, k in enumerate(grid.axis_kernels(task.theta)):
        E = interpolation(grid.axes[q], task.train.X[:, q])
        K *= E.T @ k(grid.axes[q], grid.axes[q]) @ E

    F = choice(task.theta)(task.train.X)

    torch.testing.assert_close(F.T @ F, K, rtol=1e-7, atol=1e-8)


def test_interpolation_converges_to_the_kernel_on_finer_grids():
    task = problem(3.0)
    X, errors = task.train.X, []
    for points in (5, 10, 20):
        grid = Grid(task.kernel, X, points)
        F = Interpolated(grid, grid.spectrum(task.theta, 200).axis_indices)(task.theta)(X)
        errors.append(float((F.T @ F - task.kernel(task.theta, X, X)).abs().max()))

    assert errors[2] < 0.1 * errors[1] < 0.1 * errors[0]


@pytest.mark.parametrize("shift", SHIFTS)
def test_beyond_its_grid_ski_follows_the_dense_process_without_a_jump_and_becomes_the_prior(shift: float):
    task = problem(shift, d=1)
    method = registry["ski"](learn=False, grid_points=20)
    *_, last = method.steps(task)
    axis = method.grid(task).axes[0]
    end, beyond = axis[-1], torch.tensor([0.0, 1e-6, 0.2, 0.5, 1.0, 80.0], dtype=torch.float64)
    K = task.kernel(task.theta, task.train.X, task.train.X)
    A = K + torch.exp(2 * task.theta[-1]) * torch.eye(len(K), dtype=K.dtype)
    for x in ((end + beyond)[:, None], (axis[0] - beyond)[:, None]):
        cross = task.kernel(task.theta, x, task.train.X)
        mean, var = method.posterior(task, last.state)(x)

        torch.testing.assert_close(mean, cross @ torch.linalg.solve(A, task.train.y), rtol=0, atol=2e-3)
        exact = task.kernel.diag(task.theta, x) - (cross * torch.linalg.solve(A, cross.T).T).sum(1)
        torch.testing.assert_close(var, exact, rtol=0, atol=2e-3)
        assert float((mean[1] - mean[0]).abs()) < 1e-5
        assert float((var[1] - var[0]).abs()) < 1e-5
        assert abs(float(mean[3])) > 0.02  # it is not the prior


def test_a_row_beyond_the_grid_on_one_input_keeps_what_the_other_inputs_say():
    task = problem(3.0)
    grid = Grid(task.kernel, task.train.X, 20)
    choice = Interpolated(grid, grid.spectrum(task.theta, 200).axis_indices).keeping(task.theta)
    X = task.train.X[:5].clone()
    X[:, 1] = grid.axes[1][-1] + 0.3
    K = choice(task.theta)(X).T @ choice(task.theta)(task.train.X)

    torch.testing.assert_close(K, task.kernel(task.theta, X, task.train.X), rtol=0, atol=2e-3)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", KINDS)
def test_many_random_features_approximate_the_kernel_with_ard_lengthscales(kind: str, shift: float):
    task = problem(shift)
    theta = torch.tensor([0.2, 0.5, -0.6, -1.0], dtype=torch.float64)
    F = Fourier(RandomFourier(2, 3_000, kind, 1).to(theta))(theta)(task.train.X)

    torch.testing.assert_close(F.T @ F, task.kernel(theta, task.train.X, task.train.X), rtol=0, atol=0.2)


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("kind", ["ski", "rff"])
def test_likelihood_and_gradient_equal_dense_algebra(kind: str, shift: float):
    task = problem(shift)
    choice = choice_of(kind, task)

    def dense(theta: torch.Tensor) -> torch.Tensor:
        return nlml(choice(theta)(task.train.X).T, task.train.y, torch.exp(2 * theta[-1]))

    regression = regress(choice, task.theta, task.train)
    gradient = evidence_gradient(choice, task.theta, task.train, regression)

    assert regression.value == pytest.approx(dense(task.theta).item(), rel=1e-8)
    for k in range(len(task.theta)):
        step = torch.zeros_like(task.theta)
        step[k] = 1e-5
        rise = (dense(task.theta + step) - dense(task.theta - step)).item() / 2e-5
        assert float(gradient[k]) == pytest.approx(rise, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("kind", ["ski", "rff"])
def test_predictions_equal_dense_algebra(kind: str):
    task = problem(4.0)
    small = (
        {"num_features": 14, "frequencies": "paired"} if kind == "rff" else {"num_eigenfunctions": 12, "grid_points": 6}
    )
    method = registry[kind](learn=False, **small)
    *_, last = method.steps(task)
    choice = choice_of(kind, task)
    X = task.train.X[:5] + 0.02
    Phi, at = choice(task.theta)(task.train.X).T, choice(task.theta)(X).T
    s2 = float(torch.exp(2 * task.theta[-1]))

    mean, var = method.posterior(task, last.state)(X)
    expected, covariance = predicted(Phi, at, task.train.y, s2, torch.ones(len(choice), dtype=torch.float64))

    torch.testing.assert_close(mean, expected, rtol=1e-7, atol=1e-8)
    torch.testing.assert_close(var, covariance.diagonal(), rtol=1e-6, atol=1e-8)


def test_problems_without_features_are_refused_with_a_reason():
    task = problem()
    rough = Problem(task.train, kernels.make("matern52-ard", 2), task.theta)
    words = Problem(Dataset(["a", "b"], task.train.y[:2]), task.kernel, task.theta)
    for key, sentence in (("rff", "those of the Gaussian kernel"), ("ski", "is no product over its 2 inputs")):
        with pytest.raises(KernelError, match=sentence):
            list(registry[key]().steps(rough))
        with pytest.raises(SettingError, match="columns of numbers"):
            list(registry[key]().steps(words))
