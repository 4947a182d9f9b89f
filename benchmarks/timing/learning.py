"""Learning by minibatches from start to end: the rate chosen on a validation set, lines of progress and the result.

The test rows are used once, at the end. With a folder to store runs in, an interrupted run continues where it stopped.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.timing.rate_search import search_settings
from gpexplorer.methods.minibatches.loop import Minibatches
from gpexplorer.runs.run import Run
from gpexplorer.runs.spec import Spec
from gpexplorer.runs.store import Store

PROGRESS_LINES = 10


def report(spec: Spec, seconds: float, choose: bool, keep: Path | None) -> Iterator[str]:
    """Yield the lines of one method, each as soon as it is known.

    Parameters
    ----------
    spec : Spec
        The method, its settings and the data. One step is one epoch, or one trial while the rate is chosen.
    seconds : float
        Time limit of the learning.
    choose : bool
        Whether to choose the rate first, by the error on training rows set aside.
    keep : Path or None
        Folder where runs are stored, so that the same command continues them.

    Yields
    ------
    str
        Lines of progress, then the result.
    """
    store = Store(keep) if keep else None
    if choose:
        rate = yield from _chosen(spec, store)
        yield f"{spec.method}: rate {rate:.3g}, chosen on rows set aside"
        spec = _with(spec, {"rate": rate})
    run = spec.open(store)
    yield from _progress(run, seconds)
    yield reached(run)
    run.close()


def _with(spec: Spec, settings: dict[str, Any]) -> Spec:
    return Spec(spec.method, {**spec.settings, **settings}, data=spec.data, dtype=spec.dtype)


def _chosen(spec: Spec, store: Store | None) -> Generator[str, None, float]:
    """Choose the rate by validation, with one line per rate. Trials that the store holds are not repeated."""
    first_run = spec.open()
    assert isinstance(first_run.method, Minibatches)
    settings = search_settings(first_run.method, len(first_run.problem.train))
    run = _with(spec, settings).open(store)
    while not len(run.trace) or run.trace[-1].step.state.trial < settings["search"]:
        if run.advance() is None and run.error:
            raise run.error
        info, state = run.trace[-1].step.info, run.trace[-1].step.state
        if info.phase == "search":
            trial = f"  rate {info.rate:.3g}: error {info.objective:.4f} on rows set aside"
            yield f"{trial}, {state.trial} of {settings['search']}, {run.trace[-1].seconds:.1f} s"
    run.close()
    return float(run.trace[-1].step.state.best_rate)


def _progress(run: Run, seconds: float) -> Iterator[str]:
    """Advance until the method or the time ends, with one line per tenth of the epochs."""
    method: Any = run.method
    epochs_per_line = max(method.epochs // PROGRESS_LINES, 1)
    seconds_before = run.trace[-1].seconds if len(run.trace) else 0.0
    while run.outcome is None and (not len(run.trace) or run.trace[-1].seconds - seconds_before < seconds):
        record = run.advance()
        info: Any = record.step.info if record else None
        if record and info.phase == "learn" and round(info.epoch) % epochs_per_line == 0:
            remaining = record.seconds / info.epoch * (method.epochs - info.epoch)
            nlml = info.objective / len(run.problem.train) + 0.5 * math.log(2.0 * math.pi)
            times = f"{record.seconds:6.1f} s, about {remaining:4.0f} s remaining"
            yield f"  {info.epoch:5.1f} epochs, {times}, NLML/n {nlml:7.3f}"


def reached(run: Run) -> str:
    """Describe the epoch with the best likelihood: NLML per row with its constant, test RMSE in sd of the targets."""
    table, scale = run.table(), run.problem.train.scale
    values = table["objective"].to_numpy(float)
    best = int(np.nanargmin(values)) if np.isfinite(values).any() else len(values) - 1
    nlml = values[best] / len(run.problem.train) + 0.5 * math.log(2.0 * math.pi)
    rmse = run.scores(best)["rmse"] / (scale.y_sd if scale else 1.0)
    stop_reason = (
        f"{run.outcome.reason}: {run.outcome.message}"
        if run.outcome
        else "out of time; with --keep the same command continues"
    )
    return (
        f"{run.method.key:<12}{table['epoch'].max():7.1f} epochs{run.trace[-1].seconds:8.1f} s   NLML/n {nlml:7.3f}   "
        f"RMSE {rmse:6.4f} sd   ({stop_reason})"
    )
