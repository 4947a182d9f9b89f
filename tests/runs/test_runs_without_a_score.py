"""Families of runs of which some took no step, failed, have no score, or took other numbers of steps."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Compare, Spec
from gpexplorer.runs.studies import split_comparison
from gpexplorer.runs.studies.comparison import Finished

ROWS = {"name": "hypercube", "n": 60, "d": 2, "noise": 0.2, "seed": 1}


def family(
    method: str, scores: list[float], steps: int | list[int] = 3, outcome: str = "budget"
) -> dict[str, Finished]:
    """One run per split, which begins at a score of 1, or has none at all."""
    counts = steps if isinstance(steps, list) else [steps] * len(scores)
    runs = {}
    for k, (score, count) in enumerate(zip(scores, counts, strict=True)):
        places = range(count + 1)
        frame = pd.DataFrame({"index": places, "seconds": np.linspace(0, 1, count + 1), "entries": places})
        frame["smse"] = [*[1.0 if np.isfinite(score) else score] * count, score]
        runs[f"{method} {k}"] = Finished(Spec(method, data=ROWS, split=k), frame, outcome=outcome)
    return runs


def compared(runs: dict[str, Finished]) -> tuple[pd.DataFrame, list[str]]:
    result = split_comparison.table(split_comparison.families(runs))
    return result, split_comparison.sentences(result)


@pytest.mark.parametrize("outcome", ["diverged", "failed", "stopped", ""])
def test_a_method_that_never_took_a_step_wins_nothing(outcome: str):
    runs = (
        family("random", [0.1] * 8, steps=0, outcome=outcome) | family("cholqr", [0.5] * 8) | family("ivm", [0.6] * 8)
    )

    result, said = compared(runs)

    assert result.index.tolist() == ["cholqr", "ivm", "random"]
    assert result["number"].tolist() == [8, 8, 0]
    assert result["best"].dropna().tolist() == ["cholqr"]
    assert result["pairs"].dropna().tolist() == [1]
    assert said == [
        "cholqr has a lower SMSE than ivm on 8 of 8 splits (sign test over splits, p = 0.0078).",
        "random: all 8 runs took no step, so its SMSE is not compared.",
    ]
    page = Compare(runs)._repr_html_()
    assert "random: all 8 runs took no step" in page
    assert "NA&gt;" not in page
    assert "None" not in page
    assert page.count("–") >= 6  # the best, wins, ties, p and remark of cholqr, and more of random


def test_a_start_that_is_the_end_has_a_score():
    result, said = compared(family("random", [0.1] * 8, steps=0, outcome="converged") | family("cholqr", [0.5] * 8))

    assert result["number"].tolist() == [8, 8]
    assert said == ["random has a lower SMSE than cholqr on 8 of 8 splits (sign test over splits, p = 0.0078)."]


def test_splits_without_a_score_are_counted():
    runs = family("cholqr", [0.1] * 5 + [math.nan, math.inf]) | family("ivm", [0.2] * 7)
    late = runs["ivm 0"]
    runs["ivm 0"] = replace(late, steps=late.steps.head(1))  # it took no step

    result, (sentence, *remarks) = compared(runs)

    assert result["number"].tolist() == [4, 4]
    assert result.loc["ivm", "left out"] == 3
    assert sentence.endswith("p = 0.12). Left out: 3 splits on which not all have a finite SMSE.")
    assert remarks == ["cholqr: 2 of 7 runs had no finite SMSE.", "ivm: 1 of 7 runs took no step."]


def test_runs_that_failed_on_the_way_and_runs_of_other_lengths_are_named():
    runs = family("cholqr", [0.1] * 4, steps=[2, 2, 40, 40]) | family("ivm", [0.2] * 4, steps=[1, 5, 9, 9])
    for name, outcome in (("ivm 0", "diverged"), ("ivm 1", "failed"), ("ivm 2", "converged")):
        runs[name] = replace(runs[name], outcome=outcome)

    _, (_, *remarks) = compared(runs)

    assert remarks == ["cholqr: they took 2 to 40 steps.", "ivm: 1 of 4 runs diverged, 1 of 4 runs failed."]
    in_seconds = {name: replace(run, spec=replace(run.spec, budget={"seconds": 2.0})) for name, run in runs.items()}
    assert not any("steps" in sentence for sentence in compared(in_seconds)[1])


def test_where_no_run_has_a_score_nothing_is_compared():
    result, said = compared(family("cholqr", [0.1] * 3, steps=0) | family("ivm", [math.nan] * 3))

    assert len(result) == 0
    assert said == []
