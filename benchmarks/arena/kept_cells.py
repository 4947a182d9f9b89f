"""Cells of a bench that are kept in a file: one contender on one set, with one seed and one budget of seconds.

A cell is computed in a process of its own, so that its memory can be measured and a program that does not end can be
killed. Loading the package and the data does not count as its time.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import resource
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from gpexplorer.data import Split
from gpexplorer.errors import GPExplorerError
from gpexplorer.posteriors import Marginals
from gpexplorer.recommendation.held_out import RowScores

Key = tuple[str, int, float, str]  # set, seed, seconds, contender
Scores = dict[str, Any]

PATIENCE, LEAST_PATIENCE = 3.0, 60.0  # a cell is killed after this many times its budget, but not before 60 s


def read(path: Path) -> dict[Key, Scores]:
    """The cells kept so far; a last line that was cut is computed again."""
    cells: dict[Key, Scores] = {}
    if path.exists():
        for line in path.read_text("utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                name, seed, budget, contender, cell = json.loads(line)
                cells[name, seed, budget, contender] = cell
    return cells


def keep(path: Path, key: Key, cell: Scores) -> None:
    """Add one cell to the file."""
    with path.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps([*key, cell]) + "\n")


def measured(split: Split, predict: Callable[[], Marginals]) -> Scores:
    """Scores on the test rows and the seconds of one contender; a sentence if it gave no answer.

    SMSE and NLPD are those of targets in units of the training standard deviation. Warnings, which other programs give
    at every jitter and bound, are not shown.
    """
    begin = time.perf_counter()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            marginals = predict()
    except (GPExplorerError, ValueError, RuntimeError) as error:
        return {"failed": str(error)[:200], "seconds": time.perf_counter() - begin}
    seconds = time.perf_counter() - begin
    y, sd = split.test.y.numpy(), float(split.train.y.std(correction=0))
    scores = RowScores.of_marginals(y, marginals)
    density = scores.nlpd - math.log(sd)  # of y / sd
    return {"smse": scores.smse, "nlpd": density, "coverage95": scores.inside(0.95), "seconds": seconds}


def in_own_process(work: Callable[..., Scores], *arguments: Any, seconds: float) -> Scores:
    """Compute a cell in a process of its own.

    Parameters
    ----------
    work : callable
        A function of a module that returns the cell.
    *arguments : object
        Its arguments: numbers and texts.
    seconds : float
        The budget of the cell. The process is killed after three times this, but not before a minute.

    Returns
    -------
    dict
        The cell, with "megabytes": the largest memory beyond that of a process that has loaded its data.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_send, args=(sender, work, *arguments), daemon=False)
    process.start()
    sender.close()
    patience = max(PATIENCE * seconds, LEAST_PATIENCE)
    try:
        cell: Scores = (
            receiver.recv() if receiver.poll(patience) else {"failed": f"It gave no answer within {patience:g} s."}
        )
    except EOFError:
        cell = {"failed": "Its process ended without an answer."}
    finally:
        process.kill()
        process.join()
        receiver.close()
    return cell


def megabytes() -> float:
    """The largest memory that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024.0


def _send(pipe: Connection, work: Callable[..., Scores], *arguments: Any) -> None:
    pipe.send(work(*arguments))
    pipe.close()
