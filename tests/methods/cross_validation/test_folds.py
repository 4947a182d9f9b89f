"""The folds and their kernel matrix: which rows are held out, products with stored and recomputed rows, and costs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from gpexplorer import kernels
from gpexplorer.errors import SettingError
from gpexplorer.linalg.randomness import generator
from gpexplorer.linalg.workspace import Workspace
from gpexplorer.methods.base import registry
from gpexplorer.methods.cross_validation import folds
from gpexplorer.methods.cross_validation.folds import FoldGroup, equal_parts, ordered_by_fold, split
from gpexplorer.methods.cross_validation.gpcv import admm_cost
from gpexplorer.methods.cross_validation.scheme import Z_RULES
from gpexplorer.problem import Problem, RowGroups
from oracles_admm import problem


@pytest.mark.parametrize(
    ("n", "count", "parts"),
    [
        (10, 4, [(0, 2), (2, 5), (5, 8), (8, 10)]),
        (9, 3, [(0, 3), (3, 6), (6, 9)]),
        (2, 5, [(0, 1), (1, 2)]),
        (7, 1, [(0, 7)]),
    ],
)
def test_rows_are_divided_into_nearly_equal_parts(n: int, count: int, parts: list[tuple[int, int]]):
    assert [(part.start, part.stop) for part in equal_parts(n, count)] == parts


def with_groups(task: Problem, number: list[int], are_folds: bool) -> Problem:
    return replace(task, train=replace(task.train, groups=RowGroups(torch.tensor(number), are_folds)))


def test_without_groups_the_order_is_random_and_the_parts_are_those_asked_for():
    task = problem(n=20)
    parts = equal_parts(20, 3)
    order, validation = ordered_by_fold(task.train, parts, 4)
    assert validation == parts
    assert torch.equal(order, torch.randperm(20, generator=generator(4, "folds")))
    assert not torch.equal(order, ordered_by_fold(task.train, parts, 5)[0])


def test_given_folds_stand_together_and_rows_that_none_holds_out_at_the_end():
    number = [0, 1, 2, -1, 0, 1, 2, -1, 2, 2]
    task = with_groups(problem(n=10), number, are_folds=True)
    order, validation = ordered_by_fold(task.train, equal_parts(10, 4), 1)
    assert [(part.start, part.stop) for part in validation] == [(0, 2), (2, 4), (4, 8)]
    assert [number[row] for row in order.tolist()] == [0, 0, 1, 1, 2, 2, 2, 2, -1, -1]
    drawn = torch.randperm(10, generator=generator(1, "folds")).tolist()
    assert [row for row in drawn if number[row] == 2] == order[4:8].tolist()  # in random order within a fold


@pytest.mark.parametrize(("given", "drawn"), [(1, 3), (3, 1)])
def test_one_given_fold_and_several_are_for_different_methods(given: int, drawn: int):
    task = with_groups(problem(n=12), [k % given for k in range(12)], are_folds=True)
    with pytest.raises(SettingError, match=f"The rows have {given} given folds, but the method has {drawn}"):
        ordered_by_fold(task.train, equal_parts(12, drawn), 0)


def test_groups_stay_whole_in_several_folds_and_in_one_share():
    number = [k // 5 for k in range(60)]
    task = with_groups(problem(n=60), number, are_folds=False)
    order, validation = ordered_by_fold(task.train, equal_parts(60, 4), 0)
    held_out = [{number[row] for row in order[part].tolist()} for part in validation]
    assert [part.stop - part.start for part in validation] == [15] * 4
    assert len(set().union(*held_out)) == sum(len(groups) for groups in held_out) == 12
    order, (part,) = ordered_by_fold(task.train, [slice(0, 20)], 0)
    assert part.stop - part.start == 20
    assert len({number[row] for row in order[part].tolist()}) == 4


def group(task: Problem, shared: bool, gigabytes: float = 1.0, count: int = 3) -> list[FoldGroup]:
    return split(task, equal_parts(len(task.train), count), 2, gigabytes, shared)


@pytest.mark.parametrize("shared", [True, False])
def test_each_row_is_held_out_once_and_trained_on_by_the_other_folds(shared: bool):
    task = problem(n=20)
    groups = group(task, shared)
    assert len(groups) == (1 if shared else 3)
    held_out = []
    for each in groups:
        assert each.validation_rows == (20 if shared else len(each.y) - each.trained)
        for k in range(len(each.validation)):
            out, trained = each.y[each.V[:, k] == 1.0], each.y[: each.trained][each.T[:, k] == 1.0]
            assert sorted([*out.tolist(), *trained.tolist()]) == sorted(task.train.y.tolist())
            held_out += out.tolist()
    assert sorted(held_out) == sorted(task.train.y.tolist())


def test_folds_share_the_memory_for_their_matrices():
    task = problem(n=20)
    groups = group(task, shared=False, gigabytes=0.25)
    assert len({id(each.workspace) for each in groups}) == 1
    assert groups[0].workspace.budget == 0.25e9


def test_vectors_of_the_training_rows_become_columns_and_return():
    (each,) = group(problem(n=20), shared=True)
    vectors = [torch.randn(20 - (part.stop - part.start)).double() for part in each.validation]
    columns = each.columns(vectors)
    assert columns.shape == (20, 3)
    assert torch.equal(columns * (1.0 - each.T), torch.zeros_like(columns))
    for back, vector in zip(each.vectors(columns), vectors, strict=True):
        assert torch.equal(back, vector)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("rows", [0, 1, 7, 1000])
def test_products_are_those_of_the_dense_matrix_whatever_part_is_stored(
    rows: int, shared: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(folds, "row_blocks", lambda n, *_: (slice(k, min(k + 5, n)) for k in range(0, n, 5)))
    task = problem(n=24)
    each = group(task, shared)[-1]
    each = replace(each, workspace=Workspace(8.0 * each.trained * rows))
    M = each.kernel_matrix(task.theta)
    assert M.stored == min(rows, 24)
    assert M.s2 == pytest.approx(float((2.0 * task.theta[-1]).exp()))
    c, k = each.trained, len(each.validation)
    dense = task.kernel(task.theta, each.X, each.X[:c])
    Z, U = torch.randn(c, k).double(), torch.randn(24, k).double()
    torch.testing.assert_close(M.times(Z), dense @ Z)
    torch.testing.assert_close(M.noisy_times(Z), dense[:c] @ Z + M.s2 * Z)
    torch.testing.assert_close(M.transposed_times(U), dense.T @ U)
    chosen = torch.tensor([3, 0, 9])
    torch.testing.assert_close(M.columns(chosen), dense[:c][:, chosen])
    theta = task.theta.clone().requires_grad_()
    (U * (task.kernel(theta, each.X, each.X[:c]) @ Z)).sum().backward()
    torch.testing.assert_close(M.gradient(U, Z), theta.grad, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("rows", [0, 7, 1000])
def test_the_gradient_of_a_kernel_without_a_closed_form_is_that_of_autograd(rows: int):
    task = problem(n=24, kernel="rq")
    (each,) = group(task, shared=True)
    M = replace(each, workspace=Workspace(8.0 * 24 * rows)).kernel_matrix(task.theta)
    Z, U = torch.randn(24, 3).double(), torch.randn(24, 3).double()
    theta = task.theta.clone().requires_grad_()
    (U * (task.kernel(theta, each.X, each.X) @ Z)).sum().backward()
    torch.testing.assert_close(M.gradient(U, Z), theta.grad, rtol=1e-8, atol=1e-9)


# -- the schemes -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fraction", "n", "num_validation"), [(0.5, 11, 6), (0.5, 12, 6), (0.01, 12, 1), (0.99, 12, 11), (0.3, 10, 3)]
)
def test_hold_out_validates_on_its_share_of_the_rows(fraction: float, n: int, num_validation: int):
    assert registry["gpcv-admm-holdout"](fraction=fraction).validation(n) == [slice(0, num_validation)]


def test_folds_are_coupled_only_where_each_has_its_own_theta():
    consensus, naive, hold_out = (registry[key] for key in ("gpcv-admm", "gpcv-admm-naive", "gpcv-admm-holdout"))
    assert consensus(coupling=2.5).coupling_strength == 2.5
    assert consensus(folds=2).coupling_strength == 1.0
    assert naive().coupling_strength == hold_out().coupling_strength == 0.0
    assert consensus().shares_theta
    assert not consensus(copies=True).shares_theta
    assert not naive().shares_theta
    assert not hold_out().shares_theta
    assert len(consensus(folds=3).validation(12)) == len(naive(folds=3).validation(12)) == 3


def test_the_settings_of_a_fold_are_those_of_the_method():
    values = {
        "rank": 17, "cg_iterations": 33, "cg_tolerance": 0.02, "forcing": 0.3, "theta_steps": 5, "relaxation": 1.2,
        "balance": 7.0, "rho_span": 50.0, "rho": 3.0, "largest_gap": 0.4, "theta_method": "z held still",
    }  # fmt: skip
    settings = registry["gpcv-admm"](**values).fold_settings()
    assert (settings.rank, *settings.limits, settings.forcing, settings.gradient_steps) == (17, 33, 0.02, 0.3, 5)
    assert (settings.relaxation, settings.balance, settings.rho_span, settings.rho, settings.largest_gap) == (
        1.2,
        7.0,
        50.0,
        3.0,
        0.4,
    )
    assert settings.z_rule is Z_RULES["z held still"]
    assert not settings.one_at_a_time
    assert registry["gpcv-admm"](one_at_a_time=True).fold_settings().one_at_a_time


def costs(**settings: Any) -> Any:
    return registry["gpcv-admm"](**settings).cost(problem(n=60))


def test_costs_grow_with_what_a_step_computes():
    base = costs(folds=4)
    assert costs(folds=8).flops > base.flops
    assert costs(folds=4, copies=True).flops > base.flops
    assert costs(folds=4, memory=0.0).flops > 2.0 * base.flops  # every product computes the matrix again
    assert costs(folds=4, memory=0.0).memory < base.memory
    assert costs(theta_method="z follows").flops > base.flops
    assert costs(theta_method="z held still", theta_steps=9).flops > costs(theta_method="z held still").flops
    still = {"theta_method": "z held still"}
    assert costs(**still, one_at_a_time=True).flops > costs(**still).flops
    assert costs(rank=0).flops < base.flops
    assert base.arrays["kernel of a group"] == 8 * 60 * 60
    cost = registry["gpcv-admm-holdout"](fraction=0.25).cost(problem(n=60))
    assert cost.arrays["kernel of a group"] == 8 * 60 * 45
    naive = registry["gpcv-admm-naive"](folds=4).cost(problem(n=60))
    assert naive.arrays["kernel of a group"] == 8 * 60 * 45


def test_the_cost_of_several_groups_is_their_sum_and_the_memory_that_of_the_largest():
    task, settings = problem(n=60), registry["gpcv-admm"]().fold_settings()
    small, large = (admm_cost(task, [(columns, 1)], settings, 1.0) for columns in (20, 40))
    total = admm_cost(task, [(20, 1), (40, 1)], settings, 1.0)
    assert total.arrays == large.arrays
    assert total.calls == pytest.approx(small.calls + large.calls, rel=0.02)
    assert total.flops > small.flops + large.flops  # copies are scored at their mean
    slow = replace(task, kernel=kernels.make("rq", 2))
    slow = replace(slow, theta=slow.kernel.start(slow.train))
    assert admm_cost(slow, [(40, 1)], settings, 1.0).flops > large.flops  # a gradient is not read off the matrix
