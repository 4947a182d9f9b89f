"""`benchmarks predict`: what a fitted estimator costs to keep and to ask, beside a rebuilt posterior."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from gpexplorer.estimator import Estimator
from gpexplorer.posteriors import Posterior, load_posterior

from .timing.limits import in_turns, median_seconds

DIMENSIONS, STEPS = 8, 3
ROWS = (1, 1000)  # asked for at once


def report(n: int, m: int, repeats: int) -> Iterator[str]:
    """Time predictions after a short fit on generated rows.

    Parameters
    ----------
    n, m : int
        Training rows and inducing points.
    repeats : int
        Rounds; each line states a median.

    Yields
    ------
    str
        A title, one line per way to predict and number of rows, then the sizes.
    """
    source = np.random.default_rng(0)
    X = source.standard_normal((n, DIMENSIONS))
    y = np.sin(X).sum(1) + 0.1 * source.standard_normal(n)
    model = Estimator(num_inducing=m, budget={"steps": STEPS}, keep_run=True).fit(X, y)
    size_with_run, model.keep_run = len(pickle.dumps(model)), False
    yield f"n = {n}, m = {m}, d = {DIMENSIONS}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.2f}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        size = model.posterior_.save(path)
        loaded, module = load_posterior(path), model.posterior_.to_torch()
        for rows in ROWS:
            for label, times in in_turns(_ways(model, loaded, module, X[:rows]), repeats).items():
                yield f"{label:<36}{rows:>6} rows {1e3 * float(np.median(times)):>10.2f} ms"
        yield f"{'loading the file':<48}{1e3 * median_seconds(lambda: load_posterior(path), repeats):>10.2f} ms"
    size_without_run = len(pickle.dumps(model))
    kilobytes = [f"{number / 1e3:.0f} kB" for number in (size_with_run, size_without_run, size)]
    yield f"pickle with the run {kilobytes[0]}, without {kilobytes[1]}, file {kilobytes[2]}"


def _ways(model: Estimator, loaded: Posterior, module: torch.nn.Module, X: Any) -> dict[str, Callable[[], object]]:
    """The ways to predict these rows."""
    tensor = torch.tensor(X)
    return {
        "estimator, mean": lambda: model.predict(X),
        "estimator, mean and sd": lambda: model.predict(X, return_std=True),
        "posterior from a file, mean and sd": lambda: loaded(tensor),
        "torch module, mean and sd": lambda: module(tensor),
        "posterior rebuilt at the call": lambda: model.run_.posterior(of="y")(tensor),
    }


def command(
    n: Annotated[int, typer.Option(help="Training rows.", min=10)] = 20_000,
    m: Annotated[int, typer.Option(help="Inducing points.", min=1)] = 256,
    repeats: Annotated[int, typer.Option(help="Rounds.", min=1)] = 9,
) -> None:
    """Latency and size of a fitted model: estimator, file, torch module, and a posterior rebuilt at every call."""
    for line in report(n, m, repeats):
        typer.echo(line)
