"""Verdicts on the figures and the table of Evans and Nair (2018), GP-GRIEF."""

from __future__ import annotations

import pandas as pd

from .rules import Verdict, listed, number, of_repeats, statement

FOLDS = 10  # of table 1


def fig1(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Four eigenfunctions beside four inducing points on ten rows."""
    medians = frame.groupby("method", sort=False)["rmse"].median().to_dict()
    grief, vfe, exact = (medians[name] for name in ("GP-GRIEF, m = 25, p = 4", "VFE, m = 4", "exact GP"))
    ours = listed({str(name): float(value) for name, value in medians.items()})
    return [
        statement(
            "median RMSE of GP-GRIEF is below that of VFE with as many functions", "0.34 against 0.47 on one draw",
            ours, grief < vfe,
        ),
        statement("GP-GRIEF is as good as the exact GP", "0.34 and 0.34 on one draw", ours, grief <= 1.05 * exact),
    ]  # fmt: skip


def fig2(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Reconstruction of a covariance matrix in 100 inputs."""
    verdicts = []
    for judged, rows in frame.groupby("judged", sort=False):
        error = rows.groupby(["p", "way"])["error"].mean().unstack("way")
        largest = error.iloc[-1]
        errors_text = f"p = {error.index[-1]}: {listed({str(k): float(v) for k, v in largest.items()})}"
        for other in ("Fourier", "Nystrom"):
            below = bool((error["GP-GRIEF"] <= 1.001 * error[other]).all())
            verdicts.append(statement(f"{judged} rows: GP-GRIEF below {other} at every p", "yes", errors_text, below))
        verdicts.append(
            statement(f"{judged} rows: GP-GRIEF close to the best of its rank", "close", errors_text,
                      bool(largest["GP-GRIEF"] < 1.5 * largest["best"]))
        )  # fmt: skip
    return verdicts


def table1(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Test RMSE over the folds of public data sets."""
    return [
        number(
            f"{name}, type {kind}: RMSE", float(rows["paper"].iloc[0]), rows["rmse"],
            sd=float(rows["paper sd"].iloc[0]), why=of_repeats(rows, "fold", FOLDS),
        )
        for (name, kind), rows in frame.groupby(["set", "type"], sort=False)
    ]  # fmt: skip


JUDGES = {"grief-fig1": fig1, "grief-fig2": fig2, "grief-table1": table1}
