"""Sampled blocks and stochastic dual descent compared with the papers' recursions, written with dense matrices."""

from __future__ import annotations

import itertools
import math
from itertools import islice

import pytest
import torch

from gpexplorer.linalg import preconditioners
from gpexplorer.linalg.preconditioners import sketched_root
from gpexplorer.linalg.randomness import generator
from gpexplorer.methods.exact.blocks.sdd import StochasticDual
from gpexplorer.methods.exact.system import System
from oracles_gbcd import SHIFTS, gram, noise, quick, system, wavy


@pytest.mark.parametrize(("rank", "momentum", "shift"), [(0, True, 0.0), (0, False, 0.0), (30, True, 1000.0)])
def test_sampled_blocks_converge_to_the_alpha_of_a_dense_solution(rank: int, momentum: bool, shift: float):
    task = wavy(shift)
    method = quick("block-nystrom", rank=rank, momentum=momentum, block=60, tolerance=1e-5)
    *_, last = method.steps(task)

    assert last.info.largest <= 1e-5
    expected = torch.linalg.solve(system(task), task.train.y)
    torch.testing.assert_close(last.state.alpha, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("shift", SHIFTS)
def test_sampled_blocks_follow_the_published_recursion(shift: float):
    task = wavy(shift)
    A, y, n, b = system(task), task.train.y, 80, 12
    nu, mu = n / b, min(noise(task) / float(A.diagonal().mean()), b / n)
    beta, gamma = 1 - math.sqrt(mu / nu), 1 / math.sqrt(mu * nu)
    a = 1 / (1 + gamma * nu)
    x, v, z = (torch.zeros(n, dtype=torch.float64) for _ in range(3))
    for k, step in enumerate(islice(quick("block-nystrom", rank=0, tolerance=0.0).steps(task), 1, 9)):
        rows = torch.randperm(n, generator=generator(0, "block", k))[:b]
        d = torch.zeros_like(x)
        d[rows] = torch.linalg.solve(A[rows][:, rows], A[rows] @ z - y[rows])
        x, v = z - d, beta * v + (1 - beta) * z - gamma * d
        z = a * v + (1 - a) * x
        torch.testing.assert_close(step.state.alpha, x, rtol=1e-8, atol=1e-9)
        assert step.info.active.tolist() == rows.tolist()


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_direction_of_a_sketched_block_equals_the_published_one(shift: float):
    """M = Khat + (s2 + lambda_r) I, and a step size that makes the largest eigenvalue of M^-1 A_BB one."""
    task, rows, g = wavy(shift), torch.arange(5, 35), torch.linspace(-1.0, 1.0, 30, dtype=torch.float64)
    A_BB, method = system(task)[rows][:, rows], quick("block-nystrom", rank=4)

    result = method._direction(System(task, task.theta, 1e9), A_BB, 3)(g)  # type: ignore[attr-defined]

    drawn = torch.randn(30, 5, generator=generator(0, "sketch", 3), dtype=torch.float64)
    root = sketched_root(A_BB - noise(task) * torch.eye(30, dtype=g.dtype), drawn[:, 1:])
    least = torch.linalg.svdvals(root)[-1].square()
    M = root @ root.T + (noise(task) + least) * torch.eye(30, dtype=g.dtype)
    largest = torch.linalg.eigvals(torch.linalg.solve(M, A_BB)).real.max()
    torch.testing.assert_close(result, torch.linalg.solve(M, g) / largest.clamp_min(1.0), rtol=0.05, atol=0.0)
    torch.testing.assert_close(result / result.norm(), torch.nn.functional.normalize(torch.linalg.solve(M, g), dim=0))


@pytest.mark.parametrize("shift", SHIFTS)
def test_dual_descent_follows_the_published_recursion(shift: float):
    task = wavy(shift)
    A, y, n, b, rho, r = system(task), task.train.y, 80, 12, 0.8, 0.3
    random = generator(0, "pace")
    rows = torch.randperm(n, generator=random)[:b]
    largest = float(torch.linalg.eigvalsh(A[rows][:, rows])[-1])
    x, v, mean = (torch.zeros(n, dtype=torch.float64) for _ in range(3))
    method = quick("sdd", rate=0.4, momentum=rho, averaging=r, tolerance=0.0)
    for k, step in enumerate(islice(method.steps(task), 1, 12)):
        rows = torch.randperm(n, generator=generator(0, "minibatch", k))[:b]
        g = torch.zeros_like(x)
        g[rows] = (n / b) * (A[rows] @ (x + rho * v) - y[rows])
        v = rho * v - 0.4 / (n / b * largest) * g
        x = x + v
        mean = r * x + (1 - r) * mean
        torch.testing.assert_close(
            step.state.alpha, mean, rtol=1e-4, atol=1e-6
        )  # the power iteration stops before it converges


@pytest.mark.parametrize("shift", SHIFTS)
@pytest.mark.parametrize("key", ["block-nystrom", "sdd"])
def test_the_updated_gradient_equals_the_dense_one(key: str, shift: float):
    task = wavy(shift)
    A, y = system(task), task.train.y
    for step in islice(quick(key).steps(task), 1, 40):
        alpha = step.state.alpha
        assert step.info.largest == pytest.approx(float((A @ alpha - y).abs().max()), rel=1e-6, abs=1e-10)
        assert step.info.objective == pytest.approx(float(0.5 * alpha @ A @ alpha - y @ alpha), rel=1e-8)


def test_dual_descent_comes_close_to_the_dense_predictions():
    task = wavy()
    A, y = system(task), task.train.y
    *_, last = islice(quick("sdd", rate=0.5).steps(task), 600)
    K, exact = gram(task), torch.linalg.solve(A, y)

    assert float((K @ (last.state.alpha - exact)).norm() / (K @ exact).norm()) < 0.02


@pytest.mark.parametrize("shift", SHIFTS)
def test_momentum_is_faster_if_the_noise_is_small_and_never_raises_the_objective(shift: float):
    task = wavy(shift)
    task.theta[-1] = -3.5
    ends = {}
    for momentum in (False, True):
        steps = list(islice(quick("block-nystrom", rank=0, momentum=momentum).steps(task), 1, 300))
        values = [step.info.objective for step in steps]
        assert all(later <= value + 1e-9 * abs(value) for value, later in itertools.pairwise(values))
        ends[momentum] = values[-1]

    assert ends[True] < ends[False] - 10.0


@pytest.mark.parametrize("copies", [1, 12])
def test_too_large_a_rate_is_halved_until_the_descent_converges(copies: int):
    task = wavy(n=60)
    task.train.X[:copies] = task.train.X[0]  # duplicates make the rows of one minibatch more alike than another's
    method = quick("sdd", rate=20.0, block=8, tolerance=1e-3)

    steps = list(islice(method.steps(task), 1, 1500))

    exact = torch.linalg.solve(system(task), task.train.y)
    torch.testing.assert_close(steps[-1].state.alpha, exact, rtol=0.0, atol=0.02)
    halved = next(k for k, step in enumerate(steps) if float(step.state.memory[2]) == 2.0)
    continued = next(islice(method.steps(task, resume=steps[halved].state), 9, None))
    torch.testing.assert_close(continued.state.alpha, steps[halved + 10].state.alpha)


@pytest.mark.parametrize("shift", SHIFTS)
def test_a_sketched_root_is_a_root_of_the_nystrom_approximation(shift: float):
    K = gram(wavy(shift, n=30))
    S = torch.randn(30, 6, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    root = preconditioners.sketched_root(K, S)

    torch.testing.assert_close(root @ root.T, K @ S @ torch.linalg.solve(S.T @ K @ S, S.T @ K), rtol=1e-7, atol=1e-9)


def test_the_power_iteration_finds_the_largest_generalised_eigenvalue():
    A = system(wavy(n=30))
    M = torch.diag(torch.linspace(0.5, 2.0, 30, dtype=torch.float64))
    start = torch.randn(30, generator=torch.Generator().manual_seed(3), dtype=torch.float64)

    eigenvalue = preconditioners.largest_eigenvalue(A, lambda v: v / M.diagonal(), start, turns=60)

    assert eigenvalue == pytest.approx(float(torch.linalg.eigvals(torch.linalg.solve(M, A)).real.max()), rel=1e-4)


def test_momentum_is_dropped_where_the_objective_would_rise_and_a_resumed_run_does_the_same():
    task = wavy()
    method = quick("block-nystrom", rank=0, block=40, tolerance=0.0, max_iterations=60)
    states = [step.state for step in method.steps(task)]
    dropped = [k for k, state in enumerate(states) if k > 1 and torch.equal(state.memory[0], state.alpha)]
    assert dropped
    for k in (dropped[0], dropped[-1], dropped[-1] - 1):
        resumed = next(method.steps(task, states[k])).state
        torch.testing.assert_close(resumed.alpha, states[k + 1].alpha, rtol=1e-8, atol=1e-10)
        torch.testing.assert_close(resumed.memory[0], states[k + 1].memory[0], rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(("block", "log_noise"), [(12, -1.2), (60, -1.2), (12, 0.5), (40, 1.5)])
def test_the_coefficients_of_momentum_follow_from_noise_and_block(block: int, log_noise: float):
    task = wavy()
    theta = task.theta.clone()
    theta[-1] = log_noise
    solver = System(task, theta, 0.0)
    nu = 80 / block
    mu = min(math.exp(2.0 * log_noise) / float(solver.diag.mean()), 1.0 / nu)
    beta, gamma = 1.0 - math.sqrt(mu / nu), 1.0 / math.sqrt(mu * nu)
    result = quick("block-nystrom")._momentum(solver, block)  # type: ignore[attr-defined]
    assert tuple(result) == pytest.approx((beta, gamma, 1.0 / (1.0 + gamma * nu)))
    assert tuple(quick("block-nystrom", momentum=False)._momentum(solver, block)) == (1.0, 0.0, 0.0)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("rank", "sketched"), [(0, False), (1, True), (29, True), (30, False), (99, False)])
def test_a_block_is_inverted_itself_where_the_sketch_would_not_be_smaller(rank: int, sketched: bool):
    task, rows, g = wavy(), torch.arange(5, 35), torch.linspace(-1.0, 1.0, 30, dtype=torch.float64)
    A_BB = system(task)[rows][:, rows]
    result = quick("block-nystrom", rank=rank)._direction(System(task, task.theta, 1e9), A_BB, 3)(g)  # type: ignore[attr-defined]
    exact = torch.linalg.solve(A_BB, g)
    assert torch.allclose(result, exact, rtol=1e-9) != sketched


@pytest.mark.parametrize("refresh", [0, 4])
def test_a_descent_that_was_halved_stays_halved_after_a_refresh_and_a_resumption(refresh: int):
    task = wavy(n=60)
    method = quick("sdd", rate=20.0, block=8, tolerance=0.0, refresh=refresh, max_iterations=60)
    states = [step.state for step in method.steps(task)]
    halvings = [float(state.memory[-1]) for state in states[1:]]
    assert halvings == sorted(halvings)
    assert halvings[-1] > 1.0
    changed = [k for k, (a, b) in enumerate(itertools.pairwise(halvings), 2) if a != b]
    assert all(k % 10 == 0 for k in changed)  # looked at every ten iterations
    assert all(b - a in (0.0, 1.0) for a, b in itertools.pairwise(halvings))
    for k in (changed[0] - 1, changed[0], changed[0] + 3, 41):
        resumed = next(method.steps(task, states[k])).state
        torch.testing.assert_close(resumed.alpha, states[k + 1].alpha, rtol=1e-7, atol=1e-9)
        assert float(resumed.memory[-1]) == halvings[k]
    if not refresh:
        assert not states[changed[0]].alpha.any()  # it begins again from zero


def test_a_descent_diverges_where_its_gradient_grows_to_three_times_that_of_zero():
    y = torch.linspace(-1.0, 2.0, 9, dtype=torch.float64)
    diverges = StochasticDual._diverges
    assert not diverges(-1.99 * y, y)
    assert diverges(-2.01 * y, y)
    assert diverges(4.01 * y, y)
    assert diverges(torch.full_like(y, math.nan), y)
