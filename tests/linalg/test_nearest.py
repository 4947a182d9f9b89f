"""The nearest rows are those by all differences, with few inputs and with many."""

import numpy as np
import pytest

from gpexplorer.linalg.nearest import TREE_INPUTS, Nearest


def by_differences(X: np.ndarray, Z: np.ndarray, k: int) -> np.ndarray:
    """The k smallest distances [b, k] from each row of Z, row by row."""
    return np.sort(np.stack([np.linalg.norm(X - z, axis=1) for z in Z]))[:, :k]


def rows_of(kind: str, n: int, d: int) -> np.ndarray:
    random = np.random.default_rng(d)
    X = random.standard_normal((n, d))
    if kind == "off-origin":
        X += 1e6
    elif kind == "duplicates":
        X = X[random.integers(0, n // 10, n)]
    elif kind == "one far row":
        X[0] = 1e15
    elif kind == "a small cluster far away":
        X[: n // 3] = 1e9 + 0.1 * X[: n // 3]
    elif kind == "a constant":
        X[:, 0] = 3.0
    return X


KINDS = ("plain", "off-origin", "duplicates", "one far row", "a small cluster far away", "a constant")


@pytest.mark.parametrize("d", [2, TREE_INPUTS + 1, 60])
@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_rows_are_those_by_all_differences(kind: str, d: int):
    X = rows_of(kind, 300, d)
    Z = np.concatenate([X[:40], X[200:240] + 0.01])
    distances, rows = Nearest(X).query(Z, 7)

    wanted = by_differences(X, Z, 7)
    np.testing.assert_allclose(distances, wanted, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(np.linalg.norm(X[rows] - Z[:, None], axis=2), wanted, rtol=1e-9, atol=1e-9)
    assert all(len(set(own)) == 7 for own in rows.tolist())


@pytest.mark.parametrize("d", [1, TREE_INPUTS + 1])
def test_all_rows_may_be_asked_for_and_one_alone(d: int):
    X = rows_of("plain", 9, d)
    distances, rows = Nearest(X).query(X[:2], 9)
    np.testing.assert_allclose(distances, by_differences(X, X[:2], 9), atol=1e-12)
    assert sorted(rows[0].tolist()) == list(range(9))
    assert Nearest(X).query(X[3:4], 1)[1].tolist() == [[3]]
    assert Nearest(X).query(X[:0], 3)[1].shape == (0, 3)


def test_rows_in_blocks_are_those_at_once(monkeypatch):
    X = rows_of("plain", 200, 30)
    at_once = Nearest(X).query(X, 5)
    monkeypatch.setattr("gpexplorer.linalg.nearest.BLOCK_BYTES", 8 * 200 * 7)
    in_blocks = Nearest(X).query(X, 5)
    np.testing.assert_array_equal(at_once[1], in_blocks[1])
    np.testing.assert_allclose(at_once[0], in_blocks[0], rtol=1e-12)
