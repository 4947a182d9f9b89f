"""MINIMAX's lift of eigenvalues to the floor, beside the same function of all eigenvalues."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpexplorer.linalg import cholesky
from gpexplorer.linalg.cholesky import (
    inverse_and_logdet,
    lift_above,
    num_squarings,
    project_above,
    project_to_unit_ball,
)

ORDER = 96
FLOORS = [1.0, 3e-7]
MAX_RATIO = {  # lowest eigenvalues in floors, and the rate by which a step may have taken them below
    "one": ([0.951], 0.05),
    "a cluster": ([0.994, 0.994, 0.994 + 1e-9, 1.0 - 1e-5, 1.0 + 2e-5], 0.05),
    "half of them": ([0.95 + 2e-3 * k for k in range(48)], 0.05),
    "a long step": ([0.7, 0.75, 0.9, 1.1], 0.3),
    "a short step": ([0.992, 0.999, 1.0, 1.001], 0.008),
    "any step": ([0.05, 0.5, 1.0], 1.0),
}


def of(values: list[float], floor: float) -> tuple[Tensor, Tensor, Tensor]:
    """A matrix with these eigenvalues, in floors, and others up to 1e4; all of them, and their vectors."""
    draw = torch.randn(ORDER, ORDER, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    Q = torch.linalg.qr(draw).Q
    rest = torch.logspace(0.4, 4.0, ORDER - len(values), dtype=torch.float64)
    x = torch.cat([torch.tensor(values, dtype=torch.float64), rest])
    A = (Q * (x * floor)) @ Q.T
    return 0.5 * (A + A.T), x, Q


@pytest.fixture
def projections(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that all eigenvalues were computed."""
    requests: list[int] = []
    whole = cholesky._project
    monkeypatch.setattr(cholesky, "_project", lambda *args: requests.append(1) or whole(*args))
    return requests


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("case", MAX_RATIO)
def test_a_lift_is_a_smooth_function_of_the_eigenvalues_that_is_never_below_the_floor(
    case: str, floor: float, projections: list[int]
):
    values, rate = MAX_RATIO[case]
    A, x, Q = of(values, floor)
    k = 2 ** num_squarings(rate)

    inverse, logdet = lift_above(A, floor, rate)

    least = 1.0 + cholesky.MARGIN * rate
    f = x + least * (k / (k + 1)) ** k / (k + 1) * (x / least) ** -k
    assert float(f.min()) >= least
    assert float((f - x)[x > 2.0 * least].max()) < least * max(0.25 * 2.0**-k, 1e-5)
    assert float((A - (Q * (f * floor)) @ Q.T).norm()) < 1e-3 * floor
    assert float(torch.linalg.eigvalsh(A)[0]) >= least * floor
    settled = A.clone()
    assert torch.equal(lift_above(A, floor, rate)[0], inverse_and_logdet(settled, "A")[0])
    assert torch.equal(A, settled)  # all eigenvalues are above the floor: no lift is needed now
    torch.testing.assert_close(inverse @ A, torch.eye(ORDER, dtype=torch.float64), rtol=0, atol=1e-9)
    assert logdet == pytest.approx(float(torch.logdet(A)))
    assert not projections


@pytest.mark.parametrize("rate", [1e-3, 0.05, 0.3, 1.0, 30.0])
def test_the_least_that_a_lift_leads_to_is_the_floor_itself(rate: float):
    k = 2 ** num_squarings(rate)
    x = torch.linspace(0.01, 3.0, 300_000, dtype=torch.float64)

    f = x + (k / (k + 1)) ** k / (k + 1) * x**-k

    assert float(f.min()) == pytest.approx(1.0, abs=1e-9)
    assert k == 2**cholesky.MAX_SQUARINGS or k <= max(1.0 / rate, 1.0) < 2 * k
    fallen = x[(x >= 1.0 - rate) & (x <= 1.0)]
    assert rate >= 1.0 or float((fallen**-k).max()) <= cholesky.MAX_RATIO


@pytest.mark.parametrize("floor", FLOORS)
def test_what_is_far_above_the_floor_stays_as_it_is(floor: float, projections: list[int]):
    A, _, _ = of([600.0, 700.0], floor * 1e3)
    kept = A.clone()

    inverse, logdet = lift_above(A, floor, 0.05)

    torch.testing.assert_close(A, kept, rtol=0, atol=0)
    torch.testing.assert_close(inverse @ A, torch.eye(ORDER, dtype=torch.float64), rtol=0, atol=1e-9)
    assert logdet == pytest.approx(float(torch.logdet(A)))
    assert not projections


@pytest.mark.parametrize("floor", FLOORS)
@pytest.mark.parametrize("values", [[-0.5, 0.99], [0.3], [0.0, 1.0]], ids=["indefinite", "fallen", "singular"])
def test_what_fell_farther_than_a_step_is_brought_to_the_nearest_point(
    values: list[float], floor: float, projections: list[int]
):
    A, x, Q = of(values, floor)

    inverse, _ = lift_above(A, floor, 0.05)

    assert projections
    assert float((A - (Q * (x.clamp_min(1.0) * floor)) @ Q.T).norm()) < 1e-5 * floor
    assert float(torch.linalg.eigvalsh(A)[0]) >= floor
    torch.testing.assert_close(inverse @ A, torch.eye(ORDER, dtype=torch.float64), rtol=0, atol=1e-9)


@pytest.mark.parametrize("floor", FLOORS)
def test_a_projection_raises_only_eigenvalues_below_the_floor(floor: float, projections: list[int]):
    A, x, Q = of([-3.0, 0.2, 0.999, 1.5], floor)

    projected = project_above(A.clone(), floor)

    nearest = (Q * (x.clamp_min(1.0) * floor)) @ Q.T
    assert float((projected - nearest).norm()) < 1e-5 * floor
    assert float(torch.linalg.eigvalsh(projected)[0]) >= floor
    fine = project_above(projected.clone(), floor)
    assert torch.equal(fine, projected)
    assert projections == [1]


@pytest.mark.parametrize(("smallest", "is_raised"), [(1e-16, True), (3.9e-14, True), (6e-14, False)])
def test_a_floor_below_rounding_becomes_four_times_the_rounding_of_the_trace(smallest: float, is_raised: bool):
    x = torch.full((50,), 1.0, dtype=torch.float64)
    x[0] = smallest  # 4 eps times the trace is 4.35e-14
    raised = project_above(torch.diag(x), 1e-300)
    lifted = torch.diag(x)
    inverse, _ = lift_above(lifted, 1e-300, 0.5)

    assert float(raised[0, 0]) == pytest.approx(4.0 * 2.2204e-16 * 49.0 if is_raised else smallest, rel=1e-3)
    assert float(lifted[0, 0]) > 4.3e-14
    assert float(inverse[0, 0] * lifted[0, 0]) == pytest.approx(1.0)


@pytest.mark.parametrize(("size", "expected"), [(0.5, 0.5), (1.0, 1.0), (1.5, 1.0), (40.0, 1.0)])
def test_the_unit_ball_is_that_of_the_frobenius_norm(size: float, expected: float):
    B = torch.arange(1.0, 10.0, dtype=torch.float64).reshape(3, 3)
    B = size * B / B.norm()

    near = project_to_unit_ball(B.clone())

    assert float(near.norm()) == pytest.approx(expected, rel=1e-14)
    torch.testing.assert_close(near, B * (expected / size), rtol=1e-14, atol=0)


def test_an_indefinite_matrix_gets_jitter_before_it_is_inverted():
    A = torch.diag(torch.tensor([2.0, 1.0, -1e-12], dtype=torch.float64))

    inverse, logdet = inverse_and_logdet(A, "A")

    jitter = 1.0 / float(inverse[2, 2]) + 1e-12
    assert 1e-12 < jitter < 1e-11
    assert float(inverse[0, 0]) == pytest.approx(0.5)
    assert logdet == pytest.approx(float(torch.tensor([2.0, 1.0, jitter - 1e-12]).double().log().sum()), rel=1e-6)
