"""Verdicts on tables 2 to 5 of Shoham and Avron, minibatch methods.

Numbers are compared with those of the rates that the paper's rule chooses, where all of the grid were tried; else with
those of the rates that rows set aside choose. An order is judged by the first rule if all methods have it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import cast

import pandas as pd

from ..stochastic import BY_LIKELIHOOD, BY_ROWS, by_rule
from ..stochastic_published import printed as published
from ..stochastic_schedules import OPTIMISERS, RATES
from .rules import Verdict, listed, number, of_repeats, statement

SPLITS = 5  # of the paper
QUICK = "the quick version has 4000 rows and at most 12 epochs"
OURS, OTHERS = ("scgd", "minimax"), ("svgp", "bsgd")
AS_PUBLISHED = "rates of the least NLML, as in the paper"


def table(value: str, kernel: str, frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Numbers beside the printed ones, and the order of the methods at each batch size at which the paper has it."""
    return [
        verdict
        for place, rows in frame.groupby(["data", "batch"], sort=False)
        for verdict in _of_batch_size(value, (kernel, *cast("tuple[str, int]", place)), rows, full)
    ]


def _of_batch_size(value: str, place: tuple[str, str, int], rows: pd.DataFrame, full: bool) -> list[Verdict]:
    _, data, batch = place
    verdicts, name, rules = [], f"{data}, b = {batch}", by_rule(rows)
    printed = {key: published(*place, key)[value][0] for key in (*OURS, *OTHERS)}
    if max(printed[key] for key in OURS) <= min(printed[key] for key in OTHERS):
        verdicts.append(_order(value, name, rules, printed, full, data=[data], batch=[batch], rate=[None]))
    for method in OURS:
        of_rule = {rule: of[of["method"] == method] for rule, of in rules.items()}
        chosen, aside = of_rule[BY_LIKELIHOOD], of_rule[BY_ROWS][value]
        if len(chosen):
            beside = [f"{AS_PUBLISHED}; of rows set aside: {aside.mean():.3g}" if len(aside) else AS_PUBLISHED]
        else:
            chosen, beside = of_rule[BY_ROWS], []
        if len(chosen):
            why = "; ".join(filter(None, [of_repeats(chosen, "split", SPLITS), *beside])) if full else QUICK
            verdicts.append(
                number(f"{name}: {method}", printed[method], chosen[value], sd=published(*place, method)[value][1],
                       comparable=full, why=why, data=[data], batch=[batch], method=[method], rate=[None])
            )  # fmt: skip
    return verdicts


def _order(
    value: str, name: str, rules: dict[str, pd.DataFrame], printed: dict[str, float], full: bool, **pieces: list[object]
) -> Verdict:
    """Whether SCGD and MINIMAX are below SVGP and BSGD, on the splits that all methods have."""
    is_published = set(rules[BY_LIKELIHOOD]["method"]) == {*OURS, *OTHERS}
    rows = rules[BY_LIKELIHOOD if is_published else BY_ROWS]
    methods = rows.groupby("split")["method"].nunique()
    compared = rows[rows["split"].isin(methods.index[methods == methods.max()])]
    reasons = [of_repeats(compared, "split", SPLITS), AS_PUBLISHED * is_published] if full else [QUICK]
    means = {str(k): float(v) for k, v in compared.groupby("method", sort=False)[value].mean().items()}
    missing = [key for key in (*OURS, *OTHERS) if key not in means]
    worst = max((means[key] for key in OURS if key in means), default=-math.inf)
    best = min((means[key] for key in OTHERS if key in means), default=math.inf)
    holds: bool | None = worst <= best
    if missing and holds:  # one of ours above one of the others decides it
        holds, reasons = None, [f"it takes {', '.join(missing)}"]
    about, why = f"{name}: SCGD and MINIMAX below SVGP and BSGD", "; ".join(filter(None, reasons))
    return statement(about, listed(printed), listed(means), holds, why, **pieces, method=missing)


def with_falling_rates(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """The least NLML with each optimiser beside the printed number; the error on test rows is named with it."""
    verdicts = list[Verdict]()
    for place, rows in frame.groupby(["data", "batch", "method", "optimiser"], sort=False):
        data, batch, method, optimiser = cast("tuple[str, int, str, str]", place)
        (nlml, spread), (rmse, _) = published("linear", data, batch, method).values()
        rates = RATES[optimiser]
        are_all = set(rates) <= set(rows["rate"])
        best = rows.nsmallest(1 if are_all or not full else 0, "nlml")
        error = f"RMSE {', '.join(map('{:.3g}'.format, best['rmse']))}, published {rmse:.3g}"
        why = f"{of_repeats(best, 'split', SPLITS)}; {error}" if are_all else f"it takes all {len(rates)} rates"
        about = f"{data}, b = {batch}: {method}, {OPTIMISERS[optimiser]} with a falling rate"
        verdicts.append(
            number(about, nlml, best["nlml"], sd=spread, comparable=full, why=why if full else QUICK,
                   data=[data], batch=[batch], method=[method], optimiser=[optimiser])
        )  # fmt: skip
    return verdicts


JUDGES: dict[str, Callable[[pd.DataFrame, bool], list[Verdict]]] = {
    "stochastic-table2": partial(table, "nlml", "linear"), "stochastic-table3": partial(table, "nlml", "gaussian"),
    "stochastic-table4": partial(table, "rmse", "linear"), "stochastic-table5": partial(table, "rmse", "gaussian"),
    "stochastic-schedules": with_falling_rates,
}  # fmt: skip
