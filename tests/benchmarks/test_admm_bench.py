"""The bench of ADMM: everything has a line, and the scaling factors follow from the times above them."""

from __future__ import annotations

import pytest

from benchmarks import admm
from gpexplorer.runs import Spec


def test_everything_has_a_line_and_factors_follow_from_the_times(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admm, "median_seconds", lambda work, repeats: 0.01)
    monkeypatch.setattr(admm, "_per_step", lambda method, task, iterations: 1e-6 * len(task.train) ** 2)

    title, *lines = admm.report((40, 80), "se", 3, 2, (False, 40))

    assert title.startswith("se, ")
    small = [line for line in lines if line.startswith("n = 40 ")]
    large = [line for line in lines if line.startswith("n = 80 ")]
    assert (len(small), len(large)) == (7, 4)
    [factor] = [line for line in lines if line.startswith("gpcv-admm-holdout iteration")]
    assert factor.split()[-1] == "2.00"


def test_other_packages_are_left_out_where_they_have_no_such_kernel():
    assert not list(admm._baselines(admm.problem(30, "se + lp")))


def test_the_task_with_many_inputs_needs_more_iterations_of_conjugate_gradients():
    from itertools import islice

    from gpexplorer.methods.base import registry

    used = [
        next(islice(registry["gpcv-admm"](rank=30).steps(task), 4, None)).info.iterations
        for task in (admm.problem(120, "se"), admm.many_inputs(120, 10))
    ]
    title, *lines = admm.report((40,), "se", 3, 2, (False, 40), d=10)

    assert used[1] > 2 * used[0]
    assert title.startswith("se-ard, d = 10")
    assert len([line for line in lines if line.startswith("n = 40 ")]) == 7


def test_test_rows_of_splits_judge_the_methods(monkeypatch):
    rows = {"name": "hypercube", "n": 30, "d": 2, "noise": 0.2, "seed": 3}
    judged = {"gpcv-admm": ("gpcv-admm", {"max_iterations": 2}), "ml": ("ml", {})}
    monkeypatch.setattr(admm, "SETS", (rows,))
    monkeypatch.setattr(admm, "JUDGED", judged)
    errors = {}
    for name, (key, settings) in judged.items():
        runs = [Spec(key, settings, data=rows, split=k).open() for k in (0, 1)]
        ends = [run.finish().reason for run in runs]
        errors[name] = [run.scores()["rmse"] for run in runs]
    assert ends == ["converged", "converged"]

    first, second, gains = admm.judged(2)

    assert f" gpcv-admm: rmse {sum(errors['gpcv-admm']) / 2:.3g}" in first
    assert f" ml: rmse {sum(errors['ml']) / 2:.3g}" in second
    assert second.endswith("{'converged': 2}")
    a, b = (other - own for own, other in zip(errors["gpcv-admm"], errors["ml"], strict=True))
    assert gains.endswith(f": ml {(a + b) / 2:.2g} ({abs(a - b) / 2:.2g})")
