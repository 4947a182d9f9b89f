"""Power laws are fitted or refused with a reason, and a forecast names the array that overflows first."""

from __future__ import annotations

import math
import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from gpexplorer import Spec, methods
from gpexplorer.errors import SettingError
from gpexplorer.methods.base import registry
from gpexplorer.problem import Cost
from gpexplorer.runs import Spec as RunSpec
from gpexplorer.runs.budget import Budget
from gpexplorer.runs.studies import machine_speed, measured_run, power_law, scaling_study
from gpexplorer.runs.studies.machine_speed import CALLS, Speed, machine, tiny_step
from gpexplorer.runs.studies.measured_run import Measured
from gpexplorer.runs.studies.scaling_study import Scaling
from toy_method import ROWS, Toy
from work_counter import Work

SPEC = Spec("cholesky", {"learn": False}, {"name": "friedman1", "n": 100, "d": 6})
GB = 1e9


def cubic(spec: RunSpec, rows: int | None) -> Measured:
    """A machine on which a step takes exactly (n / 1000)^3 seconds."""
    n = rows or 90
    return Measured(n, 6, (n / 1000) ** 3, 8.0 * n * n, 0.1, 5)


def scaled(values: list[int], measure=cubic, axis: str = "n", spec: Spec = SPEC) -> Scaling:
    result = Scaling(spec, axis, values, measure, lambda: Speed(1e9, 1e10))
    for _ in result:
        pass
    return result


def test_three_sizes_bear_no_slope_and_four_do():
    x = [100.0, 200.0, 300.0, 400.0]
    assert power_law.fit(x[:3], x[:3]).refused == "No slope from 3 sizes: measure 4 different ones at least."
    assert power_law.fit(x, x).refused == ""


@pytest.mark.parametrize(("power", "shift"), [(3.0, 0.0), (2.0, 5.0), (0.0, -3.0), (-1.0, 2.0)])
def test_an_exact_power_law_is_fitted_exactly(power: float, shift: float):
    x = np.geomspace(100, 5000, 6)

    fit = power_law.fit(x.tolist(), (math.exp(shift) * x**power).tolist())

    assert fit.refused == ""
    assert fit.power == pytest.approx(power, abs=1e-10)
    assert fit.at(1e6) == pytest.approx([math.exp(shift) * 1e6**power] * 3, rel=1e-8)


def test_the_intervals_are_those_of_least_squares():
    x, e = np.geomspace(10, 1000, 12), np.random.default_rng(3).normal(size=12) * 0.1
    v = np.exp(2 + 1.5 * np.log(x) + e)
    A = np.stack([np.ones(12), np.log(x)], 1)
    coefficients, [rss], *_ = np.linalg.lstsq(A, np.log(v), rcond=None)
    covariance = rss / 10 * np.linalg.inv(A.T @ A)
    new = np.array([1, math.log(1e5)])
    t = 2.2281388519649385  # Student's t, 10 degrees of freedom, 0.975

    fit = power_law.fit(x.tolist(), v.tolist())

    assert fit.power == pytest.approx(coefficients[1])
    assert fit.high - fit.power == pytest.approx(t * math.sqrt(covariance[1, 1]))
    half = t * math.sqrt(rss / 10 + new @ covariance @ new)
    assert fit.at(1e5) == pytest.approx(np.exp(new @ coefficients + np.array([0, -half, half])))


def test_nineteen_in_twenty_new_measurements_fall_in_their_interval():
    rng, inside = np.random.default_rng(0), 0
    x = np.geomspace(10, 1000, 6)
    for _ in range(400):
        fit = power_law.fit(x.tolist(), np.exp(np.log(x) * 2 + rng.normal(size=6) * 0.2).tolist())
        _, low, high = fit.at(2000) if not fit.refused else (0, 0, math.inf)
        inside += low <= math.exp(2 * math.log(2000) + rng.normal() * 0.2) <= high

    assert 0.92 <= inside / 400 <= 0.98


@pytest.mark.parametrize(
    ("x", "v", "why"),
    [
        ([1, 2, 4], [1, 2, 4], "from 3 sizes: measure 4"),
        ([1, 2, 4, 4, 8], [1, 2, math.nan, 0, math.inf], "from 2 sizes"),
        ([100, 110, 120, 130], [1, 2, 3, 4], "within a factor of 4"),
        ([1, 2, 4, 8, 16, 32], [1, 9, 1, 9, 1, 9], "do not lie on a power law"),
        ([1, 2, 4, 8], [1, 1.2, 9, 16], "known to ±"),
    ],
)
def test_a_bad_fit_is_refused_with_the_reason(x: list[float], v: list[float], why: str):
    fit = power_law.fit(x, v)

    assert why in fit.refused == fit.sentence
    with pytest.raises(ValueError, match="measure"):
        fit.at(10)


def test_sizes_within_a_factor_of_four_are_refused_and_a_good_fit_states_its_numbers():
    for last, refused in ((3.99, True), (4.0, False)):
        x = [100.0, 150.0, 250.0, 100.0 * last]
        assert ("factor of 4" in power_law.fit(x, [a**1.5 for a in x]).refused) == refused
    x = [1.0, 2.0, 4.0, 8.0, 16.0]
    fit = power_law.fit(x, [1.0, 2.9, 7.8, 23.0, 63.0])
    bounds = f"{fit.power:.2f} (95% interval {fit.low:.2f} to {fit.high:.2f}; R² {fit.r2:.3f}, 5 points)"
    assert fit.sentence == f"grows like x^{bounds}"


@pytest.mark.parametrize(
    ("r2", "sd", "half_width", "words"),
    [
        (0.89, 0.11, 0.1, "do not lie on a power law (R² 0.89, 0.9 wanted)"),
        (0.89, 0.09, 0.1, ""),  # a constant, whose R² says nothing
        (0.91, 0.5, 0.1, ""),
        (0.99, 0.5, 0.76, "known to ±0.76 only (±0.75 wanted)"),
        (0.99, 0.5, 0.74, ""),
    ],
)
def test_a_fit_is_refused_beyond_its_limits(r2: float, sd: float, half_width: float, words: str):
    reason = power_law._reason_to_refuse(r2, sd, half_width)

    assert words in reason
    assert bool(reason) == bool(words)


def test_the_scaling_factor_of_the_admm_paper():
    assert power_law.scaling_factor(2000, 1000, 6.0, 3.0) == 1.0
    assert power_law.scaling_factor(2000, 1000, 12.0, 3.0) == 2.0


def test_measured_and_predicted_stand_side_by_side():
    result = scaled([1000, 200, 400, 800])

    table = result.table()
    assert table["value"].tolist() == [200, 400, 800, 1000]
    assert table["scaling factor"].tolist()[1:] == pytest.approx([4.0, 4.0, 1.5625])
    assert result.slope().power == pytest.approx(3.0)
    assert result.slope("memory").power == pytest.approx(2.0)
    assert 2.0 < result.slope("seconds predicted").power < 3.2
    run = SPEC.open()
    assert result.formula(90, 90, 6) == run.method.cost(run.problem)


def test_small_sizes_are_predicted_to_grow_slowly_and_large_ones_as_arithmetic_does():
    spec = Spec("cg", {"learn": False, "cache": 8.0}, {"name": "friedman1", "n": 100, "d": 6})
    powers = []
    for values in ([25, 50, 100, 200], [12_500, 25_000, 50_000, 100_000]):
        result = Scaling(spec, "n", values, cubic, lambda: Speed(50e9, 10e9, 8e-6))
        assert all(row["seconds predicted"] > 50 * 8e-6 for row in result)
        powers.append(result.slope("seconds predicted").power)

    assert powers[0] < 0.3  # dispatching what an iteration asks for
    assert 1.9 < powers[1] < 2.5


def test_a_million_rows_are_forecast_without_allocating_them():
    result = scaled([200, 400, 800, 1600])

    forecast = result.forecast(10**6, 16 * GB)

    assert forecast.seconds == pytest.approx(1e9)
    assert forecast.low <= forecast.seconds <= forecast.high
    assert not forecast.fits
    assert forecast.memory > 8e12
    assert f"“{forecast.largest}” overflows first" in forecast.sentence
    assert "625 times the largest size measured" in forecast.sentence
    assert "It fits" in result.forecast(1000, 16 * GB).sentence


def test_a_forecast_far_from_the_formula_asks_for_larger_sizes():
    def dispatched(spec: RunSpec, rows: int | None) -> Measured:
        return Measured(rows or 90, 6, 2e-3, 1e6, 0.1, 5)  # seconds that no size tells apart

    flat, cubed = (scaled([200, 400, 800, 1600], measure).forecast(10**6, GB) for measure in (dispatched, cubic))

    assert flat.seconds == pytest.approx(2e-3)
    assert "By the formula it is " in flat.sentence
    assert "measure larger sizes" in flat.sentence
    assert "By the formula" not in cubed.sentence
    result = scaled([200, 400, 800, 1600], dispatched)
    sentences = {value: result.forecast(value, 1e15).sentence for value in (160_000, 160_001, 161_600)}
    assert ["times the largest" in sentence for sentence in sentences.values()] == [False, True, True]
    assert "That is 101 times the largest size measured." in sentences[161_600]


def test_a_forecast_and_its_formula_may_differ_by_a_factor_of_three():
    result = scaled([200, 400, 800, 1600])
    for factor, asks in ((2.9, False), (3.1, True), (1 / 2.9, False), (1 / 3.1, True)):
        seconds = factor * result.slope().at(1000)[0]
        result._machine = lambda seconds=seconds: SimpleNamespace(seconds=lambda _: seconds)

        forecast = result.forecast(1000, GB)

        assert ("By the formula it is" in forecast.sentence) == asks
        assert f"{seconds:.3g} s: measure" in forecast.sentence or not asks


def test_a_forecast_from_a_bad_fit_is_the_formulas_and_says_so():
    forecast = scaled([200, 400]).forecast(10**5, GB)

    assert "measure 4" in forecast.refused
    assert math.isnan(forecast.low)
    assert "formula's alone" in forecast.sentence


def test_a_forecast_from_a_bad_fit_is_not_below_what_a_smaller_size_took():
    """A million rows were to take .028 s, and 1,000 had taken .049 s."""
    took = {200: 0.4, 400: 0.9, 800: 0.05, 1600: 0.6}
    result = scaled(list(took), lambda _, rows: Measured(rows or 0, 6, took.get(rows or 0, 0.0), 8.0, 0.1, 5))
    assert result.slope().refused

    near, far = (result.forecast(value, GB) for value in (300, 900))

    assert [near.seconds, far.seconds] == [0.4, 0.9]
    assert "what a smaller size took; the formula says" in far.sentence
    assert result.forecast(10**5, 1e15).seconds > 1e4  # the formula's, which is above


def test_a_size_that_fails_keeps_its_sentence_and_the_rest_go_on():
    def failing(spec: RunSpec, rows: int | None) -> Measured:
        return Measured(0, 0, sentence="Memory ran out.") if rows == 400 else cubic(spec, rows)

    result = scaled([200, 400, 800, 1600, 3200], failing)

    assert result.table()["sentence"].tolist() == ["", "Memory ran out.", "", "", ""]
    assert result.slope().power == pytest.approx(3.0)


@pytest.mark.parametrize("method", sorted(methods))
def test_every_method_gives_the_cost_of_a_million_rows(method: str):
    spec = Spec(method, data={"name": "friedman1", "n": 100})
    result = Scaling(spec, "n", [100], cubic, lambda: Speed(1e9, 1e10))

    small, large = result.formula(1000, 0, 10), result.formula(10**6, 0, 10)

    assert 0 < small.flops <= large.flops  # equal for a method that takes a subset of the rows
    assert 0 < small.memory <= large.memory < 1e15


def test_axes_are_those_the_method_and_its_data_have():
    assert set(scaling_study.axes(SPEC)) == {"n", "d"}
    assert scaling_study.axes(Spec("cholqr"))["m"].setting == "num_inducing"
    assert scaling_study.axes(Spec("gbcd", data="kin40k"))["b"].setting == "block"
    assert "d" not in scaling_study.axes(Spec("gbcd", data="kin40k"))
    with pytest.raises(SettingError, match="does not grow along 'm'; it has n, d"):
        Scaling(SPEC, "m", [1])
    with pytest.raises(SettingError, match="cannot be redrawn"):
        Scaling(Spec("cholqr", data="mine.csv"), "n", [10])
    with pytest.raises(SettingError, match="A size is 0"):
        Scaling(SPEC, "n", [0])


@pytest.mark.parametrize(("axis", "value", "n", "d"), [("n", 70, 70, 6), ("d", 9, 90, 9)])
def test_what_grows_is_what_is_measured(axis: str, value: int, n: int, d: int):
    result = measured_run.measure(*scaling_study.axes(SPEC)[axis].grown(SPEC, value), Budget(2, 5.0))

    assert (result.n, result.d, result.sentence) == (n, d, "")
    assert result.seconds > 0


def test_a_long_first_step_that_sets_up_is_not_the_time_of_a_step(monkeypatch: pytest.MonkeyPatch):
    steps = Toy.steps

    def after_a_long_start(self, problem, resume=None):
        for number, step in enumerate(steps(self, problem, resume)):
            time.sleep(0.3 if number == 1 else 0.0)
            yield step

    monkeypatch.setitem(registry, Toy.key, Toy)
    monkeypatch.setattr(Toy, "steps", after_a_long_start)

    measured = measured_run.measure(Spec(Toy.key, data=ROWS), budget=Budget(4, 0.2))

    assert measured.first > 0.3
    assert measured.seconds < 0.1
    assert measured.steps == 5


def test_a_child_measures_at_least_the_matrix_and_not_ten_of_them():
    spec = Spec("cholesky", {"learn": False, "variance_rows": 10}, {"name": "friedman1", "n": 1600}, kernel="se")

    result = measured_run.in_child(spec, 1400)

    assert (result.n, result.sentence) == (1400, "")
    assert 1400**2 * 8 <= result.memory <= 8 * 1400**2 * 8
    assert result.seconds > 0


def test_a_child_measures_the_seconds_of_one_run_after_another_and_ends():
    with measured_run.Child() as child:
        results = [child.measure(SPEC, rows) for rows in (70, 60)]
        too_few = child.measure(Spec("cholqr", data={"name": "friedman1", "n": 2}))
        late = child.measure(SPEC, timeout=0.0)

    assert [(result.n, result.sentence) for result in results] == [(70, ""), (60, "")]
    assert all(result.seconds > 0 and math.isnan(result.memory) for result in results)
    assert "must be a whole number from 3" in too_few.sentence
    assert late.sentence == "Not measured: it took more than 0 s."
    assert "ended with status" in child.measure(SPEC).sentence


def test_the_fastest_growth_is_named_only_where_no_interval_overlaps():
    n = [100.0, 200.0, 400.0, 800.0]
    scattered = [1.0, 1.25, 1.0, 1.25]

    def fitted(power: float) -> power_law.Slope:
        return power_law.fit(n, [s * x**power for s, x in zip(scattered, n, strict=True)])

    assert power_law.compared({"a": fitted(3.0), "b": fitted(1.0)}) == "a grows faster: the intervals do not overlap."
    assert "do not tell" in power_law.compared({"a": fitted(2.2), "b": fitted(2.0)})
    assert "do not tell" in power_law.compared({"a": fitted(3.2), "b": fitted(3.0), "c": fitted(1.0)})
    assert "cannot be told" in power_law.compared({"a": fitted(3.0), "b": power_law.fit(n[:2], n[:2])})


def test_what_ends_a_measurement_is_a_sentence():
    assert (
        "must be a whole number from 3"
        in measured_run.in_child(Spec("cholqr", data={"name": "friedman1", "n": 2})).sentence
    )
    assert "took more than" in measured_run.in_child(SPEC, timeout=0.01).sentence


def test_the_memory_peak_includes_what_was_freed_again():
    pieces = [np.ones(6_000) for _ in range(2_000)]
    pieces = pieces[-1:]  # 96 MB of the heap are free, but for the system: what lies behind them holds them
    peak = measured_run.high_water()
    arrays = [np.ones(6_000) for _ in range(2_000)]
    del arrays

    assert peak() >= 80e6


def test_this_machine_has_a_speed():
    assert machine() is machine()
    assert machine().flops > 1e8
    assert 1e-7 < machine().call < 1e-2
    assert Speed(10.0, 100.0).seconds(Cost(20.0, 900.0)) == 9.0
    assert Speed(10.0, 100.0).seconds(Cost(50.0, 100.0)) == 5.0
    assert Speed(10.0, 100.0, 0.5).seconds(Cost(50.0, 100.0, calls=8.0)) == 9.0


def test_the_small_step_that_is_timed_descends_in_as_many_operations_as_it_is_divided_by():
    A = torch.full((64, 64), 0.1, dtype=torch.float64).fill_diagonal_(3.0)
    y = torch.linspace(1.0, 2.0, 64, dtype=torch.float64)

    with Work() as work:
        alpha, g, _ = tiny_step(A, torch.zeros_like(y), y)
    operations = work.calls - 1  # the zeros

    assert operations == CALLS
    assert torch.allclose(g, y - A @ alpha)
    assert g @ g < y @ y


def test_other_processes_on_the_cores_do_not_make_a_machine_look_slow(monkeypatch: pytest.MonkeyPatch):
    """It is measured once: a server that started under load called its own links too long for as long as it lived."""
    seconds, calls = [0.0], [0]

    def clock() -> float:
        calls[0] += 1
        seconds[0] += 0.5 if calls[0] % 3 == 0 else 1e-3
        return seconds[0]

    monkeypatch.setattr(machine_speed.time, "perf_counter", clock)
    speed = machine.__wrapped__()

    assert speed.flops == pytest.approx(2 * machine_speed.ORDER**3 / 1e-3)
    assert speed.bytes == pytest.approx(24 * machine_speed.LENGTH / 1e-3)
    assert speed.call == pytest.approx(1e-3 / CALLS)
