"""Random numbers by seed and position: the same in every version, in the order that the documentation gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from gpexplorer.linalg.randomness import cosines, generator, random_rows


def test_numbers_of_a_seed_and_a_position_are_the_same_in_every_version():
    """Runs are replayed by them: these numbers must never change."""
    assert generator(3, "rows", 7).initial_seed() == 5628951014472657992
    assert generator(3).initial_seed() == 363018757033614945
    assert torch.rand(1, generator=generator(3, "rows", 7)).item() == pytest.approx(0.05720674991607666, rel=1e-6)


def reference_rows(n: int, size: int, source: torch.Generator) -> list[int]:
    """Rows as the documentation describes them, one by one."""
    if n <= 4 * min(size, n):
        return torch.randperm(n, generator=source).tolist()[:size]
    drawn = torch.randint(n, (2 * size,), generator=source).tolist()
    while len(set(drawn)) < size:
        drawn += torch.randint(n, (size,), generator=source).tolist()
    return list(dict.fromkeys(drawn))[:size]


@pytest.mark.parametrize(
    ("n", "size", "seed"),
    [(8, 2, 0), (9, 2, 0), (9, 2, 2580), (9, 2, 15), (5, 9, 1), (5, 5, 1), (1000, 40, 0), (40, 10, 2), (41, 10, 2)],
)
def test_rows_without_replacement_are_those_of_the_plain_algorithm(n: int, size: int, seed: int):
    """Seeds with few distinct rows among the first draws are among them; afterwards the generators agree."""
    source, plain = (torch.Generator().manual_seed(seed) for _ in range(2))

    assert random_rows(n, size, source).tolist() == reference_rows(n, size, plain)
    assert torch.equal(source.get_state(), plain.get_state())


@pytest.mark.parametrize("shift", [0.0, 100.0])
@pytest.mark.parametrize("count", [1, 7, 8])
def test_features_are_cosines_and_sines_of_the_same_frequencies(count: int, shift: float):
    rng = torch.Generator().manual_seed(count)
    Omega = torch.randn(count, 3, generator=rng, dtype=torch.float64)
    X = shift + torch.randn(5, 3, generator=rng, dtype=torch.float64)

    features = cosines(Omega, 1.7, torch.Generator().manual_seed(9))(X).numpy()

    half = math.ceil(count / 2)
    phases = 2.0 * np.pi * torch.rand(half, generator=torch.Generator().manual_seed(9), dtype=torch.float64).numpy()
    angles = X.numpy() @ Omega[:half].numpy().T + phases
    expected = 1.7 * np.sqrt(2.0) * np.hstack([np.cos(angles), -np.sin(angles)])[:, :count]
    np.testing.assert_allclose(features, expected, rtol=0.0, atol=1e-11)
