"""A method taken through its epochs: its rate chosen on rows set aside, progress as it goes, and what it reached.

Test rows are looked at once, at the end. With a folder to keep runs in, what was interrupted is gone on with.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..methods.stochastic.choice import by_validation
from ..methods.stochastic.walking import Minibatches
from ..runs.run import Run
from ..runs.spec import Spec
from ..runs.store import Store

TOLD = 10  # lines of progress
RATES = "rates.json"  # beside the runs: the rate chosen for each spec


def report(spec: Spec, seconds: float, choose: bool, keep: Path | None) -> Iterator[str]:
    """Lines of one method, each as soon as it is known; a step is an epoch."""
    if choose:
        rate = _chosen(spec, keep)
        spec = Spec(spec.method, {**spec.settings, "rate": rate}, data=spec.data, dtype=spec.dtype)
        yield f"{spec.method}: rate {rate:.3g}, chosen on rows set aside"
    run = spec.open(Store(keep) if keep else None)
    yield from _progress(run, seconds)
    yield reached(run)
    run.close()


def _chosen(spec: Spec, keep: Path | None) -> float:
    """The rate by validation, from the folder where it holds one already."""
    path = keep / RATES if keep else None
    held: dict[str, float] = json.loads(path.read_text("utf-8")) if path and path.exists() else {}
    if spec.key() not in held:
        run = spec.open()
        assert isinstance(run.method, Minibatches)
        held[spec.key()] = by_validation(run.method, run.problem)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(json.dumps(held), "utf-8")
    return held[spec.key()]


def _progress(run: Run, seconds: float) -> Iterator[str]:
    """Epochs until the method or the clock ends; a line at each tenth of them, with the time to go."""
    method: Any = run.method
    every, begun = max(method.epochs // TOLD, 1), run.trace[-1].seconds if len(run.trace) else 0.0
    while run.outcome is None and (not len(run.trace) or run.trace[-1].seconds - begun < seconds):
        record = run.advance()
        info: Any = record.step.info if record else None
        if record and info.phase == "learn" and round(info.epoch) % every == 0:
            left = record.seconds / info.epoch * (method.epochs - info.epoch)
            nlml = info.objective / len(run.problem.train) + 0.5 * math.log(2.0 * math.pi)
            yield f"  {info.epoch:5.1f} epochs, {record.seconds:6.1f} s, about {left:4.0f} s to go, NLML/n {nlml:7.3f}"


def reached(run: Run) -> str:
    """NLML a row with its constant, and the test error in sd of the targets, where the likelihood was best."""
    table, scale = run.table(), run.problem.train.scale
    values = table["objective"].to_numpy(float)
    best = int(np.nanargmin(values)) if np.isfinite(values).any() else len(values) - 1
    nlml = values[best] / len(run.problem.train) + 0.5 * math.log(2.0 * math.pi)
    rmse = run.scores(best)["rmse"] / (scale.y_sd if scale else 1.0)
    ended = run.outcome.reason if run.outcome else "out of time: with --keep the same command goes on"
    return (
        f"{run.method.key:<12}{table['epoch'].max():7.1f} epochs{run.trace[-1].seconds:8.1f} s   NLML/n {nlml:7.3f}   "
        f"RMSE {rmse:6.4f} sd   ({ended})"
    )
