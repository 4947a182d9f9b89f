"""Descent by Armijo's rule (eq 3), against the rule written out."""

from __future__ import annotations

import numpy as np
import pytest

from gpexplorer.linalg.replayed_descent import ARMIJO, LONGEST, Evaluated, gradient_descent

STEEP = np.array([1.0, 30.0])


def bowl(point: np.ndarray) -> Evaluated | None:
    """A quadratic function, which cannot be evaluated far to the left."""
    if point[0] < -0.9:
        return None
    return Evaluated(0.5 * float(STEEP @ point**2), STEEP * point, 0.0)


@pytest.mark.parametrize("start", [(2.0, 0.3), (0.0, 0.001), (3.0, 0.0)])
def test_a_step_doubles_after_a_success_and_halves_after_a_failure(start: tuple[float, float]):
    result = [(best.point.copy(), best.value) for best in gradient_descent(bowl, np.array(start), 25)]

    point, lengths, expected = np.array(start), [], []
    length = LONGEST / np.linalg.norm(STEEP * point)
    value = 0.5 * STEEP @ point**2
    expected.append((point, value))
    for _ in range(24):
        gradient = STEEP * point
        proposal = point - length * gradient
        least = value - ARMIJO * length * gradient @ gradient
        reached = 0.5 * STEEP @ proposal**2
        worked = proposal[0] >= -0.9 and reached <= least
        if worked:
            point, value = proposal, reached
        lengths.append((length, worked))
        length *= 2.0 if worked else 0.5
        expected.append((point, value))
    assert {worked for _, worked in lengths} == {True, False}
    assert len(result) == 25
    for (best_point, value_here), (expected_point, value_there) in zip(result, expected, strict=True):
        np.testing.assert_allclose(best_point, expected_point, rtol=1e-12, atol=1e-15)
        assert value_here == pytest.approx(value_there, rel=1e-12)


def test_a_start_that_cannot_be_evaluated_gives_nothing():
    assert list(gradient_descent(bowl, np.array([-1.0, 0.0]), 5)) == []
