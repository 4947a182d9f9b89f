"""The bench of near rows: the series is the process that it says, and scores stand beside the floor."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks import neighbours
from benchmarks.neighbours import NOISE, PERIOD, map_of, report, series


def test_the_series_has_the_covariance_of_its_process():
    case = series(20_000)
    x, f = case.X[:, 0], case.y - np.sin(2.0 * math.pi * case.X[:, 0] / PERIOD)
    order = np.argsort(x)
    x, f = x[order], f[order]

    for lag in (20, 40):  # rows
        distance = math.sqrt(3.0) * float(np.mean(x[lag:] - x[:-lag]))
        expected = (1.0 + distance) * math.exp(-distance)
        assert np.mean(f[lag:] * f[:-lag]) == pytest.approx(expected, abs=0.1)
    assert np.var(f) == pytest.approx(1.0 + NOISE**2, abs=0.15)


@pytest.mark.parametrize(("make", "d"), [(series, 1), (map_of, 2)])
def test_it_prints_the_floor_our_scores_and_what_is_not_installed(make, d: int, monkeypatch):
    monkeypatch.setattr(neighbours.importlib.util, "find_spec", lambda _: None)

    title, *lines = report("a case", make(1500), 8)
    count = 4 - d  # the floor, vecchia, and states for a series
    scores, others = lines[:count], lines[count:]

    assert title == f"a case: 1,350 rows, d = {d}, 150 held out, k = 8"
    least, *reached = (float(line.split("SMSE ")[1].split()[0]) for line in scores)
    assert [line.split()[0] for line in scores] == ["the", "vecchia", "states"][:count]
    assert all(least < each < 0.5 for each in reached)
    assert [line.split()[0] for line in others] == ["gpboost", "celerite2"][: 3 - d]
    assert all(line.endswith("is not installed") for line in others)
