"""Learning on rows without noise: where the noise tends to 0, "converged" still means .05 noise standard deviations."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_friedman2, make_s_curve

import gpexplorer as gpx
from gpexplorer.methods.base import registry
from gpexplorer.noise_floor import NoiseFloor

LEARNS: dict[str, dict[str, Any]] = {"gbcd": {"evaluations": 200}}  # by default, learning is cut off on these rows
FAR: dict[str, dict[str, Any]] = {
    "ml": {"tolerance": 1e-9, "evaluations": 400},
    "loo": {"tolerance": 1e-9, "evaluations": 400},
    "gpcv-admm": {"tolerance": 1e-7, "max_iterations": 400},
    "vecchia": {"tolerance": 1e-9, "evaluations": 400},
    "states": {"tolerance": 1e-9, "evaluations": 400},
    "sgpr": {"tolerance": 1e-9, "max_epochs": 20},
    "gbcd": {"mean_tolerance": 1e-3},
    "grief": {"tolerance": 0.0, "evaluations": 100, "max_rounds": 20},
}


@cache
def rows(name: str) -> Any:
    draw = np.random.default_rng(4)
    X = draw.uniform(-2.0, 2.0, (120, 2))
    if name == "s-curve":
        X, y = make_s_curve(150, noise=0.01, random_state=1)
        X = X - 50.0
    elif name == "friedman2":
        X, y = make_friedman2(150, noise=0.0, random_state=3)
    elif name == "line":
        y = 2.0 + X @ [1.3, -0.4]
    elif name == "twice":
        X = np.concatenate([X[:75], X[:75]])
        y = np.sin(3.0 * X[:, 0]) * np.cos(X[:, 1])
    else:
        X = np.sort(draw.uniform(0.0, 6.0, (120, 1)), 0)
        y = np.sin(3.0 * X[:, 0]) + 0.1 * X[:, 0] ** 2
    return gpx.load((X, y), split={"test": 0.2, "seed": 0})


CASES = [
    ("s-curve", "matern32", "gpcv-admm"),
    ("friedman2", "matern32", "gbcd"),
    ("friedman2", "se-ard", "loo"),
    ("twice", "se-ard", "ml"),
    ("line", "se-ard", "ml"),
    ("line", "se-ard", "gbcd"),
    ("line", "se-ard", "grief"),
    ("sine", "se-ard", "sgpr"),
    ("sine", "se-ard", "vecchia"),
    ("sine", "matern32", "states"),
    ("sine", "matern32", "gpcv-admm"),
]


@pytest.mark.parametrize(("name", "kernel", "key"), CASES)
def test_an_answer_that_converged_lies_near_that_of_a_much_longer_run(name: str, kernel: str, key: str):
    def finished(settings: dict[str, Any]) -> Any:
        run = gpx.Spec(key, settings, kernel=kernel, seed=1).open(data=rows(name))
        run.finish()
        return run

    enough = LEARNS.get(key, {})
    short, far = finished(enough), finished(enough | FAR[key])

    assert short.outcome.reason == "converged"
    state, X = short.trace[-1].step.state, short.split.test.X
    means = [run.method.posterior(run.problem, run.trace[-1].step.state)(X).mean for run in (short, far)]
    assert float((means[0] - means[1]).abs().mean()) <= 0.05 * math.exp(float(state.theta[-1]))
    is_least = NoiseFloor(short.problem).is_touched(state.theta)
    assert ("is at its least value beside the function" in short.outcome.message) == is_least


@pytest.mark.parametrize("key", sorted(set(FAR) & set(registry)))
def test_rows_with_noise_do_not_look_free_of_it(key: str):
    draw = np.random.default_rng(0)
    X = np.sort(draw.uniform(0.0, 6.0, (100, 1)), 0)
    kernel = "matern32" if key == "states" else "se-ard"
    run = gpx.Spec(key, kernel=kernel).open(data=(X, np.sin(2.0 * X[:, 0]) + 0.1 * draw.normal(size=100)))

    assert "free of noise" not in run.finish().message
