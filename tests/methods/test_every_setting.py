"""Every setting that a method shows has an effect: another value changes states, answers, kernel entries or the end.

Settings without an effect are marked as such (`precedence=-1`) and are not shown; see `Method.used_settings`. A setting
that methods inherit from the same class is checked in the first of them, and in all of them if the environment variable
GPEXPLORER_ALL_SETTINGS is set, which takes half a minute. Runs that serve several comparisons are computed once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import tee, zip_longest
from typing import Any

import param
import pytest

from gpexplorer import Spec, data, methods
from gpexplorer.methods.base import registry
from gpexplorer.methods.exact import posteriors
from gpexplorer.runs import Run
from gpexplorer.runs.trace import tensors
from steps_of import SMALL, inputs_of

ROWS = {"name": "hypercube", "n": 34, "d": 2, "noise": 0.3, "seed": 4}
STEPS = 24
SMALLER = SMALL | {"search": 0, "restarts": 0, "cg_tolerance": 3e-4, "max_iterations": 6, "trial": 2, "epochs": 3}
SMALLER |= {"starts": 1, "rank": 12}
SAVES_TIME_ONLY = {"factors"}  # memory against time: the predicted cost tells
CHAINS = {"starts": 1, "evaluations": 1, "warm_up": 1, "samples": 2, "per_step": 2}
FOLLOWS = {"theta_method": "z follows"}
LAYERS = {"layers": 1}
FEW_FUNCTIONS = {"num_eigenfunctions": 5, "evaluations": 2}  # so that the phase on all rows begins within the steps

# Another value of a setting, and the settings with which it matters, by "setting" or "method setting".
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "tolerance": (1.0, {"mean_tolerance": 0.0}),
    "max_iterations": (2, {}),
    "evaluations": (2, {}),
    # exact methods: a tolerance of 1e3 ends them at once, so that the bands are those of a solution
    "mean_tolerance": (1e3, {}),
    "bands": ("rows", {"mean_tolerance": 1e3, "variance_rows": 5}),
    "variance_rows": (5, {"mean_tolerance": 1e3, "bands": "rows"}),
    "band_tolerance": (1e-9, {"mean_tolerance": 1e3, "bands": "exact", "cache": 0.0}),
    "cache": (0.0, {}),
    "factors": (0.0, {}),
    "pool": (2, {}),
    "block-nystrom rank": (4, {}),
    "sdd tolerance": (1e3, {"mean_tolerance": 0.0}),
    "gbcd probes": (3, {"full_steps": 1}),
    "gbcd rate": (0.5, {"full_steps": 1}),
    "cholesky tolerance": (1e3, {"mean_tolerance": 0.0}),
    "cholesky mean_tolerance": (0.0, {}),
    # inducing points
    "max_epochs": (1, {}),
    "polish": (2, {"max_epochs": 1}),
    "iterations": (1, {"num_inducing": 12}),
    # minibatches
    "num_features": (4, {"kernel": "gaussian"}),
    "frequencies": ("plain", {"kernel": "gaussian"}),
    "minibatches": (1, {"batch_size": 4}),
    "evaluate_every": (1, {"batch_size": 4, "epochs": 5}),
    "search": (2, {}),
    "trial": (4, {"search": 2}),
    "patience": (1, {"rate": 1.0}),
    "minimax rate_scaling": ("constant", {"batch_size": 4}),
    "minimax multiplier": ("plain", {"batch_size": 4}),
    "samples": (2, {"epochs": 1, "refit": "none", "width": 2, "validation": 0.4}),
    "validation": (0.0, {}),
    "noise_floor": (0.9, {}),
    "largest": (1.0, {}),
    "svgp width": (4, LAYERS),
    "svgp activation": ("tanh", LAYERS),
    "svgp validation": (0.3, {}),
    # cross-validation
    "rho_span": (1.0, {"balance": 2.0}),
    "relaxation": (1.5, FOLLOWS),
    "largest_gap": (1e-9, FOLLOWS),
    "max_rollbacks": (1, FOLLOWS | {"largest_gap": 1e-9}),
    "theta_steps": (1, {"theta_method": "z held still"}),
    "one_at_a_time": (True, {"theta_method": "z held still"}),
    "restarts": (1, {"max_iterations": 2, "evaluations": 2}),
    "gpcv-admm patience": (1, {"tolerance": 1.0}),
    "gpcv-admm-holdout patience": (1, {"tolerance": 1.0}),
    "gpcv-admm-naive patience": (1, {"tolerance": 1.0}),
    "coupling": (3.0, {"copies": True}),
    "ml tolerance": (1.0, {"evaluations": 20}),
    "loo tolerance": (1.0, {"evaluations": 20}),
    "memory": (0.0, {}),
    "cholqr memory": (1e-6, {"num_inducing": 2}),  # swaps among 20 rows
    "cg_iterations": (1, {}),
    "forcing": (0.0, {}),
    "fraction": (0.3, {}),
    "ml seed": (None, {"restarts": 1, "evaluations": 2}),
    "loo seed": (None, {"restarts": 1, "evaluations": 2}),
    "ml memory": (0.0, {"refit": "cg"}),
    "loo memory": (0.0, {"refit": "cg"}),
    # neighbours
    "conditionals": (4, {}),
    "stretch": (5, {"stretch": 100}),
    "states tolerance": (1.0, {"evaluations": 20}),
    "states seed": (None, {"stretch": 5}),
    # eigenfunctions
    "points_per_input": ("3, 4", {}),
    "basis": ("evidence", FEW_FUNCTIONS),
    "candidates": (8, FEW_FUNCTIONS | {"basis": "evidence", "evaluations": 1}),
    "max_rounds": (1, FEW_FUNCTIONS),
    "grief tolerance": (1.0, {"starts": 1, "evaluations": 12}),
    "ski tolerance": (1.0, {"starts": 1, "evaluations": 12}),
    "weights": ("likelihood", {"max_rounds": 1}),
    "warm_up": (2, CHAINS),
    "grief-mcmc samples": (3, CHAINS),
    "per_step": (3, CHAINS),
    "thin": (1, CHAINS),
    "acceptance": (0.1, CHAINS),
    "weight_mode": (3.0, CHAINS),
    "weight_variance": (2.0, CHAINS),
    "noise_prior": (0.5, CHAINS),
}
ALL = bool(os.environ.get("GPEXPLORER_ALL_SETTINGS"))
checked: set[tuple[Any, str]] = set()  # settings that were checked, with the class that declares them


def opened(method: str, seed: int, settings: dict[str, Any]) -> Run:
    own_settings = {name: value for name, value in (SMALLER | settings).items() if name in registry[method].param}
    rows = ROWS | {"d": inputs_of(method, 2)}
    spec = Spec(method, settings=own_settings, data=rows, seed=seed, kernel=registry[method].example_kernel)
    return spec.open(data=data.load(rows))


def what_happens(run: Run) -> Iterator[Any]:
    """Yield what a person could see of a run: every step as it is taken, then the answers and why it ended."""
    while len(run.trace) <= STEPS and run.outcome is None:
        record = run.advance()
        if record is not None:
            yield [part.tolist() for part in tensors(record.step.state)], repr(record.step.info), record.cost
    assert run.outcome is None or run.outcome.reason != "failed", run.outcome
    for rows in (run.split.test, run.split.train):  # the memory that conjugate gradients may use changes roundings only
        mean, var = run.posterior(of="y")(rows.X)[:2]
        yield mean.tolist(), var.tolist()
    yield run.outcome and run.outcome.message


def other_values(setting: param.Parameter, value: Any) -> list[Any]:
    """Return allowed values of a setting that are not this value."""
    if isinstance(setting, param.Boolean):
        return [not value]
    if isinstance(setting, param.Selector):
        return [option for option in setting.objects if option != value]
    low, high = setting.bounds
    whole = isinstance(setting, param.Integer)
    tried = [type(value)(v) if whole else float(v) for v in (value * 2, value / 2, value + 1)]
    return [v for v in tried if v != value and (low is None or v >= low) and (high is None or v <= high)]


@pytest.mark.parametrize("method", sorted(methods))
def test_every_setting_that_is_shown_has_an_effect(method: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(posteriors, "FACTOR_BYTES", 0)  # or variances are found by iterations from 11 000 rows on only
    without, kept = [], Kept(method)
    for name, setting in registry[method].used_settings().items():
        if not ALL and (setting.owner, name) in checked:
            continue
        checked.add((setting.owner, name))
        value, others = CHANGES.get(f"{method} {name}", CHANGES.get(name, (None, {})))
        current = (SMALLER | others).get(name, setting.default)
        values = [value] if value not in (None, current) else [] if name == "seed" else other_values(setting, current)
        pairs = [(1, others)] if name == "seed" else [(0, others | {name: each}) for each in values]
        if name in SAVES_TIME_ONLY:
            runs = opened(method, 0, {}), opened(method, *pairs[0])
            assert len({repr(run.method.cost(run.problem)) for run in runs}) == 2
        elif not any(differ(kept.what_happens(others), what_happens(opened(method, *pair))) for pair in pairs):
            without.append(name)

    assert without == []


def differ(first: Iterator[Any], second: Iterator[Any]) -> bool:
    return any(this != that for this, that in zip_longest(first, second))


class Kept:
    """Runs with which others are compared: what is seen of them is computed once, and only as far as needed."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.seen: dict[str, Iterator[Any]] = {}

    def what_happens(self, settings: dict[str, Any]) -> Iterator[Any]:
        key = repr(settings)
        if key not in self.seen:
            self.seen[key] = what_happens(opened(self.method, 0, settings))
        self.seen[key], copy = tee(self.seen[key])
        return copy
