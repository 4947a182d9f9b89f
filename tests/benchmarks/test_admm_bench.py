"""The bench of ADMM: everything has a line, and the scaling factors follow from the times above them."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from scipy import stats

from benchmarks import admm
from benchmarks.admm import splits
from gpexplorer.runs import Spec


def test_everything_has_a_line_and_factors_follow_from_the_times(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(admm, "median_seconds", lambda work, repeats: 0.01)
    monkeypatch.setattr(admm, "_per_step", lambda method, task, iterations: 1e-6 * len(task.train) ** 2)

    title, *lines = admm.report((40, 80), "se", 3, 2, (False, 40))

    assert title.startswith("se, ")
    small = [line for line in lines if line.startswith("n = 40 ")]
    large = [line for line in lines if line.startswith("n = 80 ")]
    assert (len(small), len(large)) == (7, 4)
    [factor] = [line for line in lines if line.startswith("gpcv-admm-holdout iteration")]
    assert factor.split()[-1] == "2.00"


def test_other_packages_are_left_out_where_they_have_no_such_kernel():
    assert not list(admm._baselines(admm.problem(30, "se + lp")))


def test_the_task_with_many_inputs_needs_more_iterations_of_conjugate_gradients():
    from itertools import islice

    from gpexplorer.methods.base import registry

    used = [
        next(islice(registry["gpcv-admm"](rank=30).steps(task), 4, None)).info.iterations
        for task in (admm.problem(120, "se"), admm.many_inputs(120, 10))
    ]
    title, *lines = admm.report((40,), "se", 3, 2, (False, 40), d=10)

    assert used[1] > 2 * used[0]
    assert title.startswith("se-ard, d = 10")
    assert len([line for line in lines if line.startswith("n = 40 ")]) == 7


def test_test_rows_of_splits_judge_the_ways(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    rows = {"name": "hypercube", "n": 30, "d": 2, "noise": 0.2, "seed": 3}
    ways = {"gpcv-admm": ("gpcv-admm", {"max_iterations": 2}), "ml": ("ml", {})}
    monkeypatch.setattr(splits, "SETS", (rows,))
    monkeypatch.setattr(splits, "WAYS", ways)
    monkeypatch.setattr(splits, "TRAINING_ROWS", 20)
    errors = {}
    for name, (key, settings) in ways.items():
        runs = [Spec(key, settings, data=rows, split={"test": 1.0 / 3.0, "seed": k}).open() for k in (0, 1)]
        ends = [run.finish().reason for run in runs]
        errors[name] = [run.scores()["smse"] for run in runs]
    assert ends == ["converged", "converged"]

    assert len([*splits.judged(1, tmp_path / "new")]) == 3  # a line per cell, and the report
    *cells, text = splits.judged(2, tmp_path / "new")

    assert [line.split(":")[0] for line in cells] == ["hypercube, split 1, gpcv-admm", "hypercube, split 1, ml"]
    smse, nlpd, ends = (line.split(" | ") for line in text.splitlines() if line.startswith("| hypercube | "))
    assert smse[1:3] == [f"{sum(errors[name]) / 2:.3g}" for name in ways]
    a, b = (other - own for own, other in zip(errors["gpcv-admm"], errors["ml"], strict=True))
    assert smse[3] == f"{(a + b) / 2:.2g} ({abs(a - b) / 2:.2g}) |"
    assert (len(nlpd), ends[1], ends[3]) == (4, "20", "0 / 2")


def test_a_set_is_named_where_the_interval_of_a_difference_excludes_0():
    cells = pd.DataFrame(
        [
            {"set": name, "split": k, "way": way, "rows": 9, "coverage95": 0.9, "end": "converged", "seconds": 1.0}
            | {"nlpd": 0.0 * k, "smse": 1.0 + (way == "ml") * (shift + 0.3 * (k - 1))}
            for name, shift in (("apart", 0.8), ("behind", -0.8), ("near", 0.7))
            for k in range(3)
            for way in splits.WAYS
        ]
    )

    text = splits.report(cells.set_index(["set", "split", "way"]))

    # three differences of sd 0.3: standard error 0.173, times Student's 4.30 is 0.745
    assert "- SMSE: `gpcv-admm` is better than `ml` on apart, and worse on behind." in text
    assert "- SMSE: `gpcv-admm` is better than z follows on no set, and worse on no set." in text


def test_the_kept_report_is_that_of_its_cells_and_speaks_for_the_default():
    cells, text = splits._read(admm.KEPT / splits.CELLS), (admm.KEPT / splits.REPORT).read_text("utf-8")

    assert text.endswith(f"\n\n{splits.report(cells)}")
    for score in ("SMSE", "NLPD"):
        assert f"- {score}: `gpcv-admm` is better than z follows on no set, and worse on no set." in text
    assert "- SMSE: `gpcv-admm` is better than `ml` on no set, and worse on concrete, stock." in text
    converged = (cells["end"] == "converged").groupby("way").sum()
    assert stats.fisher_exact([[n := converged[way], 80 - n] for way in ("gpcv-admm", "z follows")]).pvalue < 0.01
    seconds = cells["seconds"].groupby("way").mean()
    assert 2.5 < seconds["z follows"] / seconds["gpcv-admm"] < 3.5
