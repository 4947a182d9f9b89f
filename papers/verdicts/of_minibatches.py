"""Verdicts on tables 2 to 5 of Shoham and Avron, minibatch methods."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import pandas as pd

from .rules import Verdict, listed, number, of_repeats, statement

SPLITS = 5  # of the paper
QUICK = "the quick version has 4000 rows and at most 12 epochs"
OURS, OTHERS = ("scgd", "minimax"), ("svgp", "bsgd")


def table(value: str, frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Numbers beside the printed ones, and the order of the methods at each batch size at which the paper has it."""
    verdicts = []
    for (data, batch), rows in frame.groupby(["data", "batch"], sort=False):
        name = f"{data}, b = {batch}"
        methods = rows.groupby("split")["method"].nunique()
        compared = rows[rows["split"].isin(methods.index[methods == methods.max()])]  # splits that all methods have
        why = of_repeats(compared, "split", SPLITS) if full else QUICK
        means = {str(k): float(v) for k, v in compared.groupby("method", sort=False)[value].mean().items()}
        printed = {str(k): float(v) for k, v in rows.groupby("method", sort=False)[f"{value}_paper"].first().items()}
        missing = [key for key in (*OURS, *OTHERS) if key not in means]
        worst = max((means[key] for key in OURS if key in means), default=-math.inf)
        best = min((means[key] for key in OTHERS if key in means), default=math.inf)
        holds: bool | None = worst <= best
        if missing and holds:  # one of ours above one of the others decides it
            holds, why = None, f"it takes {', '.join(missing)}"
        printed_others = [printed[key] for key in OTHERS if key in printed]
        if all(printed[key] <= other for key in OURS if key in printed for other in printed_others):
            verdicts.append(
                statement(
                    f"{name}: SCGD and MINIMAX below SVGP and BSGD", listed(printed), listed(means), holds, why,
                    data=[data], batch=[batch], method=missing,
                )
            )  # fmt: skip
        for method in (key for key in OURS if key in means):
            of_method = rows[rows["method"] == method]
            reason = of_repeats(of_method, "split", SPLITS) if full else QUICK
            verdicts.append(
                number(f"{name}: {method}", printed[method], of_method[value], comparable=full, why=reason,
                       data=[data], batch=[batch], method=[method])
            )  # fmt: skip
    return verdicts


JUDGES: dict[str, Callable[[pd.DataFrame, bool], list[Verdict]]] = {
    "stochastic-table2": partial(table, "nlml"), "stochastic-table3": partial(table, "nlml"),
    "stochastic-table4": partial(table, "rmse"), "stochastic-table5": partial(table, "rmse"),
}  # fmt: skip
