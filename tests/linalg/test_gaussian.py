"""The linear-Gaussian model against n x n algebra: every formula of its docstring, in blocks and by row."""

from __future__ import annotations

import math
from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from gpexplorer.errors import NotPositiveDefinite
from gpexplorer.linalg.gaussian import GrowingGaussian, LinearGaussian, Sums, linear_gaussian, with_rows

CASES = {  # shift of features and targets, noise sd, precision, tolerance relative to the size of a quantity
    "near": (0.0, 0.3, torch.float64, 1e-10),
    "off-origin": (30.0, 0.3, torch.float64, 1e-9),
    "signal to noise 1e5": (0.0, 3e-3, torch.float64, 1e-8),
    "float32": (0.0, 0.3, torch.float32, 2e-4),
}


class Case(NamedTuple):
    """Rows, and the dense answer to everything."""

    Phi: Tensor  # [n, m]
    y: Tensor  # [n]
    V: Tensor  # [n]
    s2: float
    tolerance: float

    @property
    def W(self) -> Tensor:
        return self.s2 / self.V

    @property
    def dense(self) -> tuple[Tensor, Tensor, Tensor]:
        """Phi, V and C in float64."""
        Phi, V = self.Phi.double(), self.V.double()
        return Phi, V, Phi @ Phi.T + V.diag()


def case(name: str, by_row: bool, n: int = 60, m: int = 7) -> Case:
    shift, sd, dtype, tolerance = CASES[name]
    rng = torch.Generator().manual_seed(3)
    Phi = torch.randn(n, m, generator=rng, dtype=torch.float64) + shift
    y = Phi @ torch.randn(m, generator=rng, dtype=torch.float64) + shift
    y += sd * torch.randn(n, generator=rng, dtype=torch.float64)
    V = torch.full((n,), sd**2, dtype=torch.float64)
    if by_row:
        V *= 0.2 + 5.0 * torch.rand(n, generator=rng, dtype=torch.float64)
    return Case(Phi.to(dtype), y.to(dtype), V.to(dtype), sd**2, tolerance)


def fitted(task: Case, by_row: bool, block: int = 13) -> LinearGaussian:
    """The model from blocks of a few rows, the last one shorter."""
    sums = Sums(task.Phi.shape[1], task.y)
    for rows in torch.arange(len(task.y)).split(block):
        sums.add(task.Phi[rows].T, task.y[rows], task.W[rows] if by_row else None)
    yy = float((task.y.double() ** 2 * task.W.double()).sum())
    log_V = float(task.V.double().log().sum()) if by_row else None
    return sums.model(len(task.y), yy, task.s2, "A", log_V)


def check(ours: Tensor | float, truth: Tensor | float, tolerance: float) -> None:
    ours, truth = (torch.as_tensor(part, dtype=torch.float64) for part in (ours, truth))
    assert float((ours - truth).abs().max()) <= tolerance * max(float(truth.abs().max()), 1.0)


@pytest.mark.parametrize("by_row", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_weights_their_covariance_fit_and_complexity_are_the_dense_ones(name: str, by_row: bool) -> None:
    task = case(name, by_row)
    Phi, V, C = task.dense
    y = task.y.double()
    model = fitted(task, by_row)

    posterior = torch.linalg.inv(
        torch.eye(Phi.shape[1]).double() + (Phi.T / V) @ Phi
    )  # by information, another formula
    check(model.weights, Phi.T @ torch.linalg.solve(C, y), task.tolerance)
    check(task.s2 * torch.cholesky_inverse(model.L), posterior, task.tolerance)
    fit = float(y @ torch.linalg.solve(C, y))
    rounding = torch.finfo(task.y.dtype).eps * float((y * y / V).sum())  # fit is the difference of two large numbers
    assert abs(model.fit - fit) <= task.tolerance * fit + 50.0 * rounding
    check(model.complexity, float(torch.logdet(C)), task.tolerance)
    assert model.value == 0.5 * (model.fit + model.complexity)


@pytest.mark.parametrize("name", CASES)
def test_the_gradient_in_features_and_noise_is_autograd_of_the_dense_likelihood(name: str) -> None:
    task = case(name, by_row=False)
    Phi, log_s2 = (
        task.Phi.double().clone().requires_grad_(),
        torch.tensor(math.log(task.s2), dtype=torch.float64).requires_grad_(),
    )
    C = Phi @ Phi.T + log_s2.exp() * torch.eye(len(task.y)).double()
    y = task.y.double()
    (0.5 * (y @ torch.linalg.solve(C, y) + torch.logdet(C))).backward()

    pullback = fitted(task, by_row=False).pullback(task.y)
    beta = pullback.beta(task.Phi.T, task.y)
    check(beta, torch.linalg.solve(C.detach(), y), 20.0 * task.tolerance)
    assert Phi.grad is not None
    check(pullback.rows(task.Phi, beta), Phi.grad, 100.0 * task.tolerance)
    check(pullback.columns(task.Phi.T, beta).T, Phi.grad, 100.0 * task.tolerance)
    by_log_s2 = task.s2 * float(pullback.by_noise(beta.double() @ beta.double()))
    assert log_s2.grad is not None
    check(by_log_s2, log_s2.grad, 100.0 * task.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_with_a_noise_per_row_the_gradient_in_the_features_and_each_noise_is_the_dense_one(name: str) -> None:
    task = case(name, by_row=True)
    Phi, V = task.Phi.double().clone().requires_grad_(), task.V.double().clone().requires_grad_()
    C, y = Phi @ Phi.T + V.diag(), task.y.double()
    (0.5 * (y @ torch.linalg.solve(C, y) + torch.logdet(C))).backward()

    pullback = fitted(task, by_row=True).pullback()
    beta = pullback.beta(task.Phi.T, task.y, task.V)
    weighted = task.W[:, None] * (task.Phi @ pullback.inverse)  # W Phi A^-1
    check(weighted - torch.outer(beta, pullback.weights), Phi.grad, 100.0 * task.tolerance)
    by_V = 0.5 * (1.0 / task.V - (weighted * task.Phi).sum(1) / task.V - beta.square())
    assert V.grad is not None
    check(by_V, V.grad, 1e3 * task.tolerance)


@pytest.mark.parametrize("name", CASES)
def test_features_that_join_one_by_one_or_together_give_the_model_of_all(name: str) -> None:
    task = case(name, by_row=False)
    Phi, y, m = task.Phi, task.y, task.Phi.shape[1]
    whole = fitted(task, by_row=False)
    growing = GrowingGaussian(m + 2, task.s2, y)
    fit, complexity = float(y.double() @ y.double()) / task.s2, len(y) * math.log(task.s2)
    for j in range(3):
        u, before = Phi[:, j], Phi[:, :j]
        new = growing.additions((before.T @ u)[:, None], (u @ u)[None], (u @ y)[None])
        decrease, rise = growing.add(new)
        fit, complexity = fit - decrease, complexity + rise
        part = task._replace(Phi=Phi[:, : j + 1])
        check(complexity, fitted(part, by_row=False).complexity, task.tolerance)
        check(fit / fitted(part, by_row=False).fit, 1.0, 1e3 * task.tolerance)
    U = Phi[:, 3:]
    growing.join(Phi[:, :3].T @ U, U.T @ U, U.T @ y, "border")

    assert growing.m == m
    check(growing.L @ growing.L.T, whole.L @ whole.L.T, task.tolerance)
    check(growing.weights, whole.weights, task.tolerance * (1.0 + 1e-4 / task.s2))


def test_a_feature_that_those_before_it_explain_has_only_the_noise_left() -> None:
    task = case("near", by_row=False)
    growing, u = GrowingGaussian(3, task.s2, task.y), task.Phi[:, 0] * 1e4
    growing.add(growing.additions(u.new_zeros(0, 1), (u @ u)[None], (u @ task.y)[None]))
    again = growing.additions((u @ u)[None, None], (u @ u)[None], (u @ task.y)[None])
    assert (
        task.s2 <= float(again.s) <= 2.001 * task.s2
    )  # u'u is 1e9 times the noise: rounding must not make it negative


@pytest.mark.parametrize("name", CASES)
def test_rows_that_come_later_give_the_model_of_all_rows(name: str) -> None:
    task = case(name, by_row=True)
    whole, first = fitted(task, by_row=True), 20
    part = fitted(task._replace(Phi=task.Phi[:first], y=task.y[:first], V=task.V[:first]), by_row=True)
    L, weights = part.L, part.weights
    for rows in (slice(first, first + 1), slice(first + 1, None)):  # one row, then more rows than weights
        L, weights = with_rows(L, weights, task.Phi[rows].T, task.y[rows], task.W[rows])
    check(L @ L.T, whole.L @ whole.L.T, task.tolerance)
    check(weights, whole.weights, task.tolerance * (1.0 + 1e-4 / task.s2))
    assert bool((L.diagonal() > 0.0).all())


def test_no_rows_are_the_prior_and_a_matrix_that_is_not_finite_is_refused_by_name() -> None:
    prior = Sums(3, torch.zeros(1, dtype=torch.float64)).model(0, 0.0, 0.25)
    assert prior.fit == 0.0
    assert prior.complexity == pytest.approx(0.0, abs=1e-14)
    torch.testing.assert_close(0.25 * torch.cholesky_inverse(prior.L), torch.eye(3).double())
    with pytest.raises(NotPositiveDefinite, match="the matrix of this test"):
        linear_gaussian(torch.full((2, 2), math.nan), torch.zeros(2), 5, 1.0, 0.1, "the matrix of this test")
