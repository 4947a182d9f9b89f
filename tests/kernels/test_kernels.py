"""Kernels against plain floats, scikit-learn and finite differences; far from the origin and at zero distance."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch
from sklearn.gaussian_process import kernels as sk

from gpexplorer import kernels
from gpexplorer.errors import KernelError
from gpexplorer.kernels.base import Covariance, registry, target_sd
from gpexplorer.problem import Dataset
from oracles import FORMULAS, covariance

REAL = [key for key in kernels.available() if registry[key].inputs == "real"]
STATIONARY = [key for key in REAL if registry[key].stationary]


def case(key: str, d: int = 3, n: int = 7, shift: float = 0.0):
    rng = torch.Generator().manual_seed(5)
    X = torch.randn(n, d, generator=rng, dtype=torch.float64) + shift
    kernel = kernels.make(key, d)
    theta = 0.3 * torch.randn(kernel.size + 1, generator=rng, dtype=torch.float64)
    return kernel, theta, X


def test_every_kernel_of_the_package_has_a_formula_in_plain_floats() -> None:
    own = {key for key in REAL if registry[key].__module__.startswith("gpexplorer.")}
    assert own == set(FORMULAS), "write it into `covariance` of tests/support/oracles.py, and its key into a list there"


@pytest.mark.parametrize("key", [key for key in REAL if key in FORMULAS])
def test_a_covariance_equals_its_formula_in_plain_floats(key: str) -> None:
    kernel, theta, X = case(key)
    K = kernel(theta, X, X[:4])
    for i in range(7):
        for j in range(4):
            by_hand = covariance(key, theta[:-1].tolist(), X[i].tolist(), X[j].tolist())
            assert float(K[i, j]) == pytest.approx(by_hand, rel=1e-10)
    assert torch.allclose(kernel.diag(theta, X), kernel(theta, X, X).diagonal(), rtol=1e-12)


@pytest.mark.parametrize("key", STATIONARY)
def test_a_stationary_kernel_does_not_depend_on_the_origin(key: str) -> None:
    kernel, theta, X = case(key)
    shifted = kernel(theta, X + 1024.0, X[:4] + 1024.0)  # a power of two, so X + shift loses bits but no more
    assert torch.allclose(shifted, kernel(theta, X, X[:4]), atol=1e-7)


COMPOSITES = ["se+lp", "se-ard*periodic", "se-ard*(periodic+linear)", "se+se"]
FROM_MATRIX = ("se", "se-ard", "periodic", "lp", "se-ard*periodic")  # their gradient follows from the covariances


@pytest.mark.parametrize("shift", [0.0, 1024.0])
@pytest.mark.parametrize("key", [*REAL, *COMPOSITES])
def test_fill_writes_the_same_covariances_and_nothing_else(key: str, shift: float) -> None:
    kernel, theta, X = case(key, n=30, shift=shift)
    out = torch.full((32, 9), torch.nan, dtype=torch.float64)
    kernel.fill(theta, X, X[:9], out[1:31])
    torch.testing.assert_close(out[1:31], kernel(theta, X, X[:9]), rtol=1e-8, atol=1e-10)
    assert out[[0, 31]].isnan().all()


@pytest.mark.parametrize("columns", [(), (3,)])  # of the two sides: a vector, or a matrix whose gradients are summed
@pytest.mark.parametrize("key", [*REAL, *COMPOSITES])
def test_the_gradient_of_a_bilinear_form_is_that_of_its_matrix(key: str, columns: tuple[int, ...]) -> None:
    kernel, theta, X = case(key, n=30)
    u, z = torch.randn(2, 30, *columns, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    from_matrix = kernel.theta_gradient_from_matrix(theta, X, X[:9], (u, z[:9]), kernel(theta, X, X[:9]))
    bilinear = kernel.theta_gradient_bilinear(theta, X, X[:9], (u, z[:9]))
    expected = kernel.theta_gradient(theta, X, X[:9], u.view(30, -1) @ z[:9].view(9, -1).T)
    torch.testing.assert_close(bilinear, expected)
    assert (from_matrix is not None) == (key in FROM_MATRIX)
    if from_matrix is not None:
        torch.testing.assert_close(from_matrix, expected)
        none = kernel.theta_gradient_from_matrix(theta, X[:0], X[:9], (u[:0], z[:9]), kernel(theta, X[:0], X[:9]))
        torch.testing.assert_close(none, torch.zeros_like(theta))  # as where memory suffices for no row


@pytest.mark.parametrize("key", [*REAL, *COMPOSITES])
def test_theta_gradient_equals_finite_differences(key: str) -> None:
    kernel, theta, X = case(key, n=30)
    G = torch.randn(30, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    gradient = kernel.theta_gradient(theta, X, X[:9], G)
    step = 1e-6
    for i in range(len(theta)):
        e = torch.zeros_like(theta)
        e[i] = step
        difference = ((kernel(theta + e, X, X[:9]) - kernel(theta - e, X, X[:9])) * G).sum() / (2 * step)
        assert float(gradient[i]) == pytest.approx(float(difference), abs=2e-6)
    diagonal = kernel.theta_gradient_diag(theta, X, G[:, 0])
    assert float(diagonal[-1]) == 0.0
    leaf = theta.clone().requires_grad_(True)
    (expected,) = torch.autograd.grad(kernel.diag(leaf, X) @ G[:, 0], leaf)
    assert torch.allclose(diagonal, expected)


@pytest.mark.parametrize("key", REAL)
def test_gradients_at_zero_distance_are_finite(key: str) -> None:
    kernel, theta, X = case(key)
    X = X[:1].repeat(4, 1).requires_grad_(True)
    leaf = theta.clone().requires_grad_(True)
    gradients = torch.autograd.grad(kernel(leaf, X, X.detach().clone()).sum(), [leaf, X], allow_unused=True)
    assert all(torch.isfinite(gradient).all() for gradient in gradients if gradient is not None)


@pytest.mark.parametrize("key", [*REAL, "se+lp"])
def test_a_matrix_is_positive_semidefinite_and_a_column_of_it_is_the_same_alone(key: str) -> None:
    kernel, theta, X = case(key, n=40)
    K = kernel(theta, X, X)
    assert float(torch.linalg.eigvalsh(K)[0]) > -1e-10 * float(K.diagonal().max())
    assert torch.allclose(kernel(theta, X, X[3:4])[:, 0], K[:, 3], rtol=1e-9, atol=1e-12)
    assert kernel(theta.float(), X.float(), X.float()).dtype == torch.float32


@pytest.mark.parametrize("d", [1, 2])
@pytest.mark.parametrize("lengthscale", [0.3, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("key", ["periodic", "lp"])
def test_a_short_lengthscale_of_a_sine_costs_no_digits(key: str, lengthscale: float, d: int) -> None:
    """Rows within a hundredth of a period of each other, in pairs that are close."""
    kernel, _, X = case(key, d=d, n=40)
    X = 0.01 * X.float()
    X = torch.cat([X, X + 0.2 * lengthscale * 0.01]).double()
    theta = torch.zeros(kernel.size + 1, dtype=torch.float64)
    theta[1] = math.log(lengthscale)
    by_hand = [[covariance(key, theta[:-1].tolist(), x, z) for z in X.tolist()] for x in X.tolist()]
    exact = torch.tensor(by_hand, dtype=torch.float64)
    for dtype, most in ((torch.float64, 1e-12), (torch.float32, 1e-4)):
        x, point, K = X.to(dtype), theta.to(dtype), torch.empty(80, 80, dtype=dtype)
        kernel.fill(point, x, x, K)
        for computed in (K, kernel(point, x, x), kernel(point, x, x.clone())):
            assert float((computed.double() - exact).abs().max()) < most
        assert float(torch.linalg.eigvalsh(K.double())[0]) > -most


@pytest.mark.parametrize("key", ["se", "se-ard", "periodic", "lp", "se*periodic"])
def test_by_input_factors_multiply_to_the_kernel(key: str) -> None:
    kernel, theta, X = case(key)
    factors = kernel.by_input(theta)
    product = torch.stack([f(X[:, q], X[:4, q]) for q, f in enumerate(factors)]).prod(0)
    assert torch.allclose(product, kernel(theta, X, X[:4]), rtol=1e-10)
    assert kernels.make("matern52", 3).by_input(theta) is None


def test_covariances_equal_those_of_scikit_learn() -> None:
    _, _, X = case("matern52")
    theta = torch.tensor([0.0, 0.4, -1.0], dtype=torch.float64)
    pairs = {
        "se": sk.RBF(1.4918246976412703),
        "matern12": sk.Matern(1.4918246976412703, nu=0.5),
        "matern32": sk.Matern(1.4918246976412703, nu=1.5),
        "matern52": sk.Matern(1.4918246976412703, nu=2.5),
    }
    for key, peer in pairs.items():
        K = kernels.make(key, 3)(theta, X, X[:4]).numpy()
        assert K == pytest.approx(peer(X.numpy(), X[:4].numpy()), rel=1e-10)


@pytest.mark.parametrize("key", [*REAL, "se+lp", "se*periodic"])
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (50.0, 100.0)])
def test_initial_values_follow_the_data(key: str, shift: float, scale: float) -> None:
    kernel, _, X = case(key, n=60)
    y = scale * torch.sin(X[:, 0]) + shift
    theta = kernel.start(Dataset(X, y))
    assert len(theta) == len(kernel.names)
    assert torch.isfinite(theta).all()
    assert float(theta[-1].exp()) == pytest.approx(0.3 * float(y.std(correction=0)), rel=1e-9)


def test_the_initial_period_is_that_of_the_wave_in_the_data() -> None:
    x = torch.linspace(100.0, 120.0, 400, dtype=torch.float64)[:, None]
    theta = kernels.make("periodic", 1).start(Dataset(x, torch.sin(2 * torch.pi * x[:, 0] / 2.5)))
    assert float(theta[2].exp()) == pytest.approx(2.5, rel=0.02)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("sse", "did you mean"),
        ("se+", "the text ends"),
        ("(se", "never closed"),
        ("se)", "was not expected"),
        ("", "named by text"),
        ("__import__('os')", "cannot be read|not known"),
        ("se+" * 300 + "se", "may have 500"),
    ],
)
def test_texts_that_name_no_kernel_are_refused(text: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        kernels.make(text, 2)


@pytest.fixture
def guests() -> Iterator[None]:
    """Kernels that a test registers are removed after it."""
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)


class DotProduct(Covariance):
    """A kernel that is not stationary; a test gives it a key."""

    @property
    def parameter_names(self) -> tuple[str, ...]:
        return ("sd",)

    def __call__(self, theta: torch.Tensor, X: torch.Tensor, Z: torch.Tensor) -> torch.Tensor:
        return torch.exp(2.0 * theta[0]) * X @ Z.T

    def diag(self, theta: torch.Tensor, X: torch.Tensor) -> torch.Tensor:
        return torch.exp(2.0 * theta[0]) * X.square().sum(1)

    def initial_values(self, train: Dataset) -> list[float]:
        return [math.log(target_sd(train))]


@pytest.mark.usefixtures("guests")
def test_a_new_kernel_is_not_taken_for_stationary_and_needs_no_formula_of_ours() -> None:
    type("Guest", (DotProduct,), {"key": "dot", "title": "dot product"})

    assert not registry["dot"].stationary
    assert "dot" not in FORMULAS
    assert kernels.make("dot + se", 2).stationary is False
    assert kernels.make("se * periodic", 2).stationary is True


@pytest.mark.usefixtures("guests")
@pytest.mark.parametrize(
    ("base", "fields", "says"),
    [
        (
            Covariance,
            {"key": "half", "title": "Half"},
            r"'half' \(Half\) does not define parameter_names, __call__, diag,",
        ),
        (DotProduct, {"key": "dot"}, "has no title; add title = "),
        (
            DotProduct,
            {"key": "dot", "title": "Dot", "inputs": "images"},
            "inputs = 'images'; choose one of real, counts",
        ),
        (DotProduct, {"key": "se", "title": "Impostor"}, "key 'se' is taken by SE; choose another key"),
    ],
)
def test_registration_refuses_an_incomplete_kernel_and_says_what_to_add(
    base: type[Covariance], fields: dict[str, str], says: str
) -> None:
    before = dict(registry)

    with pytest.raises(TypeError, match=says):
        type("Half", (base,), fields)

    assert registry == before


def test_wrong_inputs_are_refused() -> None:
    kernel = kernels.make("se", 2)
    with pytest.raises(KernelError, match="d = 2"):
        kernel.start(Dataset(torch.zeros(3, 5), torch.zeros(3)))
    with pytest.raises(KernelError, match="numeric columns"):
        kernel.start(Dataset(["CCO", "C"], torch.zeros(2)))


@pytest.mark.parametrize("key", ["histogram", "tanimoto", "minmax"])
def test_kernels_of_counts_equal_their_formulas(key: str) -> None:
    rng = torch.Generator().manual_seed(4)
    X = torch.randint(0, 4, (9, 12), generator=rng).double()
    X[5] = 0.0
    theta = torch.tensor([0.3, -1.0], dtype=torch.float64)
    kernel = kernels.make(key, 12)
    K = kernel(theta, X, X)
    for i in range(9):
        for j in range(9):
            low, high = torch.minimum(X[i], X[j]).sum(), torch.maximum(X[i], X[j]).sum()
            inner, norms = X[i] @ X[j], X[i] @ X[i] + X[j] @ X[j]
            by_hand = {
                "histogram": low,
                "tanimoto": inner / (norms - inner) if norms > 0 else 1.0,
                "minmax": low / high if high > 0 else 1.0,
            }[key]
            assert float(K[i, j]) == pytest.approx(float(by_hand) * float(torch.exp(torch.tensor(0.6))), rel=1e-6)
    assert torch.allclose(kernel.diag(theta, X), K.diagonal())
    assert float(torch.linalg.eigvalsh(K)[0]) > -1e-10
    with pytest.raises(KernelError, match="counts of 0 or more"):
        kernel.start(Dataset(X - 1.0, X[:, 0]))


def test_the_spectrum_kernel_counts_common_substrings() -> None:
    texts = ["CCOCC", "CCO", "NNN", "CC", "CCOCCO"]
    kernel, theta = kernels.make("spectrum", 1), torch.tensor([0.0, -1.0], dtype=torch.float64)
    K = kernel(theta, texts, texts)
    assert float(K[0, 1]) == pytest.approx(1 / 3**0.5)  # {CCO, COC, OCC} and {CCO}
    assert float(K[0, 4]) == pytest.approx((2 + 1 + 1) / (3**0.5 * 6**0.5))  # CCO twice, COC, OCC
    assert float(K[0, 2]) == 0.0
    assert torch.allclose(K, K.T)
    assert torch.allclose(K.diagonal(), kernel.diag(theta, texts))
    assert torch.allclose(kernel(theta, texts, texts[1:2])[:, 0], K[:, 1])
    with pytest.raises(KernelError, match="row 1 is a int"):
        kernel.start(Dataset(["CCO", 3], torch.zeros(2)))
