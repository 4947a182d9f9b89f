"""Sums and products of kernels against plain arithmetic: layout of theta, initial values, gradients, names."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer import kernels
from gpexplorer.errors import KernelError
from gpexplorer.kernels.base import Covariance, input_sds, target_sd
from gpexplorer.kernels.composites import MAX_DEPTH, MAX_TERMS, Product, Sum
from gpexplorer.kernels.discrete import sum_of_minima
from gpexplorer.problem import Dataset


def rows(n: int = 9, d: int = 2, shift: float = 0.0) -> Dataset:
    """Rows and targets whose standard deviations are not 1."""
    rng = torch.Generator().manual_seed(n + d)
    X = shift + 3.0 * torch.randn(n, d, generator=rng, dtype=torch.float64)
    return Dataset(X, 5.0 + 4.0 * torch.randn(n, generator=rng, dtype=torch.float64))


def population_sd(values: Tensor) -> float:
    """The standard deviation with 1 / n."""
    return math.sqrt(float((values - values.mean()).square().mean()))


@pytest.mark.parametrize("shift", [0.0, 1000.0])
def test_initial_noise_and_scales_are_standard_deviations_of_the_data(shift: float):
    train = rows(shift=shift)
    constant = Dataset(torch.cat([train.X[:, :1], torch.full((9, 1), 7.0).double()], 1), torch.full((9,), 2.5).double())

    assert target_sd(train) == pytest.approx(population_sd(train.y), rel=1e-12)
    assert float(kernels.make("se-ard", 2).start(train)[-1]) == pytest.approx(math.log(0.3 * population_sd(train.y)))
    assert target_sd(constant) == 1.0
    assert target_sd(Dataset(train.X[:1], train.y[:1])) == 1.0
    assert target_sd(Dataset(train.X[:2], train.y[:2])) == pytest.approx(population_sd(train.y[:2]))
    assert input_sds(constant) == pytest.approx([population_sd(train.X[:, 0]), 1.0], rel=1e-9)
    small = Dataset(train.X * 1e-3, train.y)
    assert input_sds(small) == pytest.approx([1e-3 * population_sd(column) for column in train.X.T], rel=1e-9)


@pytest.mark.parametrize("shift", [0.0, 50.0])
def test_parts_of_a_sum_and_a_product_begin_with_their_share_of_the_variance(shift: float):
    train, a, b = rows(shift=shift), kernels.make("se-ard", 2), kernels.make("rq-ard", 2)
    y = train.y
    half, unit = Dataset(train.X, y / math.sqrt(2.0)), Dataset(train.X, y / population_sd(y))

    together = (a + b).initial_values(train)
    assert together == pytest.approx([*a.initial_values(half), *b.initial_values(half)], rel=1e-12)
    variance = float((a + b).diag((a + b).start(train), train.X)[0])
    assert variance == pytest.approx(population_sd(y) ** 2, rel=1e-9)
    product = (a * b).initial_values(train)
    assert product == pytest.approx([*a.initial_values(train), *b.initial_values(unit)], rel=1e-12, abs=1e-12)
    assert float((a * b).diag((a * b).start(train), train.X)[0]) == pytest.approx(population_sd(y) ** 2, rel=1e-9)


@pytest.mark.parametrize("text", ["se-ard + matern32-ard", "se-ard * matern32-ard", "(se-ard + linear) * matern52-ard"])
def test_values_and_gradients_of_composites_are_those_of_autograd(text: str):
    kernel, train = kernels.make(text, 2), rows()
    theta = torch.linspace(-0.4, 0.9, kernel.size + 1, dtype=torch.float64)
    X, Z, rng = train.X[:6], train.X[4:], torch.Generator().manual_seed(0)
    u, z = (torch.randn(len(part), generator=rng, dtype=torch.float64) for part in (X, Z))

    def gradient(value: Tensor) -> Tensor:
        return torch.autograd.grad(value, leaf)[0]

    leaf = theta.clone().requires_grad_(True)
    first, second = kernel.parts
    own = (first(leaf[: first.size], X, Z), second(leaf[first.size : -1], X, Z))
    K = own[0] + own[1] if isinstance(kernel, Sum) else own[0] * own[1]
    filled = K.new_empty(len(X) + 1, len(Z))
    kernel.fill(theta, X, Z, filled[1:])
    torch.testing.assert_close(filled[1:], K.detach())
    torch.testing.assert_close(kernel(theta, X, Z), K.detach())
    expected = gradient(u @ K @ z)
    torch.testing.assert_close(kernel.theta_gradient(theta, X, Z, torch.outer(u, z)), expected)
    torch.testing.assert_close(kernel.theta_gradient_bilinear(theta, X, Z, (u, z)), expected)
    gradient_of_theta = kernel.theta_gradient_from_matrix(theta, X, Z, (u, z), K.detach())
    if gradient_of_theta is not None:
        torch.testing.assert_close(gradient_of_theta, expected)
    assert float(expected[-1]) == 0.0
    leaf = theta.clone().requires_grad_(True)
    diagonal = kernel(leaf, X, X).diagonal()
    torch.testing.assert_close(kernel.diag(theta, X), diagonal.detach())
    torch.testing.assert_close(kernel.theta_gradient_diag(theta, X, u), gradient(u @ diagonal))


def test_names_say_which_part_they_belong_to():
    se, linear, periodic = (kernels.make(key, 2) for key in ("se-ard", "linear", "periodic"))

    assert (se + se).parameter_names[0].startswith("se-ard 1: ")
    assert (se + se).parameter_names[-1].startswith("se-ard 2: ")
    assert (se + linear).parameter_names[0].startswith("se-ard: ")
    assert ((se + linear) * periodic).key == "(se-ard+linear)*periodic"
    assert (periodic * (se + linear)).key == "periodic*(se-ard+linear)"
    assert (se * linear + periodic).key == "se-ard*linear+periodic"
    assert (se + linear + periodic).key == "se-ard+linear+periodic"
    assert (se + periodic).stationary
    assert not (se + linear).stationary
    counts = kernels.make("minmax", 2)
    assert (se + counts).inputs == (counts + se).inputs == "counts"
    assert (se + linear).inputs == "real"
    with pytest.raises(KernelError, match="d = 2 and d = 3"):
        se + kernels.make("se-ard", 3)


@pytest.mark.parametrize("text", ["se-ard * linear + periodic", "(se-ard + linear) * (periodic + linear)"])
def test_text_is_read_with_the_usual_precedence(text: str):
    kernel = kernels.make(text, 1)

    assert kernel.key == text.replace(" ", "")
    assert isinstance(kernel, Product if text.startswith("(") else Sum)
    for wrong in ("se-ard +", "se-ard )", "(se-ard", "* se-ard", "se-ard linear", ""):
        with pytest.raises(KernelError):
            kernels.make(wrong, 1)
    depth = MAX_DEPTH * "(" + "se-ard" + MAX_DEPTH * ")"
    assert kernels.make(depth, 1).key == "se-ard"
    with pytest.raises(KernelError):
        kernels.make(f"({depth})", 1)


def test_terms_of_sums_and_products_add_up_to_the_kernel_and_are_limited():
    kernel = kernels.make("(se-ard + matern32) * (periodic + linear)", 1)
    theta, x = torch.linspace(-0.4, 0.6, kernel.size + 1, dtype=torch.float64), rows(6, 1).X / 3.0
    terms = kernel.terms(theta)

    assert terms is not None
    assert [len(term) for term in terms] == [1] * 6  # a linear kernel is a constant and a product
    total = torch.stack([factor(x[:, 0], x[:, 0]) for (factor,) in terms]).sum(0)
    torch.testing.assert_close(total, kernel(theta, x, x))
    eight: Covariance = kernels.make(" + ".join(["se-ard"] * 8), 1)
    assert MAX_TERMS == 64
    product = eight * eight
    result = product.terms(torch.zeros(product.size + 1, dtype=torch.float64))
    assert result is not None
    assert len(result) == 64
    more = eight * (eight + kernels.make("se-ard", 1))
    assert more.terms(torch.zeros(more.size + 1, dtype=torch.float64)) is None


def test_a_product_has_no_factors_or_features_where_a_part_has_none():
    """A Matérn kernel of a distance does not factor over two inputs, and a kernel of counts has no spectrum."""
    theta, draw = torch.zeros(9, dtype=torch.float64), torch.Generator().manual_seed(0)
    separable, joint = kernels.make("se-ard", 2), kernels.make("matern32-ard", 2)
    for mixed in (separable * joint, joint * separable):
        assert mixed.by_input(theta) is None
        assert mixed.terms(theta) is None
    assert (separable + joint).terms(theta) is None
    assert (separable * separable).by_input(theta) is not None
    plain = kernels.make("minmax", 2)
    for mixed in (separable + plain, plain * separable):
        assert mixed.random_features(theta, 8, draw) is None


@pytest.mark.parametrize("count", [4000])
def test_features_of_a_sum_and_a_product_estimate_the_kernel(count: int):
    X = rows(4).X / 3.0
    for kernel in (kernels.make("se-ard + matern52-ard", 2), kernels.make("se-ard * matern52-ard", 2)):
        theta = torch.tensor([0.2, 0.3, 0.6, -0.3, 0.5, 0.1, -2.0], dtype=torch.float64)
        features = kernel.random_features(theta, count, torch.Generator().manual_seed(3))
        assert features is not None
        phi = features(X)
        torch.testing.assert_close(phi @ phi.T / count, kernel(theta, X, X), rtol=0.0, atol=0.2)


def test_sums_of_minima_are_those_of_a_plain_loop():
    X = torch.tensor([[3.0, 0.0, 2.0, 0.0], [0.0, 0.0, 5.0, 1.0]], dtype=torch.float64)
    Z = torch.tensor([[1.0, 4.0, 9.0, 0.0], [0.0, 2.0, 0.0, 0.0], [2.0, 1.0, 1.5, 0.0]], dtype=torch.float64)
    expected = [[sum(min(a, b) for a, b in zip(x, z, strict=True)) for z in Z.tolist()] for x in X.tolist()]

    assert sum_of_minima(X, Z).tolist() == expected
    assert sum_of_minima(X[:, [2]], Z[:, [2]]).tolist() == [[2.0, 0.0, 1.5], [5.0, 0.0, 1.5]]
    for key, sides in (("minmax", lambda x, z: torch.maximum(x, z).sum()), ("tanimoto", None)):
        K = kernels.make(key, 4)(torch.tensor([0.0, 0.0], dtype=torch.float64), X, Z)
        for i, x in enumerate(X):
            for j, z in enumerate(Z):
                above = float(torch.minimum(x, z).sum()) if sides else float(x @ z)
                below = float(sides(x, z)) if sides else float(x @ x + z @ z - x @ z)
                assert float(K[i, j]) == pytest.approx(above / below)


def test_counts_begin_with_the_variance_of_the_targets_and_empty_rows_are_alike():
    y = rows().y
    X = torch.tensor([[2.0, 1.0, 0.5], [1.0, 3.0, 4.0], [1.0, 0.0, 0.0]], dtype=torch.float64).repeat(3, 1)
    histogram = kernels.make("histogram", 3)
    for share in (1.0, 0.1):
        theta = histogram.start(Dataset(share * X, y))
        assert float(histogram.diag(theta, share * X).mean()) == pytest.approx(population_sd(y) ** 2, rel=1e-12)
    assert histogram.initial_values(Dataset(0.0 * X, y)) == pytest.approx([math.log(population_sd(y))])

    histogram.check(0.2 * X)
    histogram.check(X[:0])
    with pytest.raises(KernelError, match="counts of 0 or more"):
        histogram.check(-0.2 * X)
    zero, unit = torch.zeros(1, 3, dtype=torch.float64), torch.zeros(2, dtype=torch.float64)
    for key in ("minmax", "tanimoto"):
        assert kernels.make(key, 3)(unit, zero, zero).tolist() == [[1.0]]
        assert kernels.make(key, 3)(unit, zero, X[:1]).tolist() == [[0.0]]
        assert kernels.make(key, 1).diag(unit, X[:2, :1]).tolist() == [1.0, 1.0]
    ones, full = torch.ones(2, 2, dtype=torch.float64), torch.tensor([[3.0, 1.0], [2.0, 5.0]], dtype=torch.float64)
    ones[0, 1] = 0.0
    assert sum_of_minima(ones, full).tolist() == [[1.0, 1.0], [2.0, 2.0]]
    assert sum_of_minima(full, ones).tolist() == [[1.0, 2.0], [1.0, 2.0]]
    for first, second in ((0.0, 2.0), (2.0, 0.0)):  # only one side has zeros, in the first column only
        mixed = torch.tensor([[first, 2.0], [second, 2.0]], dtype=torch.float64)
        assert sum_of_minima(mixed, full).tolist() == [[min(first, 3.0) + 1.0, min(first, 2.0) + 2.0],
                                                       [min(second, 3.0) + 1.0, min(second, 2.0) + 2.0]]  # fmt: skip
