"""The declared cost of a step beside the work that torch was asked for: forecasts on the page rest on these formulas.

Work is counted, not timed, so that a busy machine changes nothing; `benchmarks costs` holds the formulas to the clock.
"""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from gpexplorer import Spec, methods
from gpexplorer.methods.base import registry
from gpexplorer.runs import outcomes
from gpexplorer.runs.outcomes import SIZES
from gpexplorer.runs.studies.machine_speed import Speed
from steps_of import inputs_of, small_spec
from work_counter import Work

COUNTS = ("num_inducing", "num_rows", "num_regressors", "block", "coarse", "rank", "batch_size")  # of rows, at most n
ROWS, INPUTS, STEPS = 1500, 8, 2  # the first step sets up
FEWER = {"csi": {"num_inducing": 16}}  # a step of it is a whole decomposition
NOMINAL = Speed(flops=50e9, bytes=20e9)  # a matrix product and a read of memory, on two cores


def test_work_counts_operations_and_the_peak_of_memory():
    a, b = torch.ones(300, 200, dtype=torch.float64), torch.ones(200, 400, dtype=torch.float64)
    with Work() as work:
        for _ in range(2):
            (a @ b).T.exp_()

    assert work.calls == 4  # a view is none
    assert work.flops == 2 * (2 * 300 * 200 * 400 + 40 * 300 * 400)
    assert work.bytes == pytest.approx(2 * 8 * (300 * 200 + 200 * 400 + 3 * 300 * 400) / 3)
    assert work.memory == 8 * 300 * 400


@pytest.mark.parametrize("key", sorted(methods))
def test_a_step_costs_what_its_method_declares(key: str):
    settings = FEWER.get(key, {}) | ({"learn": False} if "learn" in registry[key].param else {})
    rows = {"name": "hypercube", "n": ROWS * 10 // 9, "d": inputs_of(key, INPUTS), "noise": 0.1, "seed": 0}
    run = Spec(key, settings, data=rows, kernel=registry[key].example_kernel).open()
    run.advance()
    counted = []
    for _ in range(STEPS):
        with Work() as work:
            if run.advance() is None:
                break
        counted.append(work)

    declared, last = run.method.cost(run.problem), counted[-1]
    seconds = max(last.flops / NOMINAL.flops, last.bytes / NOMINAL.bytes)
    assert 1 / 3 < seconds / NOMINAL.seconds(replace(declared, calls=0.0)) < 3
    assert 1 / 3 < last.calls / declared.calls < 3
    assert 1 / 1.5 < max(work.memory for work in counted) / declared.memory < 1.5


@pytest.mark.parametrize(
    ("key", "count"), [(key, count) for key in sorted(methods) for count in COUNTS if count in registry[key].param]
)
def test_a_setting_above_the_number_of_rows_costs_as_much_as_all_rows(key: str, count: str):
    rows = {"name": "friedman1", "n": 60, "seed": 2}
    runs = [Spec(key, {count: setting}, data=rows).open() for setting in (54, 540)]

    assert len(runs[0].problem.train) == 54
    assert runs[0].method.cost(runs[0].problem) == runs[1].method.cost(runs[1].problem)


LARGE = [(key, name) for key in sorted(methods) for name in SIZES if name in registry[key].param]


@pytest.mark.parametrize(("key", "name"), LARGE)
def test_what_fits_into_memory_is_the_largest_value_that_a_setting_may_have(
    key: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    run = small_spec(key, settings={}).open()
    settings = {given: value for given, value in run.method.param.values().items() if given != "name"}

    def memory(size: str, value: int) -> float:
        return type(run.method)(**(settings | {name: 10**5} | {size: value})).cost(run.problem).memory

    method, least = type(run.method)(**(settings | {name: 10**5})), max(1, registry[key].param[name].bounds[0])
    smallest, largest = (memory(name, value) for value in (least, 10**5))
    for usable in (0.0, 0.5 * (smallest + largest)):
        monkeypatch.setattr(outcomes, "usable_memory", lambda like, usable=usable: usable)
        sentence = outcomes.failed(MemoryError(), 0, method, run.problem).message

        found = re.search(r"With (\w+) = (\d+) it would fit", sentence)
        assert (found is None) == (smallest == largest or usable == 0.0), sentence
        assert found or outcomes.WAY_OUT in sentence
        if found:
            size, fitting = found[1], int(found[2])
            assert fitting >= max(1, registry[key].param[size].bounds[0])
            assert memory(size, fitting) <= usable < memory(size, fitting + 1)
