"""The table of growth: every case is a Spec that can grow, and powers stand beside those of the formulas."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks import curves
from gpexplorer.runs import Spec
from gpexplorer.runs.studies.machine_speed import Speed
from gpexplorer.runs.studies.measured_run import Measured
from gpexplorer.runs.studies.scaling_study import Scaling, axes


@pytest.mark.parametrize("case", curves.CASES, ids=lambda case: f"{case.method} {case.axis}")
def test_each_case_grows_along_an_axis_of_its_method(case: curves.Case):
    spec = curves.spec_of(case)

    assert case.axis in axes(spec)
    assert len(case.sizes) >= 4


def test_powers_of_time_and_memory_stand_beside_the_formulas(monkeypatch: pytest.MonkeyPatch):
    def cubic(spec: Spec, rows: int | None) -> Measured:
        assert rows is not None
        if rows == 4000:
            return Measured(0, 0, sentence="It took too long.")
        return Measured(rows, 4, seconds=1e-9 * rows**3, memory=8.0 * rows**2, steps=6)

    speed = Speed(flops=4e10, bytes=1e10, call=1e-5)  # not this machine's: another one's calls may cost more than n³
    monkeypatch.setattr(curves, "Scaling", partial(Scaling, measure=cubic, machine=lambda: speed))
    case = curves.Case("ml", "n", (250, 500, 1000, 2000, 4000), "n³", {})

    *_, line = curves.report([case])

    method, axis, sizes, largest, time, formula, memory, _, theory = line.strip("| ").split(" | ")
    assert (method, axis, sizes, theory) == ("ml", "n", "250 to 4,000", "n³")
    assert largest == "8e+03 ms, 32 MB"
    assert (time, memory) == ("3.00 ± 0.00", "2.00 ± 0.00")
    assert 2.0 < float(formula.replace(",", " ").split()[0]) < 3.0  # "2.82, two largest" where a call costs more


def test_where_small_sizes_cost_the_same_the_power_of_the_two_largest_is_given(monkeypatch: pytest.MonkeyPatch):
    def flat_then_square(spec: Spec, rows: int | None) -> Measured:
        assert rows is not None
        return Measured(rows, 4, seconds=max(1e-3, 1e-3 * (rows / 500) ** 2), memory=1.0 * rows, steps=6)

    monkeypatch.setattr(curves, "Scaling", partial(Scaling, measure=flat_then_square))

    *_, line = curves.report([curves.Case("ml", "n", (125, 250, 500, 4000), "n³", {})])

    assert line.strip("| ").split(" | ")[4] == "2.00, two largest"


def test_what_cannot_be_measured_says_why(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(curves, "Scaling", partial(Scaling, measure=lambda *_: Measured(0, 0, sentence="no memory")))

    *_, line = curves.report([curves.Case("ml", "n", (250, 500, 1000, 2000), "n³", {})])

    assert "250: no memory; 500: no memory" in line
    assert line.count("not measured") == 4
