"""The period of a season is found to a small fraction of 1 / range, whatever its shape and however rows are spaced."""

from __future__ import annotations

import numpy as np
import pytest

from gpexplorer.linalg.seasons import periods, season, seasons

NOISE = 0.3
SHAPES = {
    "sine": lambda phase: np.sin(2.0 * np.pi * phase),
    "sawtooth": lambda phase: 2.0 * (phase % 1.0) - 1.0,
    "square": lambda phase: np.sign(np.sin(2.0 * np.pi * phase)),
    "stronger second harmonic": lambda phase: 0.5 * np.sin(2.0 * np.pi * phase) + np.sin(4.0 * np.pi * phase + 0.4),
    "stronger third harmonic": lambda phase: 0.6 * np.sin(2.0 * np.pi * phase) + np.cos(6.0 * np.pi * phase),
}


def times(spacing: str, n: int, random: np.random.Generator, shift: float = 0.0):
    """Times with on average one row per unit: even, uneven, or with a gap of a fifth of the range."""
    if spacing == "even":
        return shift + np.arange(float(n))
    t = random.uniform(0.0, n, n)
    return shift + np.sort(t[(t < 0.3 * n) | (t > 0.5 * n)] if spacing == "gap" else t)


def lobes(found: float, period: float, x: np.ndarray) -> float:
    """The error of a frequency in periods over the range."""
    return abs(1.0 / found - 1.0 / period) * float(np.ptp(x))


@pytest.mark.parametrize("spacing", ["even", "uneven", "gap"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("n", "period"), [(250, 6.3), (250, 29.0), (900, 41.7), (4000, 9.13)])
def test_the_period_is_known_to_a_fraction_of_a_lobe(shape: str, spacing: str, n: int, period: float):
    random = np.random.default_rng(n)
    x = times(spacing, n, random, shift=1e6)
    y = 5.0 + SHAPES[shape](x / period + random.uniform()) + NOISE * random.standard_normal(len(x))
    found = seasons(x, y, count=1)
    assert lobes(found[0].period, period, x) < 0.06  # 3.5 standard errors of the worst


@pytest.mark.parametrize("spacing", ["even", "uneven", "gap"])
@pytest.mark.parametrize("waves", [2.1, 2.9, 3.4])
def test_a_season_with_a_few_periods_is_refined_from_a_whole_number_of_them(spacing: str, waves: float):
    random = np.random.default_rng(3)
    x = times(spacing, 400, random)
    period = np.ptp(x) / waves
    y = np.sin(2.0 * np.pi * x / period + 1.0) + NOISE * random.standard_normal(len(x))
    assert lobes(season(x, y, round(waves) / np.ptp(x)).period, period, x) < 0.15


@pytest.mark.parametrize("spacing", ["even", "uneven", "gap"])
def test_two_seasons_are_told_apart_and_harmonics_are_no_seasons(spacing: str):
    random = np.random.default_rng(8)
    x = times(spacing, 1500, random)
    y = SHAPES["sawtooth"](x / 31.7) + 0.7 * np.sin(2.0 * np.pi * x / 11.3) + NOISE * random.standard_normal(len(x))
    found = seasons(x, y)
    assert [round(own.period, 1) for own in found] == [31.7, 11.3]


def test_harmonics_are_no_seasons():
    random = np.random.default_rng(8)
    x = times("uneven", 1500, random)
    found = seasons(x, SHAPES["square"](x / 31.7) + 0.1 * random.standard_normal(len(x)))
    assert [round(own.period, 1) for own in found] == [31.7]


@pytest.mark.parametrize(
    ("spacing", "times_a_day", "long", "short"),
    [
        ("even", 7, "sine", "sawtooth"),
        ("uneven", 7, "sawtooth", "sine"),
        ("gap", 7, "square", "sawtooth"),
        ("uneven", 12, "sine", "sawtooth"),
        ("gap", 3, "sawtooth", "sine"),
    ],
)
def test_a_period_that_divides_another_is_a_second_one(spacing: str, times_a_day: int, long: str, short: str):
    random = np.random.default_rng(times_a_day)
    x = times(spacing, 1500, random, shift=1e5)
    f = SHAPES[long](x / 104.3) + SHAPES[short](x * times_a_day / 104.3 + 0.2)
    found = periods(x, f + NOISE * random.standard_normal(len(x)), 2)
    assert sorted(found) == pytest.approx([104.3 / times_a_day, 104.3], rel=0.01)


def test_one_season_is_repeated_and_its_harmonics_come_after_other_seasons():
    random = np.random.default_rng(4)
    x, noise = times("uneven", 1500, random), NOISE * random.standard_normal(1500)
    assert periods(x, SHAPES["sawtooth"](x / 31.7) + noise, 3) == [pytest.approx(31.7, rel=1e-2)] * 3
    strong = SHAPES["stronger second harmonic"](x / 31.7)
    assert periods(x, strong + 0.3 * np.sin(x) + noise, 2) == pytest.approx([31.7, 2.0 * np.pi], rel=1e-2)
    assert periods(x, strong + noise, 2) == pytest.approx([31.7, 31.7 / 2.0], rel=1e-2)
    assert periods(x, noise, 2) == []


def test_a_season_in_a_random_walk_keeps_its_period_and_noise_has_none():
    random = np.random.default_rng(1)
    t = np.arange(3000.0)
    walk = np.cumsum(0.1 * random.standard_normal(3000))
    found = seasons(t, walk + SHAPES["sawtooth"](t / 24.0))
    assert found[0].period == pytest.approx(24.0, rel=1e-4)
    draws = [seasons(t[:400], np.cumsum(np.random.default_rng(seed).normal(size=400))) for seed in range(30)]
    noises = [seasons(t[:400], np.random.default_rng(seed).normal(size=400)) for seed in range(30)]
    assert sum(map(bool, draws)) <= 1
    assert sum(map(bool, noises)) <= 1


def test_an_exact_wave_and_few_rows_have_a_period():
    x = np.linspace(-3.0, 5.0, 40)
    assert season(x, np.sin(2.0 * np.pi * x / 1.3), 1.0 / 1.31).period == pytest.approx(1.3, rel=1e-6)
    assert season(x[:8], np.sin(x[:8]), 1.0).period == 1.0
