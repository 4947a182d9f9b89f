"""Verdicts on the figures and tables of Bo and Sminchisescu (2008), greedy block descent."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd

from .rules import SAME, Verdict, listed, number, statement

LARGEST = 1e-4  # the gradient at which the paper stops
COMPARED = ("SD", "SR", "MPGP", "GBCD")  # in table 4
ITERATIVE = ("GBCD", "BCDC", "BCDG", "SMO", "CG")
QUICK = "the quick version has fewer rows: it takes the full one, with those of the paper"
FEW_ROWS = "the times of 1500 rows say little about those of 10000: it takes the full version"
AGREE = 0.005  # relative difference of test errors of one solution


def fig1(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Correlations between the gradients of neighbours."""
    medians = frame.groupby(["set", "right", "pairs"])["median"].first()
    verdicts = []
    for name in frame["set"].unique():
        near = {right: float(medians[name, right, "neighbours"]) for right in ("y", "k")}
        far = {right: float(medians[name, right, "any two rows"]) for right in ("y", "k")}
        medians_text = f"neighbours {listed(near, '{:.2f}')}; any two rows {listed(far, '{:.2f}')}"
        verdicts += [
            statement(
                f"{name}: gradients of neighbours are correlated",
                "yes",
                medians_text,
                all(near[r] > far[r] for r in near),
            ),
            statement(
                f"{name}: more so where the right-hand side is a kernel column",
                "yes",
                medians_text,
                near["k"] > near["y"],
            ),
        ]
    return verdicts


def fig2(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Which solver reaches the gradient of the paper first."""
    verdicts = []
    for name, of_set in frame.groupby("set"):
        reached = of_set[of_set["gradient"] <= LARGEST].groupby("solver")["seconds"].first().to_dict()
        times = {solver: float(reached.get(solver, math.inf)) for solver in ITERATIVE}
        fastest = min(times, key=lambda solver: times[solver])
        # results that were kept before have no such column
        rows = f"{int(of_set['rows'].max()):,} rows" if "rows" in of_set else "the rows of this version"
        failed = not math.isfinite(times["GBCD"])
        texts = [f"{s} {t:.2g} s" if math.isfinite(t) else f"{s} fails at {rows}" for s, t in times.items()]
        why = f"GBCD does not reach it at {rows} in the time that it is given" if failed else "" if full else FEW_ROWS
        if not math.isfinite(times[fastest]):
            why = f"no solver reaches it at {rows} in the time: it takes more seconds"
        judged = math.isfinite(times[fastest]) and (full or failed)
        verdicts.append(
            statement(
                f"{name}: GBCD reaches a largest gradient of 1e-4 before the other iterative solvers", "yes",
                ", ".join(texts), fastest == "GBCD" if judged else None, why, set=[name], solver=ITERATIVE,
            )
        )  # fmt: skip
    return verdicts


def fig3(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """The objective after as many iterations."""
    verdicts = []
    for name, of_set in frame.groupby("set"):
        lines = {s: of_set[of_set["solver"] == s] for s in ("GBCD", "BCDC", "BCDG")}
        iteration = min(int(line["iteration"].max()) for line in lines.values()) // 2
        values = {
            s: float(np.interp(iteration, line["iteration"], line["objective"]))
            for s, line in lines.items()
            if len(line)
        }
        verdicts.append(
            statement(
                f"{name}: greedy blocks have the lowest objective after {iteration} iterations", "yes",
                listed(values, "{:.6g}"), values["GBCD"] <= min(values.values()),
            )
        )  # fmt: skip
    return verdicts


def fig4(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Does the gap between blocks in turn and greedy blocks grow with the rows?"""
    table = frame[frame["converged"]].pivot_table(index="rows", columns="solver", values="seconds")
    seconds = table.reindex(columns=["BCDC", "GBCD"]).dropna()
    gaps = (seconds["BCDC"] - seconds["GBCD"]).to_dict()
    holds = None if len(gaps) < 2 else list(gaps.values())[-1] > next(iter(gaps.values()))
    return [
        statement(
            "seconds of BCDC minus seconds of GBCD grow with n", "yes",
            listed({f"n = {n}": g for n, g in gaps.items()}) or "no number",
            holds,
            "it takes two numbers of rows at which both end in the time" if holds is None else "",
            solver=["BCDC", "GBCD"], rows=[10_000, 20_000],
        )
    ]  # fmt: skip


def table2(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Test errors and times of the solvers of the full GP."""
    verdicts = []
    for name, of_set in frame.groupby("set", sort=False):
        converged = of_set[of_set["converged"]]
        errors = converged.set_index("solver")["RMSE"].to_dict()
        spread = max(errors.values()) / min(errors.values()) - 1.0 if errors else math.nan
        verdicts += [
            statement(
                f"{name}: all solvers have the same error", "yes", listed(errors, "{:.4f}"),
                spread < AGREE if len(errors) > 1 else None, "" if len(errors) > 1 else "it takes two solvers that end",
                set=[name], solver=["Cholesky", "GBCD, coarse"],
            ),
            number(
                f"{name}: RMSE of the full GP", float(of_set["paper"].iloc[0]), errors.values(), comparable=full,
                why="" if full else QUICK, set=[name], solver=["Cholesky"],
            ),
        ]  # fmt: skip
        verdicts.append(_fastest(str(name), of_set[of_set["solver"].isin(ITERATIVE)], full))
    return verdicts


def _fastest(name: str, of_set: pd.DataFrame, full: bool) -> Verdict:
    """Is GBCD the fastest? A solver that was stopped takes more than its seconds, which may be enough to know."""
    ended = of_set.set_index("solver")["converged"].to_dict()
    seconds = of_set.set_index("solver")["seconds"].to_dict()
    gbcd, others = seconds.get("GBCD", math.nan), [solver for solver in ITERATIVE if solver != "GBCD"]
    faster = any(ended.get(solver, False) and seconds[solver] < gbcd for solver in others)
    missing = [s for s in ITERATIVE if not (ended.get(s, False) or (s != "GBCD" and seconds.get(s, 0.0) > gbcd))]
    holds = None if not full or (missing and not faster) else not faster
    why = FEW_ROWS if not full else f"it takes the times of {', '.join(missing)}" if holds is None else ""
    texts = [f"{'' if ended[solver] else 'more than '}{seconds[solver]:.3g} s" for solver in seconds]
    ours = ", ".join(f"{solver} {text}" for solver, text in zip(seconds, texts, strict=True))
    about = f"{name}: GBCD is the fastest iterative solver"
    return statement(about, "yes", ours, holds, why, set=[name], solver=missing if full else ITERATIVE)


def table3(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Relative errors of predictive variances."""
    why = "the tolerance with the smallest error; ours solves for all test points at once"
    return [
        number(f"{name}: relative error of the variance", float(rows["paper"].iloc[0]), [rows["relative error"].min()],
               comparable=full, why=why if full else QUICK, set=[name])
        for name, rows in frame.groupby("set", sort=False)
    ]  # fmt: skip


def table4(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """The full GP, by either solver, beside sparse models; errors with the same three digits are the same."""
    verdicts = []
    for name, rows in frame.groupby("set", sort=False):
        errors = rows.set_index("solver")["RMSE"]
        *sparse, _ = COMPARED
        solver = next((own for own in ("GBCD", "GBCD, coarse") if own in errors), "")
        missing = [own for own in sparse if own not in errors] + ["GBCD"] * (not solver)
        about, texts = f"{name}: the full GP has a smaller error than SD, SR and MPGP", listed(errors)
        ours, others = (math.nan, math.nan) if missing else (errors[solver], errors[sparse].min())
        if f"{ours:.3g}" == f"{others:.3g}" and not missing:
            verdicts.append(Verdict(about, "yes", texts, SAME, "to three digits"))
        else:
            why = f"it takes the errors of {', '.join(missing)}" if missing else ""
            holds = None if missing else bool(ours < others)
            verdicts.append(statement(about, "yes", texts, holds, why, set=[name], solver=COMPARED))
        for solver in COMPARED:
            of_solver = rows[rows["solver"] == solver]
            if len(of_solver):
                verdicts.append(
                    number(f"{name}: RMSE of {solver}", float(of_solver["paper"].iloc[0]), of_solver["RMSE"],
                           comparable=full, why="" if full else QUICK, set=[name], solver=[solver])
                )  # fmt: skip
    return verdicts


JUDGES = {
    "gbcd-fig1": fig1, "gbcd-fig2": fig2, "gbcd-fig3": fig3, "gbcd-fig4": fig4, "gbcd-table2": table2,
    "gbcd-table3": table3, "gbcd-table4": table4,
}  # fmt: skip
