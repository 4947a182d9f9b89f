"""The tables of the arena: scores, a verdict per set and budget, and the number of sets with each verdict.

Scores are means over seeds. The winner of a set and budget is the Gaussian process with the least NLPD. The verdict:

    first     it is one of ours, by more than `CLOSE` nats
    close     the best of ours and the best Gaussian process of another program are within `CLOSE` nats
    behind    it is one of another program, by more than `CLOSE` nats
    trees     added where boosted trees or ridge are ahead of every Gaussian process by more than `CLOSE` nats
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from .contenders import CONTENDERS, GP, OTHER, OURS
from .kept_cells import Key

CLOSE = 0.02  # nats


def frame_of(cells: dict[Key, dict[str, Any]]) -> pd.DataFrame:
    """One row per set, budget and contender, with means over the seeds; a cell without an answer has NaN scores."""
    rows = [
        {"set": name, "seed": seed, "budget": budget, "contender": contender,
         "group": CONTENDERS[contender].group, **cell}
        for (name, seed, budget, contender), cell in cells.items()
        if contender in CONTENDERS
    ]  # fmt: skip
    columns = ["smse", "nlpd", "coverage95", "seconds", "megabytes"]
    frame = pd.DataFrame(rows, columns=["set", "seed", "budget", "contender", "group", *columns])
    frame[columns] = frame[columns].astype(float).where(np.isfinite(frame["nlpd"].astype(float)), np.nan, axis=0)
    groups = frame.groupby(["set", "budget", "contender", "group"], sort=False)[columns]
    return groups.mean(skipna=False).reset_index()


def verdicts(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per set and budget: the best of ours, the best GP of others, the best other model, and the verdict."""
    rows = []
    for (name, budget), part in frame.groupby(["set", "budget"], sort=False):
        best = {group: _best(part[part["group"] == group]) for group in (OURS, GP, OTHER)}
        (ours, at_ours), (theirs, at_theirs), (other, at_other) = best[OURS], best[GP], best[OTHER]
        verdict = "close" if abs(at_ours - at_theirs) <= CLOSE else "first" if at_ours < at_theirs else "behind"
        if at_other < min(at_ours, at_theirs) - CLOSE:
            verdict += ", trees" if other == "boosted trees" else f", {other}"
        rows.append({
            "set": name, "budget": budget, "ours": ours, "NLPD of ours": at_ours, "theirs": theirs,
            "NLPD of theirs": at_theirs, "other": other, "NLPD of the other": at_other, "verdict": verdict,
        })  # fmt: skip
    return pd.DataFrame(rows)


def markdown(cells: dict[Key, dict[str, Any]]) -> str:
    """All tables in Markdown."""
    frame = frame_of(cells)
    if frame.empty:
        return "No cell is computed yet."
    judged = verdicts(frame)
    parts = []
    for budget, part in frame.groupby("budget"):
        rows = judged[judged["budget"] == budget]
        counts = rows["verdict"].str.split(",").str[0].value_counts()
        trees = int(rows["verdict"].str.contains(",").sum())
        parts += [
            f"## {budget:g} s",
            "",
            f"Among Gaussian processes ours are first in {counts.get('first', 0)} of {len(rows)} sets, close to the "
            f"best of other programs in {counts.get('close', 0)} and behind in {counts.get('behind', 0)}. Trees or "
            f"ridge are ahead of all of them in {trees}.",
            "",
            _verdict_table(rows),
            "",
            _pivot(part, "nlpd", "{:.2f}", "NLPD"),
            "",
            _pivot(part, "smse", "{:.3f}", "SMSE"),
            "",
            _medians(part),
            "",
        ]
    return "\n".join(parts)


def _best(part: pd.DataFrame) -> tuple[str, float]:
    part = part.dropna(subset="nlpd")
    if part.empty:
        return "none", np.inf
    row = part.sort_values("nlpd").iloc[0]
    return str(row["contender"]), float(row["nlpd"])


def _verdict_table(judged: pd.DataFrame) -> str:
    lines = ["| set | best of ours | best other GP | best other model | verdict |", "| --- | --- | --- | --- | --- |"]
    for _, row in judged.iterrows():
        lines.append(
            f"| {row['set']} | {row['ours']} {row['NLPD of ours']:.3f} | {row['theirs']} "
            f"{row['NLPD of theirs']:.3f} | {row['other']} {row['NLPD of the other']:.3f} | {row['verdict']} |"
        )
    return "\n".join(lines)


def _pivot(part: pd.DataFrame, score: str, form: str, title: str) -> str:
    """One line per set and one column per contender; a dash where there is no answer."""
    table = part.pivot_table(index="set", columns="contender", values=score, sort=False, dropna=False)
    table = table[[name for name in CONTENDERS if name in table]]
    lines = [f"| {title} | {' | '.join(table.columns)} |", "| --- " + "| ---: " * len(table.columns) + "|"]
    for name, row in table.iterrows():
        lines.append(f"| {name} | {' | '.join('—' if np.isnan(v) else form.format(v) for v in row)} |")
    return "\n".join(lines)


def _medians(part: pd.DataFrame) -> str:
    lines = [
        "| contender | answers | median coverage95 | median seconds | largest memory, MB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for name in CONTENDERS:
        rows = part[part["contender"] == name]
        if not rows.empty:
            answered = rows.dropna(subset="nlpd")
            lines.append(
                f"| {name} | {len(answered)} of {len(rows)} | {answered['coverage95'].median():.2f} | "
                f"{answered['seconds'].median():.1f} | {answered['megabytes'].max():.0f} |"
            )
    return "\n".join(lines)
