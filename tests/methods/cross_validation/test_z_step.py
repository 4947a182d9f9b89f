"""The limits of the solutions inside a z step: their tolerances, their iterations, and where they begin."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from gpexplorer.methods.cross_validation import theta_step
from gpexplorer.methods.cross_validation.folds import FoldGroup, split
from gpexplorer.methods.cross_validation.solvers import CONFIRMED, Product, Solution, Target
from gpexplorer.methods.cross_validation.theta_step import INNER, FoldSystems, Limits
from oracles_admm import problem

EACH = 7  # iterations that every recorded solution claims


def one_fold(rank: int = 10) -> tuple[FoldGroup, FoldSystems, Tensor, Tensor]:
    """A fold of 40 training rows and 20 others, with its dense C and K_VT."""
    task = problem()
    [group] = split(task, [slice(0, 20)], 3, 1e9)
    systems = FoldSystems(group, group.kernel_matrix(task.theta), rank)
    K = task.kernel(task.theta, group.X, group.X[:40])
    return group, systems, K[:40] + systems.s2 * torch.eye(40, dtype=K.dtype), K[40:]


class ExactSolutions:
    """Replaces conjugate gradients by dense algebra, and keeps the targets; the first solution is wrong by `error`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, C: Tensor, error: float) -> None:
        self.targets: list[Target] = []

        def solve(product: Product, B: Tensor, X: Tensor, inverse: Product, target: Target, R: Tensor) -> Solution:
            self.targets.append(target)
            offset = error * torch.sin(torch.arange(len(B)).to(B))[:, None] if len(self.targets) == 1 else 0.0
            return Solution(torch.linalg.solve(C, B) + offset, EACH, 0.0)

        monkeypatch.setattr(theta_step, "solve", solve)


@pytest.mark.parametrize("rho", [0.7, 1.6])
@pytest.mark.parametrize(("most", "used"), [(20, 28), (28, 28), (29, 42), (10**6, 0)])
def test_the_solutions_in_a_z_step_have_the_tolerances_and_limits_that_remain(
    rho: float, most: int, used: int, monkeypatch: pytest.MonkeyPatch
):
    group, systems, C, K = one_fold()
    dual, limits = torch.linspace(-1, 2, 40, dtype=torch.float64)[:, None], Limits(most, 1e-3)
    exact = ExactSolutions(monkeypatch, C, error=0.02)

    solution = systems.z_step(dual, rho, limits)

    begin = torch.linalg.solve(C, systems.y_T) + 0.02 * torch.sin(torch.arange(40.0, dtype=torch.float64))[:, None]
    y_V = group.y[40:, None]
    adjoint = torch.linalg.solve(C, 2.0 * K.T @ (y_V - K @ begin))
    target = float(1e-3 * adjoint.norm())
    first, second, *pairs = exact.targets
    assert (float(first.norms), first.iterations, first.of_solution) == pytest.approx(
        (1e-3 * float(systems.y_T.norm()), most, False)
    )
    assert (second.iterations, second.of_solution) == (most, True)
    for k, (inverse, curved) in enumerate(zip(pairs[::2], pairs[1::2], strict=True)):
        left = most - EACH * (2 + 2 * k)
        assert (float(inverse.norms), inverse.iterations, inverse.of_solution) == pytest.approx(
            (INNER * target, left, False)
        )
        assert (float(curved.norms), curved.iterations, curved.of_solution) == pytest.approx(
            (INNER * target * max(rho, 1.0), max(left - EACH, 1), True)
        )
    assert solution.iterations == (used or EACH * len(exact.targets))
    rest = torch.linalg.solve(C, 2.0 * K.T @ (y_V - K @ solution.X)) - dual - rho * (C @ solution.X - systems.y_T)
    assert solution.error == pytest.approx(float(rest.norm()) / target, rel=1e-6)
    assert (solution.error <= 1.0) == (not used)
    assert len(pairs) >= 2


def test_a_solution_with_C_has_just_the_tolerance_relative_to_y_T_and_an_adjoint_relative_to_itself():
    group, systems, C, K = one_fold(rank=4)
    zeros, limits = torch.zeros_like(systems.y_T), Limits(2000, 1e-3)
    r = group.V * torch.cos(torch.arange(60.0, dtype=torch.float64))[:, None]
    b = 2.0 * K.T @ r[40:]

    X = systems.solve_C(3.0 * systems.y_T, zeros, limits).X
    adjoint = systems.adjoint(r, zeros, limits).X
    repeated = systems.adjoint(r, 5.0 * torch.linalg.solve(C, b), limits).X

    assert float((C @ X - 3.0 * systems.y_T).norm() / systems.y_T.norm()) == pytest.approx(1e-3 / CONFIRMED, rel=1e-5)
    scale = float(systems.C_inverse(b).norm())
    assert float(systems.C_inverse(C @ adjoint - b).norm()) / scale == pytest.approx(1e-3 / CONFIRMED, rel=1e-5)
    larger = 5.0 * float(torch.linalg.solve(C, b).norm())
    assert float(systems.C_inverse(C @ repeated - b).norm()) / larger == pytest.approx(1e-3 / CONFIRMED, rel=1e-5)


def test_a_solution_begins_at_the_given_value_unless_zero_is_closer():
    _, systems, C, _ = one_fold(rank=4)
    limits, zeros, y_T = Limits(2000, 1e-6), torch.zeros_like(systems.y_T), systems.y_T
    exact = torch.linalg.solve(C, y_T)

    from_zero, from_there, from_afar = (systems.solve_C(y_T, X, limits) for X in (zeros, exact, 1e3 * exact))

    assert from_there.iterations <= 2 < from_zero.iterations
    assert torch.equal(from_afar.X, from_zero.X)
