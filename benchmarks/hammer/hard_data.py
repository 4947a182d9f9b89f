"""Every method on data that break algorithms: each run ends with a sentence, finite answers and a correct objective.

A cell is one method on one data set, until the method ends or two seconds are used. It fails if the run raises an
error or ends with an unexpected one, if a mean or variance is not finite or a variance is negative, or if the objective
reported differs from the dense one at the same theta and points by more than the tolerance of `benchmarks trust`. A
refusal with a sentence is an answer.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from pathlib import Path

import numpy as np

from gpexplorer.errors import GPExplorerError
from gpexplorer.methods.base import registry
from gpexplorer.runs.run import Run
from gpexplorer.runs.spec import Spec

from ..trust.cells import reported_and_dense
from ..trust.report import TOLERANCE
from .measurement import Measurement, Report, cases

SECONDS = 2.0  # of a method's own work per cell
ROWS = 48
Arrays = tuple[np.ndarray, np.ndarray]


def hard_sets() -> dict[str, Arrays]:
    """Inputs [n, d] and targets [n] by what is hard about them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=ROWS)
    outlier, constant = y.copy(), np.c_[X, np.full(ROWS, 3.0)]
    outlier[5] = 1e6
    return {
        "plain": (X, y),
        "far from the origin": (X + 1e8, y + 1e8),
        "tiny targets": (X, 1e-140 * y),
        "huge targets": (X, 1e140 * y),
        "huge inputs": (1e120 * X, y),
        "columns of different units": (X * [1e-9, 1e9], y),
        "every row twice": (np.repeat(X[: ROWS // 2], 2, 0), np.repeat(y[: ROWS // 2], 2)),
        "the same input, other targets": (np.repeat(X[:6], ROWS // 6, 0), rng.normal(size=ROWS)),
        "a constant column": (constant, y),
        "collinear columns": (np.c_[X, X @ [1.0, -1.0]], y),
        "one outlier": (X, outlier),
        "two values of the target": (X, np.where(y > 0, 1.0, -1.0)),
        "no noise": (X, np.sin(2 * X[:, 0])),
        "only noise": (X, rng.normal(size=ROWS)),
        "more columns than rows": (rng.normal(size=(12, 30)), rng.normal(size=12)),
        "few rows": (X[:5], y[:5]),
        "one input, nearly equal": (1.0 + 1e-7 * np.arange(ROWS)[:, None], y),
        "counts": (rng.poisson(2.0, size=(ROWS, 2)).astype(float), y),
        "two distant clusters": (X + 1e6 * (np.arange(ROWS)[:, None] % 2), y),
    }


def measure(share: float, folder: Path, report: Report) -> list[Measurement]:
    """Run every method on every set."""
    sets = hard_sets()
    cells = [(method, name) for name in sets for method in sorted(registry)]
    chosen = random.Random(0).sample(cells, cases(len(cells), share))
    results, failures = Counter[str](), list[str]()
    for method, name in chosen:
        result = run_cell(method, sets[name])
        results[result.partition(":")[0]] += 1
        if result.startswith("failed"):
            failures.append(f"{method} on {name}: {result}")
            report(f"  {failures[-1][:300]}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(results.items()))
    return [
        Measurement(
            f"{len(chosen):,} cells: {len({method for method, _ in chosen})} methods, {len(sets)} hard data sets",
            kinds,
            "a sentence at the end, finite answers, and the objective of dense algebra",
            not failures,
        )
    ]


def run_cell(method: str, rows: Arrays) -> str:
    """Run one method on one set: "answered", "refused" or "stopped" with a sentence, or "failed: " and why."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            run = Spec(method, budget={"seconds": SECONDS}).open(data=rows)
            try:
                return _judged(run)
            finally:
                run.close()
    except GPExplorerError as error:
        return f"refused: {error}"
    except Exception as error:
        return f"failed: {type(error).__name__}: {error}"


def _judged(run: Run) -> str:
    outcome = run.finish()
    if "unexpected" in outcome.message.lower() or not outcome.message.strip():
        return f"failed: {outcome.message}"
    if outcome.reason in ("failed", "diverged"):
        return f"stopped: {outcome.message}"
    assert run.split is not None
    mean, var = run.posterior(of="y")(_inputs(run))
    if not bool(mean.isfinite().all() and var.isfinite().all() and (var >= 0).all()):
        return f"failed: the answers are not finite, or a variance is negative ({outcome.message})"
    values = reported_and_dense(run)
    if values and abs(values["objective"] - values["dense"]) > TOLERANCE["float64"] * max(abs(values["dense"]), 1.0):
        return f"failed: the objective is {values['objective']:.10g}, and {values['dense']:.10g} by dense algebra"
    return "answered"


def _inputs(run: Run) -> object:
    """The test inputs in the units of the file."""
    assert run.split is not None
    scale, X = run.split.test.scale, run.split.test.X
    return X if scale is None else scale.inputs_in_units(X)
