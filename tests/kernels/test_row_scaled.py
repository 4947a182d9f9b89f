"""The kernel of rows that are multiplied by a number, and the problem of equal noise that noise per row becomes."""

from __future__ import annotations

import math

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import KernelError, SettingError
from gpexplorer.kernels.row_scaled import RowScaled, input_count, log_density_change, plain_rows, with_row_noise
from gpexplorer.problem import Dataset, Problem, RowNoise, Scale

BASES = ["se-ard", "rq", "periodic"]  # with a gradient from the matrix, without one, and with fewer hyperparameters


def scaled_rows(n: int, seed: int = 1) -> torch.Tensor:
    """Rows of three inputs, and the number by which each is multiplied."""
    draw = torch.Generator().manual_seed(seed)
    X = torch.randn(n, 3, generator=draw, dtype=torch.float64)
    return torch.cat([X, 0.5 + torch.rand(n, 1, generator=draw, dtype=torch.float64)], 1)


def case(key: str) -> tuple[RowScaled, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    kernel = RowScaled(kernels.make(key, 3))
    theta = torch.linspace(-0.4, 0.5, kernel.size + 1, dtype=torch.float64)
    X, Z = scaled_rows(7), scaled_rows(4, seed=2)
    dense = kernel.base(theta, X[:, :3], Z[:, :3]) * torch.outer(X[:, 3], Z[:, 3])
    return kernel, theta, X, Z, dense


@pytest.mark.parametrize("key", BASES)
def test_covariances_are_those_of_the_kernel_times_both_numbers(key: str):
    kernel, theta, X, Z, dense = case(key)
    torch.testing.assert_close(kernel(theta, X, Z), dense)
    torch.testing.assert_close(kernel.diag(theta, X), kernel(theta, X, X).diagonal())
    out = torch.empty_like(dense)
    kernel.fill(theta, X, Z, out)
    torch.testing.assert_close(out, dense)


@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("key", BASES)
def test_gradients_are_those_of_autograd(key: str, columns: tuple[int, ...]):
    kernel, theta, X, Z, dense = case(key)
    draw = torch.Generator().manual_seed(3)
    u, z = (torch.randn(n, *columns, generator=draw, dtype=torch.float64) for n in (7, 4))
    G = u @ z.T if columns else torch.outer(u, z)
    leaf = theta.clone().requires_grad_()
    (kernel(leaf, X, Z) * G).sum().backward()
    torch.testing.assert_close(kernel.theta_gradient(theta, X, Z, G), leaf.grad)
    torch.testing.assert_close(kernel.theta_gradient_bilinear(theta, X, Z, (u, z)), leaf.grad)
    from_matrix = kernel.theta_gradient_from_matrix(theta, X, Z, (u, z), dense)
    assert (from_matrix is None) == (key == "rq")
    if from_matrix is not None:
        torch.testing.assert_close(from_matrix, leaf.grad)
    g = torch.randn(7, generator=draw, dtype=torch.float64)
    leaf = theta.clone().requires_grad_()
    (kernel.diag(leaf, X) * g).sum().backward()
    torch.testing.assert_close(kernel.theta_gradient_diag(theta, X, g), leaf.grad)


def test_random_functions_are_multiplied_as_well():
    kernel, theta, X, _, _ = case("se-ard")
    features = kernel.random_features(theta, 100_000, torch.Generator().manual_seed(0))
    assert features is not None
    draws = features(X)
    torch.testing.assert_close(draws @ draws.T / 100_000, kernel(theta, X, X), rtol=0.0, atol=0.03)
    assert kernel.terms(theta) is None


def test_the_inputs_are_checked_without_the_number():
    kernel = RowScaled(kernels.make("minmax", 3))
    rows = torch.tensor([[0.0, 2.0, 1.0, -0.5]], dtype=torch.float64)
    kernel.check(rows)
    with pytest.raises(KernelError):
        kernel.check(-rows)


@pytest.mark.parametrize("noise_sd", [None, 0.09])
@pytest.mark.parametrize("y_sd", [None, 2.0])
def test_a_problem_with_noise_per_row_becomes_one_of_equal_noise(noise_sd: float | None, y_sd: float | None):
    X = scaled_rows(30)[:, :3]
    draw = torch.Generator().manual_seed(5)
    y, ratio = torch.randn(30, generator=draw).double(), 0.5 + 3.0 * torch.rand(30, generator=draw).double()
    scale = None if y_sd is None else Scale(torch.zeros(3), torch.ones(3), 0.0, y_sd)
    kernel, train = kernels.make("se-ard", 3), Dataset(X, y, noise=RowNoise(ratio, noise_sd), scale=scale)
    task = Problem(train, kernel, kernel.start(train))

    same = with_row_noise(task)

    theta, d = same.theta, ratio.rsqrt()
    s2 = float((2.0 * theta[-1]).exp())
    if noise_sd:
        assert s2 == pytest.approx(noise_sd / (y_sd or 1.0) ** 2)
    else:
        average = s2 * float(ratio.mean())
        assert average == pytest.approx(float((2.0 * task.theta[-1]).exp()))
    assert same.kernel.noise_is_known == (noise_sd is not None)
    torch.testing.assert_close(same.train.y, d * y)
    C = kernel(theta, X, X) + s2 * torch.diag(ratio)
    A = same.kernel(theta, same.train.X, same.train.X) + s2 * torch.eye(30, dtype=torch.float64)
    torch.testing.assert_close(A, C * torch.outer(d, d))
    change = log_density_change(same)
    assert change == pytest.approx(float(d.log().sum()))
    nlml = 0.5 * float(same.train.y @ torch.linalg.solve(A, same.train.y) + torch.logdet(A)) - change
    assert nlml == pytest.approx(0.5 * float(y @ torch.linalg.solve(C, y) + torch.logdet(C)))
    assert (input_count(same), input_count(task)) == (3, 3)
    torch.testing.assert_close(plain_rows(same).y, y)
    assert torch.equal(plain_rows(same).X, X)
    assert plain_rows(task) is train
    assert log_density_change(task) == 0.0
    torch.testing.assert_close(same.kernel.start(same.train)[:-1], kernel.start(without_noise(train))[:-1])


def without_noise(train: Dataset) -> Dataset:
    return Dataset(train.X, train.y, scale=train.scale)


def test_equal_noise_stays_and_objects_are_refused():
    kernel, train = kernels.make("se-ard", 3), Dataset(scaled_rows(9)[:, :3], torch.zeros(9, dtype=torch.float64))
    task = Problem(train, kernel, torch.zeros(5, dtype=torch.float64))
    assert with_row_noise(task) is task
    words = Dataset(["a", "b"], torch.zeros(2), noise=RowNoise(torch.ones(2)))
    with pytest.raises(SettingError, match="columns of numbers"):
        with_row_noise(Problem(words, kernels.make("category", 1), torch.zeros(3)))


@pytest.mark.parametrize("key", ["histogram-3", "histogram"])
def test_views_of_counts_start_with_equal_shares_of_the_variance_and_must_not_be_negative(key: str):
    counts = torch.arange(54.0, dtype=torch.float64).view(9, 6) % 7
    train = Dataset(counts, torch.linspace(-3.0, 4.0, 9, dtype=torch.float64))
    kernel = kernels.make(key, 6)
    theta = kernel.start(train)
    if key == "histogram-3":
        shares = [
            float(kernel.self_similarities(counts, theta)[v].mean()) * math.exp(2.0 * float(theta[v])) for v in range(3)
        ]
        assert shares == pytest.approx([float(train.y.var(correction=0)) / 3.0] * 3, rel=0.02)
        kernel.check(0.5 * counts / counts.max())
    with pytest.raises(KernelError):
        kernel.check(-0.5 * counts)
