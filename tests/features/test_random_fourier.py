"""Random Fourier features against the kernel they stand for, and their gradients against autograd."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from gpexplorer.features.random_fourier import KINDS, RandomFourier

LOGS = torch.tensor([0.4, -0.3], dtype=torch.float64)  # log lengthscale, log magnitude


def points(n: int, d: int, shift: float = 0.0) -> Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(2), dtype=torch.float64) + shift


def gaussian(Z: Tensor) -> Tensor:
    """k(z, z') by its formula, entry by entry."""
    far = (Z[:, None] - Z[None]).square().sum(2)
    return math.exp(2 * float(LOGS[1])) * torch.exp(-far / (2 * math.exp(2 * float(LOGS[0]))))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shift", [0.0, 30.0])
def test_inner_products_tend_to_the_kernel(kind: str, shift: float):
    Z = points(12, 3, shift)

    errors = []
    for D in (100, 10000):
        Phi = RandomFourier(3, D, kind, seed=1)(LOGS, Z)
        errors.append(float((Phi @ Phi.T - gaussian(Z)).abs().max()))

    assert errors[1] < 0.03
    assert errors[1] < 0.3 * errors[0]


def test_pairs_carry_the_whole_prior_variance():
    Phi = RandomFourier(4, 30, "paired", seed=0)(LOGS, points(7, 4))

    torch.testing.assert_close(Phi.square().sum(1), torch.full((7,), math.exp(-0.6), dtype=torch.float64))


def test_orthogonal_frequencies_err_less_on_average():
    Z = 0.3 * points(20, 16)

    def error(kind: str) -> float:
        errors = []
        for seed in range(20):
            Phi = RandomFourier(16, 64, kind, seed)(LOGS, Z)
            errors.append(float((Phi @ Phi.T - gaussian(Z)).square().mean()))
        return sum(errors)

    assert error("orthogonal") < 0.9 * error("paired") < 0.9 * error("plain")


def test_orthogonal_frequencies_are_orthogonal_and_as_long_as_others():
    Omega = RandomFourier(8, 800, "orthogonal", seed=3).Omega

    blocks = Omega.view(-1, 8, 8)
    Gram = blocks @ blocks.mT
    assert float((Gram - torch.diag_embed(Gram.diagonal(dim1=1, dim2=2))).abs().max()) < 1e-12
    assert float(Omega.square().sum(1).mean()) == pytest.approx(8.0, rel=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_those_of_autograd(kind: str):
    waves, Z, logs = RandomFourier(3, 10, kind, seed=5), points(6, 3, 2.0).requires_grad_(), LOGS.clone()
    logs.requires_grad_()
    at = waves.waves(logs, Z)
    G = torch.randn(at.Phi.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    into = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        dZ = waves.pullback(logs, at, G, into)

    want = torch.autograd.grad((at.Phi * G).sum(), (Z, logs))
    torch.testing.assert_close(dZ, want[0])
    torch.testing.assert_close(into, want[1])


def test_the_seed_decides():
    first, same, second = (RandomFourier(2, 6, "plain", seed).Omega for seed in (1, 1, 2))

    assert torch.equal(first, same)
    assert not torch.equal(first, second)


def test_orthogonal_frequencies_are_drawn_at_once(monkeypatch: pytest.MonkeyPatch):
    factored, qr = [], torch.linalg.qr
    monkeypatch.setattr(torch.linalg, "qr", lambda A: factored.append(A.shape) or qr(A))

    RandomFourier(3, 20_000, "orthogonal", seed=0)

    assert factored == [(3334, 3, 3)]
