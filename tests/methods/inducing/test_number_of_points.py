"""The default number of inducing points: it follows the number of rows, and a number that is set stays what it is."""

from __future__ import annotations

import pytest

from baseline_problems import problem
from gpexplorer import Spec, methods
from gpexplorer.methods.capabilities import HasInducingPoints
from gpexplorer.methods.inducing.settings import resolve_num_inducing
from gpexplorer.ui.inputs.presets import question

METHODS = ["cholqr", "random", "greedy-variance", "titsias", "ivm", "kmeans", "sgpr", "fitc", "csi"]


@pytest.mark.parametrize(("n", "m"), [(50, 50), (300, 64), (4096, 64), (10_000, 100), (36_000, 189), (100_000, 316)])
def test_by_default_it_is_the_square_root_of_n_and_at_least_64(n: int, m: int) -> None:
    assert resolve_num_inducing(0, n) == m


def test_by_default_the_factor_stays_below_a_third_of_a_gigabyte() -> None:
    for n in (10**3, 10**4, 10**5, 3 * 10**5, 6 * 10**5):
        assert 8 * n * resolve_num_inducing(0, n) <= 3.2e8
    assert resolve_num_inducing(0, 10**7) == 64


@pytest.mark.parametrize("key", METHODS)
def test_every_method_resolves_its_default_and_keeps_a_number_that_is_set(key: str) -> None:
    method = methods[key]()
    assert isinstance(method, HasInducingPoints)
    assert [method.num_points(n) for n in (20, 90, 10_000)] == [20, 64, 100]
    assert methods[key](num_inducing=64).num_points(10_000) == 64
    assert methods[key](num_inducing=500).num_points(90) == 90
    assert method.cost(problem(n=90)).flops == methods[key](num_inducing=64).cost(problem(n=90)).flops


@pytest.mark.parametrize("key", ["cholqr", "titsias", "kmeans", "sgpr"])
def test_a_run_with_the_default_has_that_many_points(key: str) -> None:
    run = Spec(key, data={"name": "hypercube", "n": 120, "d": 5}, budget={"steps": 80}).open()
    run.finish(steps=66)
    state = run.trace[-1].step.state
    assert len(state.inducing if hasattr(state, "inducing") else state.Z) == 64


def test_an_old_spec_keeps_its_number_and_the_page_shows_the_resolved_one() -> None:
    assert Spec.from_json(Spec("cholqr", {"num_inducing": 64}).to_json()).settings["num_inducing"] == 64
    assert "Which 189 of 36,000 rows" in question(Spec("cholqr"), 36_000, "")
    assert "Which 64 of 36,000 rows" in question(Spec("cholqr", {"num_inducing": 64}), 36_000, "")
