"""The preconditioner of pcg: its default pays from the first iterations on, its damping and its rank are as stated."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.linalg.preconditioners import woodbury
from gpexplorer.methods.base import registry
from gpexplorer.problem import Dataset, Problem
from oracles_gbcd import SHIFTS, quick, wavy


def slow_spectrum(shift: float = 0.0, n: int = 700) -> tuple[Problem, torch.Tensor, torch.Tensor]:
    """A draw from the model in 8 inputs with little noise: hundreds of eigenvalues exceed it. Also 200 test rows."""
    rng = torch.Generator().manual_seed(3)
    X = torch.randn(n + 200, 8, generator=rng, dtype=torch.float64) + shift
    kernel, theta = kernels.make("se", 8), torch.tensor([0.0, 0.7, -3.0], dtype=torch.float64)
    K = kernel(theta, X, X) + 1e-10 * torch.eye(n + 200, dtype=torch.float64)
    f = torch.linalg.cholesky(K) @ torch.randn(n + 200, generator=rng, dtype=torch.float64)
    y = f + 0.05 * torch.randn(n + 200, generator=rng, dtype=torch.float64)
    return Problem(Dataset(X[:n], y[:n]), kernel, theta), X[n:], y[n:]


def errors(key: str, shift: float, **settings: object) -> list[float]:
    """SMSE on the test rows after 0, 1, ..., 25 iterations."""
    task, X, y = slow_spectrum(shift)
    K = task.kernel(task.theta, X, task.train.X)
    steps = islice(registry[key](learn=False, **settings).steps(task), 26)
    return [float((y - K @ step.state.alpha).square().mean() / y.var()) for step in steps]


@pytest.mark.parametrize("shift", SHIFTS)
def test_the_default_preconditioner_predicts_better_than_plain_cg_at_equal_work(shift: float):
    plain, default = errors("cg", shift), errors("pcg", shift)

    for k in (2, 3, 5, 8, 12, 16, 20, 25):
        assert default[k - 1] < plain[k]  # to build the preconditioner takes as long as one product with the matrix
    assert default[8] < 0.5 * min(plain[:9])


@pytest.mark.parametrize("shift", SHIFTS)
def test_without_damping_the_first_predictions_are_worse_than_plain_cg(shift: float):
    """The published preconditioner leaves eigenvalues far above one in the complement, and fits these first."""
    assert errors("pcg", shift, damped=False)[4] > 2 * errors("pcg", shift)[4]


def test_the_damped_preconditioner_adds_the_smallest_eigenvalue_of_its_root():
    L = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    v = torch.linspace(-1.0, 1.0, 30, dtype=torch.float64)
    smallest = torch.linalg.svdvals(L)[-1].square()

    M = L @ L.T + (0.1 + smallest) * torch.eye(30, dtype=torch.float64)
    torch.testing.assert_close(woodbury(L, 0.1, damped=True)(v), torch.linalg.solve(M, v))


@pytest.mark.parametrize("root", ["pivoted", "nystrom", "drawn", "grief"])
@pytest.mark.parametrize("damped", [False, True])
def test_every_root_converges_to_the_same_alpha(root: str, damped: bool):
    task = wavy()
    *_, expected = quick("cg").steps(task)

    *_, last = quick("pcg", root=root, damped=damped, rank=20).steps(task)

    torch.testing.assert_close(last.state.alpha, expected.state.alpha, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("n", "cache", "rank"), [(80, 1.0, 65), (8000, 0.0, 657), (100_000, 1.0, 1250), (100_000, 0.0, 1000)]
)
def test_the_rank_by_rule_costs_one_product_and_fits_into_the_cache(n: int, cache: float, rank: int):
    method = registry["pcg"](cache=cache)

    arrays = method.cost(wavy(n=n)).arrays

    assert arrays["block columns"] == 8.0 * n * rank
    if rank == 657:  # d = 2: half of the entries at 100 + 2 d flops each, used twice
        assert n * rank**2 == pytest.approx(n * n * ((100 + 2 * 2) / 2 + 2), rel=5e-3)
    assert quick("pcg", rank=7).cost(wavy(n=n)).arrays["block columns"] == 8.0 * n * 7
