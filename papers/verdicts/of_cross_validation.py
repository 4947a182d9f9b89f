"""Verdicts on the figures and the table of Xu et al. (2019), cross-validation by consensus."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from .rules import Verdict, listed, lower, number, statement

SHOWN = 4  # of the runs with the lowest objectives
FLAT = 0.02  # of its range, a curve moves over its last fifth
NOISE = "the paper does not state the noise of its draws; here its sd is 0.3"


def co2(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """The run with the lowest objective of each method, scored on 2009 to 2015."""
    error, verdicts, values = "MSE over test variance", list[Verdict](), dict[str, float]()
    printed = frame.loc[frame["paper"].isna(), error]
    for name, runs in frame.dropna(subset="paper").groupby("method", sort=False):
        ordered, published = runs.sort_values("lowered"), float(runs["paper"].iloc[0])
        values[str(name)] = float(ordered[error].iloc[0])
        lowest = ", ".join(f"{row['lowered']:.4g} ({row[error]:.2g})" for _, row in ordered.head(SHOWN).iterrows())
        verdicts.append(
            number(
                f"{name}: standardised test MSE", published, [values[str(name)]],
                why=f"the lowest of {len(runs)} objectives, with the test MSE of their runs: {lowest}; "
                f"{int((runs[error] < published).sum())} of the runs are below the published number",
            )
        )  # fmt: skip
    admm_is_lower = values["gpcv-admm"] < values["ml"]
    why = f"the lengthscales that the paper prints have {printed.iloc[0]:.2g} without learning" if len(printed) else ""
    return [
        *verdicts,
        statement("GPCV-ADMM has the lower test error", "1.307 against 1.408", listed(values), admm_is_lower, why),
    ]


def fig2(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Do the curves become flat?"""
    verdicts = []
    for (kernel, algorithm), rows in frame.groupby(["kernel", "algorithm"], sort=False):
        moves = {}
        for curve, points in rows.dropna().groupby("curve", sort=False):
            values = points["value"].to_numpy(float)
            span, tail = float(np.ptp(values)), values[-max(2, len(values) // 5) :]
            moves[str(curve)] = float(np.ptp(tail)) / span if span else 0.0
        last = int(rows["iteration"].max())
        verdicts.append(
            statement(
                f"{kernel}, {algorithm}: all four curves are flat within some tens of iterations", "yes",
                f"{last} iterations; share of its range that each moves over the last fifth: {listed(moves, '{:.2g}')}",
                max(moves.values()) < FLAT,
            )
        )  # fmt: skip
    return verdicts


def fig3(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Growth of the time per step with the rows."""
    powers = {}
    for method, rows in frame.groupby("method", sort=False):
        times = rows.set_index("n")["seconds"]
        powers[str(method)] = math.log(times[2000] / times[500]) / math.log(4.0)
    powers_text = listed(powers, "n^{:.2f}")
    return [
        statement("from 500 to 2000 rows GPCV-ADMM grows as n^2", "n^2", powers_text, powers["GPCV-ADMM"] < 2.3),
        statement(
            "maximum likelihood grows faster",
            "towards n^3",
            powers_text,
            powers["maximum likelihood"] > powers["GPCV-ADMM"],
        ),
    ]


def table1(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Test errors and estimates on draws of three kernels."""
    verdicts = []
    for (kernel, n), rows in frame.groupby(["kernel", "n"], sort=False):
        papers = rows.groupby("method", sort=False)["paper"].first().to_dict()
        names = ("GPCV-ADMM", "maximum likelihood")
        published_text = listed({name: papers[name] for name in names})
        errors = rows.pivot_table(index="trial", columns="method", values="test MSE")
        about = f"{kernel}, n = {n}: test MSE of GPCV-ADMM below that of maximum likelihood"
        verdicts.append(lower(about, published_text, errors[names[0]], errors[names[1]], NOISE))
        estimates = [str(column) for column in rows if str(column).endswith(" (paper)")]
        from_truth = rows[rows["method"] == "GPCV-ADMM, from the truth"]
        for column in estimates:
            name = column.removesuffix(" (paper)")
            values = from_truth[name].dropna()
            if len(values):
                published = float(from_truth[column].dropna().iloc[0])
                is_close = abs(float(values.median()) / published - 1.0) < 0.25
                verdicts.append(
                    statement(f"{kernel}, n = {n}: estimate of {name}, from the truth", f"{published:.2f}",
                              f"median {values.median():.2f}", is_close, "within a quarter of the published mean")
                )  # fmt: skip
    return verdicts


JUDGES = {"admm-co2": co2, "admm-fig2": fig2, "admm-fig3": fig3, "admm-table1": table1}
