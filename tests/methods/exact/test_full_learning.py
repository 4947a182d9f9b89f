"""Hyperparameters of the full GP from stochastic gradients, beside the dense likelihood."""

from __future__ import annotations

import math
from itertools import islice

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.linalg.blocks import row_blocks
from gpexplorer.methods.exact import gbcd
from gpexplorer.methods.exact.gbcd import (
    GBCD,
    adam_step,
    likelihood_gradient,
    rademacher,
)
from gpexplorer.methods.exact.system import SolverState
from gpexplorer.objectives import evidence
from gpexplorer.problem import Dataset, Problem

CASES = {  # kernel, shift of the inputs, log noise, log lengthscale
    "origin": ("se-ard", 0.0, -1.2, -0.4),
    "far away": ("matern32-ard", 1000.0, -1.2, -0.4),
    "high signal": ("se-ard", 0.0, -5.0, -0.4),
    "short lengthscale": ("se-ard", 0.0, -1.2, -6.0),
}
SMALL = {"learn": False, "block": 40, "coarse": 20, "chunk": 10}


def task(name: str, n: int = 90) -> Problem:
    """Rows drawn from a GP with these hyperparameters."""
    key, shift, noise, scale = CASES[name]
    rng = torch.Generator().manual_seed(7)
    X = 3.0 * torch.rand(n, 2, generator=rng, dtype=torch.float64)
    kernel, theta = kernels.make(key, 2), torch.tensor([0.2, scale, scale + 0.5, noise], dtype=torch.float64)
    A = kernel(theta, X, X) + math.exp(2 * noise) * torch.eye(n, dtype=torch.float64)
    y = torch.linalg.cholesky(A) @ torch.randn(n, generator=rng, dtype=torch.float64)
    return Problem(Dataset(X + shift, y), kernel, theta)


@pytest.mark.parametrize("name", CASES)
def test_with_probes_whose_products_add_up_to_the_identity_the_gradient_is_the_dense_one(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(gbcd, "row_blocks", lambda n, row_bytes, like: row_blocks(n, row_bytes, like, 17 * row_bytes))
    problem = task(name)
    theta = problem.theta + torch.tensor([0.3, -0.2, 0.1, 0.2], dtype=torch.float64)
    X, y = problem.train.X, problem.train.y
    A = problem.kernel(theta, X, X) + float((2 * theta[-1]).exp()) * torch.eye(90, dtype=torch.float64)
    Q = torch.linalg.qr(torch.randn(90, 90, generator=torch.Generator().manual_seed(0), dtype=torch.float64)).Q
    Z = math.sqrt(90) * Q

    gradient = likelihood_gradient(problem, theta, torch.linalg.solve(A, y), torch.linalg.solve(A, Z), Z)

    expected = evidence(problem.kernel, theta, problem.train)[1]
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-7 * float(expected.abs().max()))


def test_the_mean_of_many_random_probes_is_the_dense_gradient():
    problem = task("origin")
    X, y, theta = problem.train.X, problem.train.y, problem.theta
    A = problem.kernel(theta, X, X) + float((2 * theta[-1]).exp()) * torch.eye(90, dtype=torch.float64)
    Z = rademacher(90, 4000, 3)
    assert set(Z.unique().tolist()) == {-1.0, 1.0}

    gradient = likelihood_gradient(problem, theta, torch.linalg.solve(A, y), torch.linalg.solve(A, Z), Z)

    torch.testing.assert_close(gradient, evidence(problem.kernel, theta, problem.train)[1], rtol=0, atol=1.0)


def test_the_step_is_that_of_adam():
    torch.manual_seed(0)
    leaf = torch.tensor([1.0, -2.0, 0.5], requires_grad=True)
    reference = torch.optim.Adam([leaf], lr=0.1, betas=(0.9, 0.99), eps=0.0)
    theta, moments = leaf.detach().clone(), torch.zeros(0)
    for number in range(1, 5):
        gradient = torch.tensor([1.0, -3.0, 0.2]) * number
        leaf.grad = gradient.clone()
        reference.step()
        theta, moments = adam_step(theta, gradient, moments, number, 0.1)
        torch.testing.assert_close(theta, leaf.detach())


@pytest.mark.parametrize("name", ["origin", "far away"])
def test_steps_on_all_rows_equal_those_of_dense_algebra(name: str):
    """A block and the coarse rows are all rows here: one block solves for every column above its limit."""
    problem, Z = task(name), rademacher(90, 3, 5)
    X, y, theta = problem.train.X, problem.train.y, problem.theta + 0.1
    begin = SolverState(theta, torch.zeros(90).double(), gradient=torch.zeros(0).double(), phase="full")
    sizes = {"block": 60, "chunk": 10, "coarse": 30, "shortlist": 0}
    method = GBCD(**sizes, full_steps=8, probes=3, rate=0.05, cache=0.0, seed=5)
    R = torch.cat([y[:, None], Z], 1)
    V, kept = torch.zeros_like(R), []
    adam = torch.optim.Adam([theta.clone().requires_grad_()], lr=1.0, betas=(0.9, 0.99), eps=0.0)
    (leaf,) = adam.param_groups[0]["params"]

    for number, (state, info) in enumerate(method.learn_on_all(problem, begin)):
        s2 = float((2 * leaf.detach()[-1]).exp())
        A = problem.kernel(leaf.detach(), X, X) + s2 * torch.eye(90, dtype=torch.float64)
        limits = torch.tensor([0.1 * math.sqrt(90 * s2), *[0.05 * math.sqrt(90)] * 3]).double()
        within = (A @ V - R).norm(dim=0) <= limits
        V = torch.where(within, V, torch.linalg.solve(A, R))
        kept.append(within.tolist())
        torch.testing.assert_close(torch.cat([state.alpha[:, None], state.probes], 1), V, rtol=1e-5, atol=1e-6)
        leaf.grad = likelihood_gradient(problem, leaf.detach(), V[:, 0], V[:, 1:], Z)
        adam.param_groups[0]["lr"] = 0.05 * (1.0 - number / 8)
        adam.step()
        assert state.position == number + 1
        assert info.likelihood_gradient == pytest.approx(float(leaf.grad.norm()) / 90, rel=1e-5)
        torch.testing.assert_close(state.theta, leaf.detach(), rtol=1e-6, atol=1e-6)

    assert len(kept) == 8
    assert {column for step in kept for column in step} == {True, False}
    assert kept[0] == [False] * 4


@pytest.mark.parametrize("name", ["origin", "far away", "high signal"])
def test_learning_on_all_rows_comes_close_to_the_dense_maximum_of_the_likelihood(name: str):
    problem = task(name)
    start = problem.theta + torch.tensor([0.8, 0.7, -0.7, 0.9], dtype=torch.float64)
    method = GBCD(**SMALL, full_steps=60, probes=24, rate=0.1, tolerance=1e-4)

    steps = list(method.steps(Problem(problem.train, problem.kernel, start)))

    value = {
        place: evidence(problem.kernel, theta, problem.train)[0]
        for place, theta in (("start", start), ("truth", problem.theta), ("learned", steps[-1].state.theta))
    }
    loss = value["start"] - value["truth"]
    assert value["learned"] - value["truth"] < max(1.0, 0.05 * loss) < 0.1 * loss
    learned = [step for step in steps if step.state.phase == "full"]
    assert len(learned) == 60
    assert learned[-1].info.likelihood_gradient < 0.3 * learned[0].info.likelihood_gradient
    assert steps[-1].state.phase == "solve"
    A = problem.kernel(steps[-1].state.theta, problem.train.X, problem.train.X)
    A.diagonal().add_(float((2 * steps[-1].state.theta[-1]).exp()))
    assert float((A @ steps[-1].state.alpha - problem.train.y).abs().max()) <= 2e-4
    assert not steps[-1].state.probes.numel()  # what was needed for learning only is dropped


def test_a_run_that_is_resumed_while_it_learns_continues_as_if_it_had_not_stopped():
    problem = task("origin")
    method = GBCD(**SMALL, full_steps=6, probes=4)
    whole = [step.state for step in method.steps(problem)]

    resumed = [step.state for step in method.steps(problem, whole[3])]

    assert len(resumed) == len(whole) - 4
    torch.testing.assert_close(resumed[1].theta, whole[5].theta, rtol=1e-12, atol=0)
    torch.testing.assert_close(resumed[-1].alpha, whole[-1].alpha, rtol=1e-9, atol=1e-12)
    first = next(islice(GBCD(**SMALL, full_steps=6, probes=4, seed=1).steps(problem), 1, None)).state
    assert not torch.equal(first.theta, whole[1].theta)  # the seed draws the probes
