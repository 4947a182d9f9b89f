"""Does a limit in seconds hold with many rows, and what does each method predict by then?

Every method is fitted by `Estimator` to the rows of Friedman's function with the same limit, with one thread and in a
process of its own, beside boosted trees of scikit-learn without a limit. Errors are divided by the standard deviation
of the noise, which no prediction of new targets is below. What predicts by then may have learned nothing yet: its error
is then that of the mean of all targets, about 5.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import warnings
from typing import Annotated, Any

import numpy as np
import torch
import typer

import gpexplorer as gpx
from gpexplorer.errors import GPExplorerError
from gpexplorer.methods.base import registry

NEW_ROWS = 2000
TREES = "boosted trees"
PATIENCE = 20.0  # times the limit, after which the process is ended
COLUMNS = ("fit [s]", "over limit", "predict [s]", "error / noise", "in 95 % band", "steps")


def command(
    rows: Annotated[int, typer.Option(help="Training rows.", min=100)] = 200_000,
    seconds: Annotated[float, typer.Option(help="Limit of each fit.", min=0.1)] = 10.0,
    methods: Annotated[str, typer.Option(help="Methods, separated by commas; all by default.")] = "",
) -> None:
    """Seconds and errors of every method with many rows and the same limit."""
    typer.echo(f"{rows:,} rows, a limit of {seconds:g} s, load {os.getloadavg()[0]:.2f}\n")
    typer.echo(f"| method | {' | '.join(COLUMNS)} |\n| --- |{' ---: |' * len(COLUMNS)}")
    for method in [TREES, *(methods.split(",") if methods else sorted(registry))]:
        typer.echo(line(method, rows, seconds))


def line(method: str, rows: int, seconds: float) -> str:
    """The line of one method in the table, from a process of its own."""
    program = [sys.executable, "-m", __name__, json.dumps([method, rows, seconds])]
    try:
        done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE * seconds, check=True)
    except subprocess.TimeoutExpired:
        return f"| {method} | more than {PATIENCE * seconds:g}{' |' * len(COLUMNS)}"
    except subprocess.CalledProcessError as error:  # the others are still measured
        return f"| {method} | ended with {error.returncode}{' |' * len(COLUMNS)}"
    return f"| {method} | {' | '.join(json.loads(done.stdout))} |"


def measured(method: str, rows: int, seconds: float) -> list[str]:
    """The numbers of one method, or the sentence with which it refuses these rows."""
    torch.set_num_threads(1)
    rng, n = np.random.default_rng(0), rows + NEW_ROWS
    X = rng.uniform(size=(n, 5))
    y = 10 * np.sin(np.pi * X[:, 0] * X[:, 1]) + 20 * (X[:, 2] - 0.5) ** 2 + X[:, 3:] @ [10, 5] + rng.normal(size=n)
    model: Any
    if method == TREES:
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(random_state=0)
    else:
        model = gpx.Estimator(method, budget={"seconds": seconds})
    begin = time.perf_counter()
    try:
        model.fit(X[:rows], y[:rows])
    except GPExplorerError as error:
        return [str(error).split(":")[0], *[""] * (len(COLUMNS) - 1)]
    fitted = time.perf_counter()
    mean, *sd = model.predict(X[rows:], return_std=True) if method != TREES else [model.predict(X[rows:])]
    predicted = time.perf_counter()
    errors = mean - y[rows:]
    numbers = [f"{fitted - begin:.1f}", f"{(fitted - begin) / seconds:.1f}", f"{predicted - fitted:.1f}"]
    numbers.append(f"{np.sqrt(np.mean(errors**2)):.3f}")
    return [*numbers, f"{np.mean(np.abs(errors) < 1.96 * sd[0]):.0%}" if sd else "", str(model.run_.done) if sd else ""]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    sys.stdout.write(json.dumps(measured(*json.loads(sys.argv[1]))))
