"""ADMM forms no product of two large matrices, respects its memory budget, and always ends with a sentence."""

from __future__ import annotations

import pickle
from collections import Counter as Tally
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation.solvers import ITERATIONS_PER_ROW, Target, solve
from gpexplorer.problem import Problem
from oracles_admm import problem

SCHEMES = ["gpcv-admm", "gpcv-admm-holdout", "gpcv-admm-naive"]
FACTORS = ("cholesky", "lu", "inv", "solve", "qr", "svd", "eigh", "lstsq", "pinv")


class Operations(TorchDispatchMode):
    """Records the largest matrix product, the largest factorisation (in rows), and the largest array."""

    def __init__(self) -> None:
        super().__init__()
        self.product = self.factor = self.made = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out, name = func(*args, **(kwargs or {})), func.__name__
        matrices = [a for a in args if isinstance(a, torch.Tensor) and a.ndim >= 2]
        if name.startswith(("mm", "addmm", "bmm")):
            left, right = matrices[-2:]
            self.product = max(self.product, left.numel() * right.shape[-1])
        if any(word in name for word in FACTORS) and matrices:
            self.factor = max(self.factor, min(min(m.shape[-2:]) for m in matrices))
        for tensor in out if isinstance(out, list | tuple) else [out]:
            if isinstance(tensor, torch.Tensor) and tensor._base is None:
                self.made = max(self.made, tensor.numel())
        return out


def with_two_folds(key: str, **settings: Any) -> Any:
    """The method; with two folds instead of four, where it has folds, an iteration takes half the time."""
    return registry[key](**{"folds": 2} if hasattr(registry[key], "folds") else {}, **settings)


@pytest.mark.parametrize("theta_method", ["z eliminated", "z follows", "z held still"])
@pytest.mark.parametrize("key", SCHEMES)
def test_no_iteration_factors_or_multiplies_n_by_n_matrices(key: str, theta_method: str):
    task, n, rank = problem(1000.0, n=200), 200, 6
    method = with_two_folds(key, rank=rank, theta_method=theta_method, cg_iterations=6)
    steps = method.steps(task)
    list(islice(steps, 2))

    with Operations() as seen:
        list(islice(steps, 2))

    features = getattr(method, "folds", 1) * (task.train.d + 2)  # of all folds, for the gradient in theta
    assert seen.product <= n * n * max(2 * rank, features)
    assert seen.product < n**3 / 10
    assert 0 < seen.factor <= rank


def test_with_a_small_memory_budget_no_n_by_n_array_is_made_and_the_numbers_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
):
    task, n = problem(n=160), 160
    for module in ("methods.cross_validation.folds", "kernels.stationary"):
        monkeypatch.setattr(f"gpexplorer.{module}.row_blocks", small_blocks)
    settings: dict[str, Any] = {"rank": 25, "cg_iterations": 300, "cg_tolerance": 1e-10, "max_iterations": 2}
    whole = list(registry["gpcv-admm-holdout"](**settings).steps(task))
    steps = registry["gpcv-admm-holdout"](memory=8 * 80 * 30 / 1e9, **settings).steps(task)
    with Operations() as seen:
        blocks = list(islice(steps, 3))

    assert seen.made <= 30 * 80 < n * n // 8
    torch.testing.assert_close(blocks[-1].state.mean, whole[2].state.mean, rtol=1e-6, atol=1e-8)


def small_blocks(n: int, *_: object) -> Iterator[slice]:
    """Yield blocks of 20 rows, whatever their size in bytes."""
    yield from (slice(begin, min(begin + 20, n)) for begin in range(0, n, 20))


@pytest.mark.parametrize("key", SCHEMES)
def test_folds_give_the_same_numbers_after_pickling(key: str):
    def pickling_mapper(function: Any, *pieces: Any) -> list[Any]:
        sent = [pickle.dumps((function, args)) for args in zip(*pieces, strict=True)]
        return [function(*args) for function, args in map(pickle.loads, sent)]

    method, task = registry[key](max_iterations=3), problem()
    local = list(method.steps(task))
    distributed = list(method.with_mapper(pickling_mapper).steps(task))

    assert [step.info.objective for step in local[1:]] == [step.info.objective for step in distributed[1:]]
    assert torch.equal(local[-1].state.theta, distributed[-1].state.theta)


def random_case(k: int) -> tuple[Any, Problem]:
    rng = torch.Generator().manual_seed(k)
    task = problem(n=14)
    theta = task.theta + 3.0 * torch.randn(len(task.theta), generator=rng, dtype=torch.float64)
    method = with_two_folds(
        SCHEMES[k % 3],
        max_iterations=2,
        rank=8,
        cg_iterations=6,
        rho=float(10 ** (6.0 * torch.rand(1, generator=rng) - 3.0)),
        theta_method=["z follows", "z held still", "z eliminated"][k // 6 % 3],
        balance=[0.0, 10.0][k // 2 % 2],
        dual_start=["adjoint", "zeros", "ones"][k // 3 % 3],
    )
    return method, Problem(task.train, task.kernel, theta)


def test_a_hundred_random_initial_values_give_finite_numbers_and_a_sentence():
    ends: Tally[str] = Tally()
    for k in range(100):
        method, task = random_case(k)
        seen, outcome = last(method, task)
        ends[outcome.reason] += 1
        assert outcome.message.endswith(".")
        assert all(state.theta.isfinite().all() and state.mean.isfinite().all() for state in seen)

    assert sum(ends.values()) == 100
    assert set(ends) <= {"budget", "converged", "diverged"}


def last(method: Any, task: Problem) -> tuple[list[Any], Any]:
    """Every state, and the outcome."""
    steps, seen = method.steps(task), []
    while True:
        try:
            seen.append(next(steps).state)
        except StopIteration as end:
            return seen, end.value


def test_a_diverging_run_reports_it_and_keeps_its_best_theta():
    task = problem(1000.0)
    wild: dict[str, Any] = {
        "theta_method": "z follows",
        "rho": 1e-6,
        "rho_span": 1.0,
        "max_rollbacks": 3,
        "largest_gap": 1e-3,
        "dual_start": "ones",
    }
    states, outcome = last(registry["gpcv-admm-holdout"](**wild), task)

    assert outcome.reason == "diverged"
    assert "consecutive" in outcome.message
    assert states[-1].rollbacks == 3
    assert states[-1].theta.isfinite().all()
    assert states[-1].best < 10.0


def test_an_initial_theta_that_overflows_gives_a_clear_message():
    task = problem()
    lost = Problem(task.train, task.kernel, torch.tensor([400.0, 0.0, 0.0, -1.0], dtype=torch.float64))
    states, outcome = last(registry["gpcv-admm"](), lost)

    assert outcome.reason == "diverged"
    assert "other initial values" in outcome.message
    repeated, same = last(registry["gpcv-admm"](restarts=3), lost)
    assert same == outcome
    assert repeated[-1].step == states[-1].step == 1


def test_every_safeguard_has_its_effect():
    task = problem(1000.0)
    still = {"max_iterations": 8, "theta_method": "z held still", "rho": 2.0}
    rhos = {
        b: [s.info.rho for s in registry["gpcv-admm-holdout"](balance=b, **still).steps(task)][1:] for b in (0.0, 3.0)
    }
    short, long = (list(registry["gpcv-admm-holdout"](relaxation=a, **still).steps(task)) for a in (0.5, 1.5))

    assert rhos[0.0] == pytest.approx([2.0] * len(rhos[0.0]))
    assert len({round(rho, 6) for rho in rhos[3.0]}) > 1
    first = [steps[1].state.folds[0].dual for steps in (short, long)]
    moved = [steps[2].state.folds[0].dual - begin for steps, begin in zip((short, long), first, strict=True)]
    torch.testing.assert_close(3.0 * moved[0], moved[1], rtol=1e-6, atol=1e-9)
    tight = [s.info.rho for s in registry["gpcv-admm-holdout"](largest_gap=1e-4, **still).steps(task)][1:]
    assert tight[-1] > 2.0


@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_conjugate_gradients_stop_at_rounding_for_any_tolerance(shift: float):
    k = torch.arange(12.0, dtype=torch.float64)
    A, products = 1.0 / (k[:, None] + k + 1.0 + shift), []

    def product(v: torch.Tensor) -> torch.Tensor:
        products.append(v)
        return A @ v

    b = (k + shift)[:, None]
    solution = solve(product, b, torch.zeros_like(b), lambda v: v, Target(torch.zeros(1, dtype=b.dtype), 10**9))

    assert 12 <= solution.iterations <= ITERATIONS_PER_ROW * 12
    assert len(products) <= 1.2 * solution.iterations  # a residual is computed anew now and then
