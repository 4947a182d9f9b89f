"""Orders of rows that cover all, and nearest rows among the earlier ones."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial import cKDTree

from gpexplorer.methods.neighbours import vecchia
from gpexplorer.methods.neighbours.vecchia import earlier_neighbours, maximin_order


def cloud(n: int, d: int, shift: float = 0.0) -> np.ndarray:
    random = np.random.default_rng(n + d)
    clusters = random.normal(size=(5, d))[random.integers(5, size=n)]
    return (
        np.where(random.random((n, 1)) < 0.5, random.random((n, d)), clusters + 0.1 * random.normal(size=(n, d)))
        + shift
    )


def separation(X: np.ndarray) -> float:
    """The typical distance of a row to its nearest other row."""
    return float(np.median(cKDTree(X).query(X, k=2)[0][:, 1]))


@pytest.mark.parametrize("shift", [0.0, 1e4])
@pytest.mark.parametrize("d", [1, 2, 3])
def test_each_row_of_the_exact_order_is_farthest_from_those_before_it(d: int, shift: float):
    X = cloud(80, d, shift)

    order = maximin_order(X, 3)

    assert sorted(order) == list(range(80))
    for i in range(1, 80):
        to_earlier = cKDTree(X[order[:i]]).query(X[order[i:]])[0]
        assert to_earlier[0] == pytest.approx(to_earlier.max(), rel=1e-9)


@pytest.mark.parametrize("d", [1, 2, 3])
def test_prefixes_of_the_order_by_grids_are_spaced_nearly_as_widely_as_exact_ones(d: int, monkeypatch):
    X = cloud(2500, d)
    exact = maximin_order(X, 0)
    monkeypatch.setattr(vecchia, "EXACT", 0)

    order = maximin_order(X, 0)

    assert sorted(order) == list(range(2500))
    random = np.random.default_rng(0).permutation(2500)
    for size in (20, 100, 500):
        ours, best, worst = (separation(X[rows[:size]]) for rows in (order, exact, random))
        assert ours > 0.45 * best
        assert ours > 1.2 * worst


@pytest.mark.parametrize("exact", [0, 3000])
def test_rows_that_are_alike_and_a_constant_input_have_an_order(exact: int, monkeypatch):
    monkeypatch.setattr(vecchia, "EXACT", exact)
    X = np.column_stack([np.repeat(np.arange(10.0), 6), np.full(60, 7.0)])

    order = maximin_order(X, 1)

    assert sorted(order) == list(range(60))
    assert len(set(X[order[:10], 0])) >= 8


def test_another_seed_gives_another_order():
    assert not np.array_equal(maximin_order(cloud(50, 2), 0), maximin_order(cloud(50, 2), 1))


@pytest.mark.parametrize(("n", "d", "k"), [(300, 1, 1), (300, 2, 7), (150, 4, 20)])
def test_earlier_neighbours_are_those_of_a_search_by_all_distances(n: int, d: int, k: int):
    X = cloud(n, d)
    X = X[maximin_order(X, 0)]
    positions = np.sort(np.random.default_rng(1).permutation(np.arange(k, n))[: n // 2])

    neighbours = earlier_neighbours(X, positions, k)

    for i, found in zip(positions, neighbours, strict=True):
        distance = np.linalg.norm(X[:i] - X[i], axis=1)
        np.testing.assert_allclose(distance[found], np.sort(distance)[:k], rtol=1e-12)


def test_earlier_neighbours_in_an_order_from_left_to_right_are_found_too():
    X = np.arange(200.0)[:, None]  # nearly half of the nearest rows come later

    neighbours = earlier_neighbours(X, np.arange(5, 200), 5)

    np.testing.assert_array_equal(neighbours, np.arange(5, 200)[:, None] - np.arange(1, 6))
