"""Verdicts on the figures of Cao et al. (2013), swaps of inducing points."""

from __future__ import annotations

import pandas as pd

from .rules import Verdict, listed, number, of_repeats, statement

OTHERS = ("IVM", "Random")
SEEDS, QUICK = 10, "the quick version has 2000 rows and m up to 64"  # seeds of the paper
SIZES = 5  # numbers of points in figure 5


def fig1(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Ranks by the approximate score beside ranks by the exact reduction."""
    groups = frame.groupby(["seed", "tries"])
    correlations = [part["rank of approx"].corr(part["rank of exact"]) for _, part in groups]
    least = min(correlations)
    return [
        statement(
            "ranks of all candidates, approximate against exact", "close to the diagonal",
            f"rank correlation {sum(correlations) / len(correlations):.3f}, the least {least:.3f}", least > 0.8,
        )
    ]  # fmt: skip


def fig2(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Order of the methods over the number of inducing points, on discrete inputs."""
    verdicts = []
    for task, of_task in frame.groupby("task"):
        mean = of_task.groupby(["method", "m"])["SMSE"].mean().unstack("method")
        ours, others = mean["CholQR-z16"], mean[list(OTHERS)]
        is_lowest = (ours.to_numpy()[:, None] <= others.to_numpy()).all()
        errors_text = "; ".join(f"m = {m}: {listed(row)}" for m, row in mean.iterrows())
        verdicts.append(
            statement(
                f"{task}: SMSE of CholQR below IVM and random rows at every m", "yes", errors_text, bool(is_lowest)
            )
        )
    return verdicts


def fig3(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Scores at the end and the seconds until then, at m = 32."""
    verdicts = []
    for task, of_task in frame.groupby("task"):
        last = of_task.groupby("method").last()
        errors_text = listed({f"{name} ({row['seconds']:.2g} s)": row["SMSE"] for name, row in last.iterrows()})
        best = float(last.loc[list(OTHERS), "SMSE"].min())
        ours = float(last["SMSE"]["CholQR-z16"])
        verdicts.append(
            statement(
                f"{task}: CholQR ends with a lower SMSE than IVM and random rows", "yes", errors_text, ours <= best
            )
        )
        csi = last.loc["CSI"]
        slow = bool(csi["seconds"] > last["seconds"]["CholQR-z16"] and csi["SMSE"] > ours)
        verdicts.append(
            statement(f"{task}: CSI is slower than CholQR and scores worse", "yes", errors_text, slow)
        )  # fmt: skip
    return verdicts


def fig4(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """Negative log likelihoods from a poor start and from evenly spread points."""
    nll = frame.groupby(["method", "rows", "start"])["nll"].first()
    ends = {start: float(nll["SPGP", 20, start]) for start in ("left", "even")}
    verdicts = [
        number(f"SPGP on 20 rows, start {start}: negative log likelihood, nats", published, [ends[start]])
        for start, published in (("left", 14.54), ("even", 11.34))
    ]
    swaps = float(nll["CholQR-MLE", 20, "left"])
    verdicts.append(
        statement(
            "20 rows: swaps from the poor start end below SPGP from there", "yes",
            f"CholQR-MLE {swaps:.2f}, SPGP {ends['left']:.2f} nats", swaps < ends["left"],
        )
    )  # fmt: skip
    return verdicts


def fig5(frame: pd.DataFrame, full: bool) -> list[Verdict]:
    """KIN40K over the number of inducing points."""
    mean = frame.groupby(["method", "m"])["SMSE"].mean().unstack("method")
    ours, pairs = mean["CholQR-VAR"].dropna(), mean.reindex(columns=["CholQR-VAR", "IVM-VAR"]).dropna()
    below = bool((pairs["CholQR-VAR"] <= pairs["IVM-VAR"]).all()) if len(pairs) else None
    errors_text = "; ".join(f"m = {m}: {listed(row.dropna())}" for m, row in mean.iterrows())

    def of_sizes(errors: "pd.DataFrame | pd.Series[float]") -> str:
        return of_repeats(pd.DataFrame({"size": errors.index}), "size", SIZES) if full else ""

    falls = bool(ours.is_monotonic_decreasing) if len(ours) > 1 else None
    verdicts = [
        statement(
            "SMSE of CholQR-VAR below IVM-VAR at every m", "yes", errors_text, below,
            of_sizes(pairs) if len(pairs) else "it takes the errors of IVM-VAR", method=["IVM-VAR"],
        ),
        statement(
            "SMSE of CholQR-VAR falls with m", "yes", listed(ours), falls,
            of_sizes(ours) if len(ours) > 1 else "it takes two numbers of points", method=["CholQR-VAR"],
        ),
    ]  # fmt: skip
    for m, published in ((128, 0.2), (2048, 0.08)):
        values = frame[(frame["method"] == "CholQR-VAR") & (frame["m"] == m)]
        seeds = "; ".join(filter(None, ["read from the figure", of_repeats(values, "seed", SEEDS)]))
        verdicts.append(
            number(f"SMSE of CholQR-VAR at m = {m}", published, values["SMSE"], comparable=full,
                   why=seeds if full else QUICK, method=["CholQR-VAR"], m=[m])
        )  # fmt: skip
    return verdicts


JUDGES = {"cholqr-fig1": fig1, "cholqr-fig2": fig2, "cholqr-fig3": fig3, "cholqr-fig4": fig4, "cholqr-fig5": fig5}
