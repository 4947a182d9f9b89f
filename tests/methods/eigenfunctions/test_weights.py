"""Weights that are optimised and not sampled, and the grid as a preconditioner of exact solves."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import KernelError
from gpexplorer.features.grid_eigenfunctions import grid_root
from gpexplorer.linalg.conjugate_gradients import begin, cg
from gpexplorer.linalg.preconditioners import woodbury
from gpexplorer.methods.eigenfunctions.grief import FLAT, SMALLEST_LOG, Grief, fisher_scoring, optimise_weights
from gpexplorer.methods.eigenfunctions.orthogonal_basis import OrthogonalBasis, likelihood, likelihood_terms
from gpexplorer.methods.eigenfunctions.sampling.target import Target, log_normal
from gpexplorer.methods.langevin import Density
from oracles_grief import predicted, problem


def made(r: int = 12, n: int = 200) -> OrthogonalBasis:
    rng = torch.Generator().manual_seed(2)
    e = torch.logspace(3, -3, r, dtype=torch.float64)
    u = 3.0 * e.sqrt() * torch.randn(r, generator=rng, dtype=torch.float64)
    return OrthogonalBasis(torch.eye(r, dtype=torch.float64), e, u, 0.5 * (n - r), n)


def test_weights_of_highest_likelihood_equal_their_formula_or_reach_the_lower_bound():
    basis = made()

    z = optimise_weights(basis, FLAT, FLAT)

    s2 = float(z[-1].exp())
    formula = (basis.u.square() - s2) / basis.e
    alive = formula > 1e-3
    assert 3 <= int(alive.sum()) < 12
    torch.testing.assert_close(z[:-1].exp()[alive], formula[alive], rtol=1e-3, atol=0)
    assert float((z[:-1].exp() * basis.e)[formula < 0].max()) < 1e-2 * s2
    assert float(z.min()) >= SMALLEST_LOG
    lost = basis.rest + float(basis.u.square()[formula < 0].sum())
    assert s2 == pytest.approx(lost / (basis.n - int((formula > 0).sum())), rel=1e-2)


def test_an_unbounded_ascent_stops_at_the_lower_bound():
    """If a density grows without bound as weights vanish, the weights stay representable."""

    def decreasing(z: torch.Tensor) -> Density:
        return Density(-z.sum(1), -torch.ones_like(z))

    result = fisher_scoring(decreasing, torch.zeros(3, dtype=torch.float64), torch.ones_like)

    assert result.tolist() == [SMALLEST_LOG] * 3


@pytest.mark.parametrize("shift", [0.0, 1000.0])
@pytest.mark.parametrize("weights", ["posterior", "likelihood"])
def test_optimised_weights_fit_better_and_predict_as_dense_algebra(weights: str, shift: float):
    task = problem(shift)
    method = Grief(num_eigenfunctions=15, grid_points=6, learn=False, basis="eigenvalues", weights=weights)
    *_, before, last = method.steps(task)
    basis, z, choice = method.optimised_weights(task, last.state)
    X = task.train.X[:6] + 0.05
    grid_phi = [choice(task.theta)(Z).T for Z in (task.train.X, X)]
    Phi, at = (part @ basis.V for part in grid_phi)

    mean, var = method.posterior(task, last.state)(X)
    expected, covariance = predicted(Phi, at, task.train.y, math.exp(float(z[-1])), z[:-1].exp())

    assert last.state.objective < before.state.objective - 1
    torch.testing.assert_close(mean, expected, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(var, covariance.diagonal(), rtol=1e-5, atol=1e-7)


def test_a_run_resumed_from_any_state_ends_with_the_same_weights_and_message():
    task = problem()
    method = Grief(
        num_eigenfunctions=9,
        grid_points=4,
        subset=20,
        evaluations=2,
        max_rounds=2,
        basis="eigenvalues",
        weights="posterior",
    )
    states, outcome = played(method, task, None)

    for k in (0, 2, len(states) - 2, len(states) - 1):
        rest, again = played(method, task, states[k])
        assert again == outcome
        assert len(rest) == len(states) - k - 1
        assert not rest or rest[-1].objective == pytest.approx(states[-1].objective, rel=1e-9)


def played(method: Grief, task, resume) -> tuple[list, object]:
    steps, states = method.steps(task, resume), []
    while True:
        try:
            states.append(next(steps).state)
        except StopIteration as end:
            return states, end.value


def test_the_mode_is_a_mode():
    basis = made()
    weights, noise = log_normal(1.0, 100.0), log_normal(0.5, 0.04)
    z = optimise_weights(basis, weights, noise)

    gradient = Target(basis, weights, noise).density()(z[None]).gradient[0]

    assert float(gradient.abs().max()) < 1e-2
    assert float(likelihood(likelihood_terms(basis), z[None]).value) > float(
        likelihood(likelihood_terms(basis), 0 * z[None]).value
    )


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_the_grid_as_a_preconditioner_saves_most_iterations(shift: float):
    task = problem(shift, n=150)
    s2 = 1e-3
    A = task.kernel(task.theta, task.train.X, task.train.X) + s2 * torch.eye(150, dtype=torch.float64)
    root = grid_root(task.kernel, task.theta, task.train.X, 60)
    apply = woodbury(root, s2)
    v = torch.randn(150, generator=torch.Generator().manual_seed(1), dtype=torch.float64)

    dense = torch.linalg.solve(root @ root.T + s2 * torch.eye(150, dtype=torch.float64), v)
    torch.testing.assert_close(apply(v), dense, rtol=1e-6, atol=1e-8 * float(dense.abs().max()))

    def iterations(preconditioner) -> int:
        start = begin(lambda x: A @ x, task.train.y, torch.zeros_like(task.train.y), preconditioner)
        for k, at in enumerate(cg(lambda x: A @ x, start, preconditioner), 1):
            if float(at.r.abs().max()) < 1e-6 or k > 500:
                return k
        return 500

    assert iterations(apply) < 0.25 * iterations(lambda r: r)


def test_a_kernel_that_is_not_a_product_has_no_grid_root():
    task = problem()
    with pytest.raises(KernelError, match="is no product over its 2 inputs"):
        grid_root(kernels.make("matern52-ard", 2), task.theta, task.train.X, 5)
