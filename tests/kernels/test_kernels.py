"""Kernels against plain floats, scikit-learn and finite differences; far from the origin and at zero distance."""

from __future__ import annotations

import pytest
import torch
from sklearn.gaussian_process import kernels as sk

from gpexplorer import kernels
from gpexplorer.errors import KernelError
from gpexplorer.problem import Dataset
from oracles import covariance

REAL = [key for key in kernels.available() if kernels.base.registry[key].inputs == "real"]
STATIONARY = [key for key in REAL if not key.startswith("linear")]


def case(key: str, d: int = 3, n: int = 7, shift: float = 0.0):
    rng = torch.Generator().manual_seed(5)
    X = torch.randn(n, d, generator=rng, dtype=torch.float64) + shift
    kernel = kernels.make(key, d)
    theta = 0.3 * torch.randn(kernel.size + 1, generator=rng, dtype=torch.float64)
    return kernel, theta, X


@pytest.mark.parametrize("key", REAL)
def test_formula(key: str) -> None:
    kernel, theta, X = case(key)
    K = kernel(theta, X, X[:4])
    for i in range(7):
        for j in range(4):
            by_hand = covariance(key, theta[:-1].tolist(), X[i].tolist(), X[j].tolist())
            assert float(K[i, j]) == pytest.approx(by_hand, rel=1e-10)
    assert torch.allclose(kernel.diag(theta, X), kernel(theta, X, X).diagonal(), rtol=1e-12)


@pytest.mark.parametrize("key", STATIONARY)
def test_off_origin_twin(key: str) -> None:
    kernel, theta, X = case(key)
    shifted = kernel(theta, X + 1024.0, X[:4] + 1024.0)  # a power of two, so X + shift loses bits but no more
    assert torch.allclose(shifted, kernel(theta, X, X[:4]), atol=1e-7)


COMPOSITES = ["se+lp", "se-ard*periodic", "se-ard*(periodic+linear)", "se+se"]
TOLD = ("se", "se-ard", "periodic", "lp", "se-ard*periodic")  # slopes that the covariances themselves tell


@pytest.mark.parametrize("shift", [0.0, 1024.0])
@pytest.mark.parametrize("key", [*REAL, *COMPOSITES])
def test_a_matrix_is_filled_with_the_same_numbers(key: str, shift: float) -> None:
    kernel, theta, X = case(key, n=30, shift=shift)
    room = torch.full((32, 9), torch.nan, dtype=torch.float64)
    kernel.fill(theta, X, X[:9], room[1:31])
    torch.testing.assert_close(room[1:31], kernel(theta, X, X[:9]), rtol=1e-8, atol=1e-10)
    assert room[[0, 31]].isnan().all()


@pytest.mark.parametrize("key", [*REAL, *COMPOSITES])
def test_a_gradient_told_by_the_covariances_alone_is_the_same(key: str) -> None:
    kernel, theta, X = case(key, n=30)
    u, z = torch.randn(2, 30, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    known = kernel.theta_gradient_from_matrix(theta, X, X[:9], (u, z[:9]), kernel(theta, X, X[:9]))
    outer = kernel.theta_gradient_bilinear(theta, X, X[:9], (u, z[:9]))
    expected = kernel.theta_gradient(theta, X, X[:9], torch.outer(u, z[:9]))
    torch.testing.assert_close(outer, expected)
    assert (known is not None) == (key in TOLD)
    if known is not None:
        torch.testing.assert_close(known, expected)


@pytest.mark.parametrize("key", [*REAL, *COMPOSITES])
def test_contract_is_the_gradient(key: str) -> None:
    kernel, theta, X = case(key, n=30)
    G = torch.randn(30, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    slope = kernel.theta_gradient(theta, X, X[:9], G)
    step = 1e-6
    for i in range(len(theta)):
        e = torch.zeros_like(theta)
        e[i] = step
        rise = ((kernel(theta + e, X, X[:9]) - kernel(theta - e, X, X[:9])) * G).sum() / (2 * step)
        assert float(slope[i]) == pytest.approx(float(rise), abs=2e-6)
    diagonal = kernel.theta_gradient_diag(theta, X, G[:, 0])
    assert float(diagonal[-1]) == 0.0
    at = theta.clone().requires_grad_(True)
    (truth,) = torch.autograd.grad(kernel.diag(at, X) @ G[:, 0], at)
    assert torch.allclose(diagonal, truth)


@pytest.mark.parametrize("key", REAL)
def test_gradients_at_zero_distance_are_finite(key: str) -> None:
    kernel, theta, X = case(key)
    X = X[:1].repeat(4, 1).requires_grad_(True)
    at = theta.clone().requires_grad_(True)
    slopes = torch.autograd.grad(kernel(at, X, X.detach().clone()).sum(), [at, X], allow_unused=True)
    assert all(torch.isfinite(slope).all() for slope in slopes if slope is not None)


@pytest.mark.parametrize("key", [*REAL, "se+lp"])
def test_positive_semidefinite_and_one_column(key: str) -> None:
    kernel, theta, X = case(key, n=40)
    K = kernel(theta, X, X)
    assert float(torch.linalg.eigvalsh(K)[0]) > -1e-10 * float(K.diagonal().max())
    assert torch.allclose(kernel(theta, X, X[3:4])[:, 0], K[:, 3], rtol=1e-9, atol=1e-12)
    assert kernel(theta.float(), X.float(), X.float()).dtype == torch.float32


@pytest.mark.parametrize("key", ["se", "se-ard", "periodic", "lp", "se*periodic"])
def test_by_input_factors_multiply_to_the_kernel(key: str) -> None:
    kernel, theta, X = case(key)
    factors = kernel.by_input(theta)
    product = torch.stack([f(X[:, q], X[:4, q]) for q, f in enumerate(factors)]).prod(0)
    assert torch.allclose(product, kernel(theta, X, X[:4]), rtol=1e-10)
    assert kernels.make("matern52", 3).by_input(theta) is None


def test_against_scikit_learn() -> None:
    _, _, X = case("matern52")
    theta = torch.tensor([0.0, 0.4, -1.0], dtype=torch.float64)
    pairs = {
        "se": sk.RBF(1.4918246976412703),
        "matern12": sk.Matern(1.4918246976412703, nu=0.5),
        "matern32": sk.Matern(1.4918246976412703, nu=1.5),
        "matern52": sk.Matern(1.4918246976412703, nu=2.5),
    }
    for key, peer in pairs.items():
        ours = kernels.make(key, 3)(theta, X, X[:4]).numpy()
        assert ours == pytest.approx(peer(X.numpy(), X[:4].numpy()), rel=1e-10)


@pytest.mark.parametrize("key", [*REAL, "se+lp", "se*periodic"])
@pytest.mark.parametrize(("shift", "scale"), [(0.0, 1.0), (50.0, 100.0)])
def test_start_follows_the_data(key: str, shift: float, scale: float) -> None:
    kernel, _, X = case(key, n=60)
    y = scale * torch.sin(X[:, 0]) + shift
    theta = kernel.start(Dataset(X, y))
    assert len(theta) == len(kernel.names)
    assert torch.isfinite(theta).all()
    assert float(theta[-1].exp()) == pytest.approx(0.3 * float(y.std(correction=0)), rel=1e-9)


def test_start_finds_the_period_of_a_wave() -> None:
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
def test_bad_names_are_refused(text: str, says: str) -> None:
    with pytest.raises(KernelError, match=says):
        kernels.make(text, 2)


def test_wrong_inputs_are_refused() -> None:
    kernel = kernels.make("se", 2)
    with pytest.raises(KernelError, match="d = 2"):
        kernel.start(Dataset(torch.zeros(3, 5), torch.zeros(3)))
    with pytest.raises(KernelError, match="numeric columns"):
        kernel.start(Dataset(["CCO", "C"], torch.zeros(2)))


@pytest.mark.parametrize("key", ["histogram", "tanimoto", "minmax"])
def test_counts_by_hand(key: str) -> None:
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


def test_spectrum_by_hand() -> None:
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
