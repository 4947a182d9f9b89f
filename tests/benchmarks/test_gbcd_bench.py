"""The report of the solvers: what it prints, and that a crossing with Cholesky is only reported if there is one."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch

from benchmarks.gbcd import SOLVERS, Conditions, crossing, exact_answers, report
from gpexplorer import data, kernels
from gpexplorer.problem import Problem

GROWTH = "seconds grow as n^3.00 (Cholesky) and n^{:.2f} (gbcd): "


def test_every_solver_has_a_line_and_the_fastest_is_compared_with_cholesky():
    lines = list(report("hypercube", 240, Conditions(0.2, 1e-4, 0.0), list(SOLVERS), True))

    assert re.match(r"hypercube: n = 240, d = 5, \d+ threads, load ", lines[0])
    assert "LAPACK Cholesky" in lines[1]
    rows = {line.split()[0]: line.split() for line in lines[4 : 4 + len(SOLVERS)]}
    assert set(rows) == set(SOLVERS)
    assert all(float(row[1]) >= 0 and int(row[2]) > 0 and float(row[5]) >= 0 for row in rows.values())
    assert all(0 <= float(row[6]) < 1000 for row in rows.values())  # megabytes besides the data
    assert float(rows["gbcd-1000"][7]) <= 1e-4  # one block; the default takes thirty of an eighth of the rows
    assert rows["gbcd-1000"][8] == rows["pcg-1000"][8]  # the same solution
    sizes = [line for line in lines if line.startswith("n = ")]
    assert [line.split(":")[0] for line in sizes] == ["n = 60", "n = 120", "n = 240"]
    assert "Cholesky" in lines[-1] or "no crossing in sight" in lines[-1]


def test_without_cholesky_the_report_says_that_it_was_not_run() -> None:
    lines = list(report("hypercube", 240, Conditions(0.2, 1e-4, 0.0, lapack=False), ["gbcd"], False))

    assert lines[1].endswith("not run (--no-lapack); it would take 0.00 GB")
    assert lines[-1].split()[0] == "gbcd"


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        (lambda n: 9.0 * n**2, "gbcd becomes faster than Cholesky between n = 5 and 10, at about 9"),
        (
            lambda n: 30.0 * n**2,
            GROWTH.format(2.0) + "gbcd becomes faster than Cholesky at about n = 30, by extrapolation",
        ),
        (lambda n: 0.5 * n**2, "gbcd is faster than Cholesky at n = 3 already"),
        (lambda n: 2.0 * n**3, GROWTH.format(3.0) + "no crossing in sight"),
    ],
)
def test_a_crossing_is_interpolated_between_two_sizes_or_called_an_extrapolation(seconds: Any, sentence: str):
    assert crossing("gbcd", {n: (float(n**3), seconds(n)) for n in (10, 5, 3)}) == sentence


def test_the_comparison_of_variances_and_samples_has_a_line_per_solver_and_their_errors():
    split = data.load("hypercube", n=300, d=3, noise=0.1).scaled()
    kernel = kernels.make("se-ard", 3)
    theta = torch.tensor([0.0, 0.0, 0.0, 0.0, -2.0], dtype=torch.float64)
    task = Problem(split.train, kernel, theta)
    lines = list(exact_answers.report(task, split.test.X[:20], exact_answers.Work(20, 4, 0.01, 1e-4, 0.0), True, True))

    table = {line[:24].strip(): line[24:].split() for line in lines[2:]}
    assert list(table) == [
        "gbcd, mean alone", "gbcd, all together", "pcg, all together", "GPyTorch, CG and LOVE", "gbcd, exact bands",
        "cholesky, one factor",
    ]  # fmt: skip
    for name in ("gbcd, all together", "pcg, all together", "gbcd, exact bands", "cholesky, one factor"):
        assert float(table[name][3]) < 1e-2  # of the mean, in noise standard deviations
        assert float(table[name][4]) <= 0.0102
        assert "times the entries of the mean alone" in " ".join(table[name])
    assert float(table["GPyTorch, CG and LOVE"][3]) < 0.5


def test_bands_of_all_rows_score_as_a_dense_gp_and_those_of_few_rows_do_not():
    split = data.load("hypercube", n=300, d=2, noise=0.1).scaled()
    theta = torch.tensor([0.0, -1.5, -1.5, -2.0], dtype=torch.float64)
    lines = list(exact_answers.bands_report(Problem(split.train, kernels.make("se-ard", 2), theta), split.test, 1e-3))

    table = {line[:20].strip(): [float(cell) for cell in line[20:].split()] for line in lines}
    assert table["gbcd, all rows"] == pytest.approx(table["dense GP"], abs=2e-3)
    assert table["gbcd, 33 rows"][0] > table["dense GP"][0] + 0.05
    assert table["gbcd, 33 rows"][3] == pytest.approx(table["dense GP"][3], abs=1e-3)  # the mean is the same
