"""Tables of other people, from a file to predictions with no option but the target, beside baselines.

`python -m benchmarks tables FOLDER --seconds 20` expects one folder per table with train.csv and test.csv, and
tables.json with the target and the measured baselines of each. It prints how many rows were predicted, the reasons of
the others, and RMSE, NLPD and coverage beside those of the baselines.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

import gpexplorer as gpx
from gpexplorer.runs.studies.prediction_table import count_reasons, predictions_of_file


def scores(table: pd.DataFrame, y: pd.Series, low_high: tuple[str, str] = ("lower_95", "upper_95")) -> dict[str, float]:
    """RMSE, the NLPD of a normal density, and the share of targets in the 95 % interval, of rows with a prediction."""
    known = (table["mean"].notna() & y.notna()).to_numpy()
    error = (y - table["mean"])[known]
    sd = table["sd"][known]
    inside = (y >= table[low_high[0]]) & (y <= table[low_high[1]])
    nlpd = 0.5 * np.log(2.0 * np.pi * sd**2) + 0.5 * (error / sd) ** 2
    return {"rmse": float(np.sqrt((error**2).mean())), "nlpd": float(nlpd.mean()), "cov": float(inside[known].mean())}


def measured(folder: Path, target: str, seconds: float) -> dict[str, Any]:
    """Train on train.csv with no option but the target, save, load, and predict test.csv."""
    answer = gpx.recommend(str(folder / "train.csv"), target=target, seconds=seconds)
    with tempfile.TemporaryDirectory() as scratch:
        answer.posterior.save(Path(scratch) / "model.safetensors")
        model = gpx.load_posterior(Path(scratch) / "model.safetensors")
    table = pd.concat(list(predictions_of_file(model, folder / "test.csv")), ignore_index=True)
    y = pd.to_numeric(pd.read_csv(folder / "test.csv")[target], errors="coerce")
    counts = Counter(count_reasons(table))
    return {
        **scores(table, y),
        "counts": dict(counts),
        "expected": answer.expected["nlpd"].value,
        "model": answer.method,
    }


def command(
    folder: Annotated[Path, typer.Argument(help="A folder with tables.json and one folder per table.")],
    names: Annotated[list[str] | None, typer.Option("--name", help="A table; all of them without it.")] = None,
    seconds: Annotated[float, typer.Option(help="Of each recommendation.", min=0.5)] = 20.0,
) -> None:
    """Learn each table of a folder with no option but the target, and predict its test rows, beside baselines."""
    described = json.loads((folder / "tables.json").read_text("utf-8"))
    for name in names or sorted(described):
        found = measured(folder / name, described[name]["target"], seconds)
        others = {"this package": found, **described[name].get("measured_20_s", {})}
        typer.echo(f"{name}: {found['counts']}; {found['model']}; expected NLPD {found['expected']:.3f}")
        for other, numbers in others.items():
            rmse, nlpd, coverage = (numbers[key] for key in ("rmse", "nlpd", "cov"))
            typer.echo(f"    {other:18} RMSE {rmse:9.4g}   NLPD {nlpd:7.3f}   coverage {coverage:.3f}")
