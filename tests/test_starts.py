"""Several starts from the data: learning finds the waves, and data with one valley are learned as before."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import gpexplorer as gpx
from gpexplorer import starts
from gpexplorer.data import load
from gpexplorer.errors import SettingError
from gpexplorer.linalg.periodogram import peaks
from gpexplorer.noise_floor import NoiseFloor
from gpexplorer.objectives import evidence, least_noise, noise_variance
from gpexplorer.problem import Problem
from gpexplorer.runs import Spec, Store
from gpexplorer.starts import KERNEL_START, proposals, race, variogram

ONE = {"name": "se-ard", "start": "one"}


def waves(count: int, n: int, noise: float, shift: float = 0.0, seed: int = 0):
    """Rows of a wave with this many periods, away from the origin if shifted, and what it is at other inputs."""
    random = np.random.default_rng(seed)
    x, new = random.uniform(shift, shift + 4.0, (2, n))
    f = 3.0 * np.cos(2.0 * np.pi * count * (x - shift) / 4.0) + shift
    truth = 3.0 * np.cos(2.0 * np.pi * count * (new - shift) / 4.0) + shift
    return x[:, None], f + random.normal(0.0, noise, n), new[:, None], truth


@pytest.mark.parametrize("method", ["ml", "cholqr", "sgpr", "gbcd", "grief"])
def test_every_method_finds_waves_that_a_long_lengthscale_takes_for_noise(method: str):
    X, y, X_new, truth = waves(14, 220, 0.3, shift=100.0)
    model = gpx.Estimator(method, kernel="se-ard", budget={"steps": 60}).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)) < 0.2
    assert "the waves of the periodogram was taken" in model.run_.start_note


@pytest.mark.parametrize("kernel", ["se", "matern52-ard", "rq", "se + linear", "se-ard * se-ard"])
def test_every_kernel_with_lengthscales_does(kernel: str):
    X, y, X_new, truth = waves(11, 160, 0.3, seed=3)
    model = gpx.Estimator("ml", kernel=kernel, budget={"steps": 40}).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)) < 0.45


SEASONS = {
    "sine": lambda phase: np.sin(2.0 * np.pi * phase),
    "sawtooth": lambda phase: 2.0 * (phase % 1.0) - 1.0,
    "stronger second harmonic": lambda phase: 0.5 * np.sin(2.0 * np.pi * phase) + np.sin(4.0 * np.pi * phase + 0.4),
    "week and day": lambda phase: 2.0 * (phase % 1.0) - 1.0 + 2.0 * (8.0 * phase % 1.0) - 1.0,
    "wave and day": lambda phase: np.sin(2.0 * np.pi * phase) + 2.0 * (7.0 * phase % 1.0) - 1.0,
    "two": lambda phase: np.sin(2.0 * np.pi * phase) + 0.7 * np.sin(2.0 * np.pi * 2.73 * phase + 1.0),
}


@pytest.mark.parametrize(
    ("method", "kernel", "shape", "spacing", "n", "period"),
    [
        ("states", "matern32 + periodic", "sine", "uneven", 1200, 9.13),
        ("states", "matern32 + periodic", "sine", "gap", 500, 133.0),  # three periods
        ("states", "matern32 + periodic", "sawtooth", "even", 900, 31.7),
        ("states", "matern32 + periodic", "stronger second harmonic", "gap", 400, 83.0),
        ("states", "matern12 + periodic + periodic", "two", "uneven", 1200, 41.0),
        ("states", "matern32 + periodic + periodic", "week and day", "even", 700, 84.0),
        ("states", "matern32 + periodic + periodic", "week and day", "gap", 700, 61.0),  # started with too many waves
        ("states", "matern32 + periodic + periodic", "wave and day", "uneven", 900, 100.0),
        ("ml", "se + periodic", "stronger second harmonic", "gap", 300, 31.7),
        ("sgpr", "periodic", "sawtooth", "uneven", 600, 13.9),
        ("vecchia", "matern32 + periodic", "sine", "uneven", 800, 27.3),
    ],
)
def test_a_season_goes_on_behind_the_end(method: str, kernel: str, shape: str, spacing: str, n: int, period: float):
    random = np.random.default_rng(n)
    x = np.arange(float(n)) if spacing == "even" else np.sort(random.uniform(0.0, n, n))
    x = x[(x < 0.3 * n) | (x > 0.45 * n)] if spacing == "gap" else x
    f = SEASONS[shape](x / period + 0.3)
    y = f + random.normal(0.0, 0.3, len(x))
    old = x < 0.8 * n  # the rest is a quarter of that
    steps = 60 if method == "sgpr" else 30  # 30 more change the others by less than a tenth of the bound
    model = gpx.Estimator(method, kernel=kernel, budget={"steps": steps}).fit(1e5 + x[old, None], y[old])
    errors = f[~old] - model.predict(1e5 + x[~old, None])
    assert np.mean(errors**2) < 0.1 * f[~old].var()


@pytest.mark.parametrize(("period", "memory", "seed"), [(12.0, 0.8, 3), (30.4, 0.9, 4)])
def test_what_a_season_leaves_says_how_long_the_level_remembers(period: float, memory: float, seed: int):
    """From the lengthscale of a kernel's own start, a descent of sixty evaluations does not come down to some days."""
    random, day = np.random.default_rng(seed), np.arange(420.0)
    level = np.convolve(random.normal(0.0, 1.0, 480), memory ** np.arange(60))[60:480]
    y = 0.02 * day + 3.0 * np.sin(2.0 * np.pi * day / period) + level
    run = Spec("ml", kernel={"name": "linear + periodic + se", "start": "one"}).open(data=(day[:, None], y))
    problem = run.problem
    names = list(problem.kernel.names)
    entry = next(k for k, name in enumerate(names) if name.endswith("se: lengthscale"))
    days = {start.name: float(start.theta[entry].exp() * day.std()) for start in proposals(problem)}
    found = next(own for name, own in days.items() if name.startswith("the period") and name.endswith("variogram"))
    correlation_length = -1.0 / np.log(memory)
    assert correlation_length / 4.0 < found < 3.0 * correlation_length
    assert float(problem.theta[entry].exp() * day.std()) > 10.0 * correlation_length


def test_a_wave_in_the_second_of_two_inputs_is_found():
    random = np.random.default_rng(1)
    X, X_new = random.uniform(-1.0, 1.0, (2, 300, 2))
    f = lambda X: np.sin(2.0 * np.pi * 5.0 * X[:, 1]) - X[:, 0]  # noqa: E731
    model = gpx.Estimator("ml", kernel="se-ard", budget={"steps": 40}).fit(X, f(X) + random.normal(0.0, 0.1, 300))
    assert np.sqrt(np.mean((model.predict(X_new) - f(X_new)) ** 2)) < 0.1


def test_without_the_race_nothing_is_learned_so_that_the_test_above_can_fail():
    X, y, X_new, truth = waves(14, 220, 0.3, shift=100.0)
    model = gpx.Estimator("ml", kernel=ONE, budget={"steps": 60}).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X_new) - truth) ** 2)) > 1.5


def test_smooth_data_begin_bit_for_bit_where_the_kernel_begins():
    for name in ("snelson-like", {"name": "friedman1", "n": 300}):
        several, one = Spec("ml", data=name).open(), Spec("ml", data=name, kernel=ONE).open()
        assert torch.equal(several.problem.theta, one.problem.theta)


def test_a_learned_start_is_where_a_descent_on_some_rows_has_arrived():
    rows = load({"name": "friedman1", "n": 400})
    runs = [Spec("ml", kernel={"name": "se-ard", "start": start}).open(data=rows) for start in ("several", "learned")]
    first = [evidence(run.problem.kernel, run.problem.theta, run.problem.train)[0] for run in runs]
    runs[0].finish(steps=100)
    learned = runs[0].trace[-1].step.state.theta
    best = evidence(runs[0].problem.kernel, learned, runs[0].problem.train)[0]
    assert first[1] - best < 0.2 * (first[0] - best)


def test_a_given_theta_and_a_method_that_does_not_learn_are_left_alone():
    X, y, *_ = waves(14, 220, 0.3)
    rows = load((X, y))
    theta = [0.1, 0.2, -1.0]
    assert Spec("ml", kernel={"name": "se-ard", "theta": theta}).open(data=rows).problem.theta.tolist() == theta
    fixed = Spec("cholqr", {"learn": False}).open(data=rows).problem
    assert torch.equal(fixed.theta, fixed.kernel.start(fixed.train))


def test_the_start_is_part_of_a_spec_without_changing_names_of_specs_without_it():
    assert Spec("ml", kernel={"name": "se-ard", "start": "several"}) == Spec("ml", kernel="se-ard")
    assert Spec("ml", kernel=ONE).key() != Spec("ml").key()
    assert Spec.from_json(Spec("ml", kernel=ONE).to_json()).kernel == ONE
    with pytest.raises(SettingError, match='"start": "one"'):
        Spec("ml", kernel={"name": "se", "start": "three"})


def test_a_stored_run_goes_on_from_its_own_start(tmp_path):
    X, y, *_ = waves(14, 220, 0.3)
    store, spec = Store(tmp_path), Spec("ml")
    run = spec.open(store, data=(X, y))
    run.finish(steps=3)
    theta, note = run.problem.theta.clone(), run.start_note
    run.close()
    again = run.spec.open(store, data=(X, y))
    assert torch.equal(again.problem.theta, theta)
    assert again.start_note == note != ""
    again.close()


def test_a_stored_run_from_before_there_were_several_starts_keeps_the_kernels(tmp_path):
    X, y, *_ = waves(14, 220, 0.3)
    store = Store(tmp_path)
    run = Spec("ml").open(store, data=(X, y))
    run.finish(steps=2)
    run.close()
    journal = tmp_path / run.spec.key() / "journal.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line[17:].startswith('{"note"') and '"start":' not in line]
    assert len(kept) == len(lines) - 1
    journal.write_text("".join(kept))
    again = run.spec.open(store, data=(X, y))
    assert torch.equal(again.problem.theta, again.problem.kernel.start(again.problem.train))
    again.close()


def test_the_outcome_names_the_starts_and_what_they_reached():
    X, y, *_ = waves(14, 220, 0.3)
    run = Spec("ml").open(data=(X, y))
    outcome = run.finish(steps=60)
    assert outcome.reason == "converged"
    assert "Of 4 starts, the waves of the periodogram was taken: on 198 rows" in outcome.message
    assert "from the kernel's own" in outcome.message


def test_a_start_that_is_kept_although_another_one_is_lower_says_so():
    run = Spec("cholqr", {"num_inducing": 6}, data="snelson-like").open()
    note = run.start_note

    kept, others = (float(number) for number in re.findall(r"-\d+\.\d+", note)[:2])
    assert "the kernel's own was taken" in note
    assert others < kept
    assert "reaches" not in note
    assert note.endswith("from the variogram, and was followed no further.")
    run.close()


def test_the_race_draws_nothing_from_global_generators_and_repeats(monkeypatch: pytest.MonkeyPatch):
    problem = Spec("ml", kernel=ONE).open(data=waves(9, 400, 0.3)[:2]).problem
    state = torch.get_rng_state()
    first = race(problem)
    monkeypatch.setattr(starts, "_kept", {})
    second = race(problem)
    assert second is not first
    assert torch.equal(state, torch.get_rng_state())
    assert torch.equal(first.starts[0].theta, second.starts[0].theta)
    assert first.rows == 200


def test_equal_rows_are_raced_once_and_anything_else_again(monkeypatch: pytest.MonkeyPatch):
    def opened(kernel: Any = ONE, **changes: Any) -> Problem:
        return Spec("ml", kernel=kernel, data={"name": "hypercube", "n": 40, "d": 2}, **changes).open().problem

    raced, ran = starts._raced, list[Any]()
    monkeypatch.setattr(starts, "_kept", {})
    monkeypatch.setattr(starts, "_raced", lambda *parts: ran.append(parts) or raced(*parts))
    problem = opened()
    kept = race(problem)
    assert race(opened()) is kept
    y = problem.train.y.clone()
    y[3] += 1e-12
    others = [
        replace(problem, train=replace(problem.train, y=y)),
        replace(problem, theta=problem.theta + 1e-12),
        *(opened(ONE | {"bounds": {"noise": [0.1, high]}}) for high in (2.0, 3.0)),
        opened(ONE | {"name": "matern52-ard"}),
        opened(dtype="float32"),
    ]
    assert all(race(other) is not kept for other in others)
    assert race(problem, 5) is not kept
    assert race(problem, 0, follow=True) is not kept
    assert len(ran) == len(others) + 3
    monkeypatch.setattr(starts, "KEPT_ENTRIES", 10)  # the numbers of a large table are not read again
    assert race(opened()) is not kept


def test_a_run_that_changes_its_theta_leaves_the_start_of_the_next_one_alone():
    rows = waves(14, 220, 0.3)[:2]
    first = Spec("ml", kernel="se").open(data=rows)
    expected = first.problem.theta.clone()
    first.problem.theta.zero_()
    assert torch.equal(Spec("ml", kernel="se").open(data=rows).problem.theta, expected)


def test_few_inducing_points_keep_the_long_lengthscale():
    """Eight points cannot follow 40 waves: the trend is what they can learn."""
    random = np.random.default_rng(0)
    x = random.uniform(0.0, 1.0, 500)
    y = 4.0 * x + np.sin(2.0 * np.pi * 40.0 * x) + random.normal(0.0, 0.1, 500)
    problem = Spec("ml", kernel=ONE).open(data=(x[:, None], y)).problem
    assert race(problem, points=8).starts[0].name == KERNEL_START
    assert race(problem).starts[0].name != KERNEL_START


def test_periodogram_finds_waves_and_no_peaks_in_noise_and_random_walks():
    random = np.random.default_rng(0)
    t = np.arange(500.0)
    series = 0.05 * t + np.sin(2.0 * np.pi * t / 12.0) + 0.6 * np.sin(2.0 * np.pi * t / 30.0 + 1.0)
    found = [1.0 / peak.frequency for peak in peaks(t + 1e4, series + random.normal(0.0, 0.3, 500))]
    np.testing.assert_allclose(found, [12.0, 30.0], rtol=0.02)
    walks = [peaks(t, np.cumsum(np.random.default_rng(seed).normal(size=500))) for seed in range(50)]
    noises = [peaks(random.uniform(size=300), random.normal(size=300)) for _ in range(50)]
    assert sum(map(bool, walks)) <= 1
    assert sum(map(bool, noises)) <= 1


def test_the_share_of_a_peak_is_that_of_the_variance():
    random = np.random.default_rng(2)
    x = random.uniform(5.0, 6.0, 2000)
    y = np.sin(2.0 * np.pi * 7.0 * x) + random.normal(0.0, 1.0, 2000)
    (peak,) = peaks(x, y)
    assert peak.share == pytest.approx(0.5 / 1.5, abs=0.04)


def test_the_variogram_has_the_lengthscale_and_the_noise_of_a_draw():
    random = np.random.default_rng(0)
    Z = random.uniform(0.0, 3.0, (900, 2))
    K = np.exp(-0.5 * ((Z[:, None] - Z[None]) ** 2).sum(2) / 0.3**2)
    y = np.linalg.cholesky(K + 1e-6 * np.eye(900)) @ random.normal(size=900) + random.normal(0.0, 0.2, 900)
    scale, noise = variogram(Z, y)
    assert scale == pytest.approx(0.3, rel=0.35)
    assert np.sqrt(noise) == pytest.approx(0.2, rel=0.35)
    assert variogram(Z, random.normal(size=900)) is None or variogram(Z, random.normal(size=900))[1] > 0.5


@pytest.mark.parametrize("method", ["ml", "cholqr"])
def test_no_start_has_less_noise_than_its_precision_resolves(method: str):
    x = np.linspace(200.0, 206.0, 60)[:, None]
    rows = (x, 1e3 * np.cos(x[:, 0]))
    run = Spec(method, kernel="se", budget={"steps": 3}).open(data=rows)
    problem = run.problem
    assert noise_variance(problem.theta) >= least_noise(problem.kernel, problem.theta, problem.train)
    assert run.finish().reason != "failed"


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("count", [1, 14])
def test_no_start_has_a_noise_that_the_precision_does_not_resolve(count: int, dtype: str):
    X, y, *_ = waves(count, 120, 0.0)

    problem = Spec("ml", dtype=dtype, kernel=ONE).open(data=(X, y)).problem
    result = race(problem)

    used = [start.theta for start in result.starts if start.reached is not None or start is result.starts[0]]
    for theta in used:  # the likelihood alone goes on to a noise that consists of rounding
        assert float(theta[-1]) >= NoiseFloor(problem).least(theta)[0] - 1e-5
