"""Ways to choose theta, judged by the test rows of several splits of eight public sets.

At most 400 rows, drawn at random, are for training, and all others, at least a tenth, are for testing. A cell is one
way on one split. Cells are kept as they are computed, so that a command that was stopped goes on where it was, and the
report is made from all cells of its file.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
from scipy import stats

from gpexplorer import data
from gpexplorer.methods.base import registry
from gpexplorer.runs import Spec

WAYS: dict[str, tuple[str, dict[str, Any]]] = {  # "z follows" was the default until 2026-11-22
    "gpcv-admm": ("gpcv-admm", {}),
    "z follows": ("gpcv-admm", {"theta_method": "z follows"}),
    "gpcv-admm-holdout": ("gpcv-admm-holdout", {}),
    "ml": ("ml", {}),
}
SETS: tuple[Any, ...] = ("servo", "challenger", "breastcancer", "stock", "housing", "forest", "energy", "concrete")
CELLS, REPORT = "cells.jsonl", "report.md"
FIRST = "gpcv-admm"  # the way that the others are compared with
TRAINING_ROWS, LEAST_TEST = 400, 0.1
SURE = 0.95  # of Student's interval of a difference: a set whose interval contains 0 is not named


def judged(splits: int, folder: Path) -> Iterator[str]:
    """Compute the cells that are not in the folder yet and write the report; yield a line per cell, and the report."""
    path, available = folder / CELLS, data.available()
    folder.mkdir(parents=True, exist_ok=True)
    kept = set(_read(path).index) if path.exists() else set()
    for rows in SETS:
        name, n = (rows, available["n"][rows]) if isinstance(rows, str) else (rows["name"], rows["n"])
        share = max(LEAST_TEST, 1.0 - TRAINING_ROWS / n)
        for split in range(splits):
            for way, (key, settings) in WAYS.items():
                if (name, split, way) not in kept:
                    spec = Spec(key, settings, data=rows, split={"test": share, "seed": split})
                    cell = {"set": name, "split": split, "way": way, **_cell(spec)}
                    with path.open("a", encoding="utf-8") as lines:
                        lines.write(json.dumps(cell) + "\n")
                    scores = f"SMSE {cell['smse']:.3g}, {cell['end']}, {cell['seconds']:.1f} s"
                    yield f"{name}, split {split}, {way}: {scores}"
    text = report(_read(path))
    (folder / REPORT).write_text(f"# Cross-validation on public sets\n\n{text}", "utf-8")
    yield text


def _read(path: Path) -> pd.DataFrame:
    return pd.read_json(path, lines=True).set_index(["set", "split", "way"])


def _cell(spec: Spec) -> dict[str, Any]:
    """Return scores of the test rows, why the run ended, and its seconds of a processor."""
    run, begin = spec.open(), time.process_time()
    end = run.finish().reason
    seconds = time.process_time() - begin
    scores = {name: value for name, value in run.scores().items() if name in ("smse", "nlpd", "coverage95")}
    return {"rows": len(run.problem.train), **scores, "end": end, "seconds": seconds}


def report(cells: pd.DataFrame) -> str:
    """Return tables of medians per set, of differences split by split, and of how runs end."""
    lines = [line for score in ("smse", "nlpd") for line in _of_scores(score.upper(), cells[score].unstack("way"))]
    return "\n".join([*lines, *_of_ends(cells), ""])


def _of_scores(title: str, table: pd.DataFrame) -> list[str]:
    """Return medians and differences of a score, and sentences that name the sets on which the ways differ."""
    others = [way for way in WAYS if way != FIRST]
    medians = table.groupby("set").median()
    differences = table[others].sub(table[FIRST], axis=0).groupby("set")
    means, errors = differences.mean(), differences.sem()
    lines = _head(f"median {title}", *map(_way, WAYS), *(f"{_way(way)} minus {_way(FIRST)}" for way in others))
    for name in medians.index:
        texts = [f"{means.loc[name, way]:.2g} ({errors.loc[name, way]:.2g})" for way in others]
        lines.append(_row(name, *(f"{medians.loc[name, way]:.3g}" for way in WAYS), *texts))
    lines.append("")
    half_width = errors * stats.t.ppf(0.5 + 0.5 * SURE, differences.size().min() - 1)
    for way in others:
        better, worse = (
            ", ".join(means.index[sign * means[way] > half_width[way]]) or "no set" for sign in (1.0, -1.0)
        )
        lines.append(f"- {title}: {_way(FIRST)} is better than {_way(way)} on {better}, and worse on {worse}.")
    return [*lines, ""]


def _of_ends(cells: pd.DataFrame) -> list[str]:
    """Return the coverage, the runs that converge and the seconds, of all ways in one cell of the table."""
    runs = cells.assign(converged=cells["end"] == "converged").groupby(["set", "way"])
    converged, means = runs["converged"].sum(), runs[["rows", "coverage95", "seconds"]].mean()
    lines = _head("set", "training rows", "in 95 % bands", "runs that converge", "seconds")
    for name in means.index.unique("set"):
        of_set = [(means.loc[name, way], converged[name, way]) for way in WAYS]
        texts = [
            " / ".join(f"{mean['coverage95']:.2f}" for mean, _ in of_set),
            " / ".join(str(count) for _, count in of_set),
            " / ".join(f"{mean['seconds']:.1f}" for mean, _ in of_set),
        ]
        lines.append(_row(name, f"{of_set[0][0]['rows']:.0f}", *texts))
    total, seconds = converged.groupby("way").sum(), cells["seconds"].groupby("way").mean()
    text = ", ".join(f"{_way(way)} {total[way]} in {seconds[way]:.1f} s" for way in WAYS)
    of_each = len(cells) // len(WAYS)
    return [*lines, "", f"Of {of_each} runs of each, so many converge, with the mean seconds of a run: {text}."]


def _way(name: str) -> str:
    return f"`{name}`" if name in registry else name


def _head(*titles: str) -> list[str]:
    return [_row(*titles), _row("---", *["---:"] * (len(titles) - 1))]


def _row(*texts: str) -> str:
    return f"| {' | '.join(texts)} |"
