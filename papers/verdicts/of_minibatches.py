"""Verdicts on tables 2 to 5 of Shoham and Avron, minibatch methods."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd

from .rules import Verdict, listed, number, statement

OURS, OTHERS = ("scgd", "minimax"), ("svgp", "bsgd")


def table(value: str, frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Numbers beside the printed ones, and the order of the methods at each batch size."""
    verdicts = []
    why = "" if full else "the quick version has 4000 rows and at most 12 epochs"
    for (data, batch), rows in frame.groupby(["data", "batch"], sort=False):
        name = str(data)
        means = {str(k): float(v) for k, v in rows.groupby("method", sort=False)[value].mean().items()}
        printed = {str(k): float(v) for k, v in rows.groupby("method", sort=False)[f"{value}_paper"].first().items()}
        worst, best = max(means[key] for key in OURS), min(means[key] for key in OTHERS)
        as_printed = max(printed[key] for key in OURS) <= min(printed[key] for key in OTHERS)
        verdicts.append(
            statement(
                f"{name}, b = {batch}: SCGD and MINIMAX below SVGP and BSGD", listed(printed), listed(means),
                worst <= best if as_printed else None,
                why if as_printed else "the paper's own numbers have another order",
            )
        )  # fmt: skip
        for method in OURS:
            values = rows.loc[rows["method"] == method, value]
            verdicts.append(number(f"{name}, b = {batch}: {method}", printed[method], values, comparable=full, why=why))
    return verdicts


JUDGES: dict[str, Callable[[pd.DataFrame, bool], list[Verdict]]] = {
    "stochastic-table2": partial(table, "nlml"), "stochastic-table3": partial(table, "nlml"),
    "stochastic-table4": partial(table, "rmse"), "stochastic-table5": partial(table, "rmse"),
}  # fmt: skip
