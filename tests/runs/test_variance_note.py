"""Variances that are bounds are called bounds beside the scores: on the command line, in the status line, in a race."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpexplorer import Spec
from gpexplorer.__main__ import main
from gpexplorer.runs.studies.race import Race
from gpexplorer.ui.panels import race_panel
from gpexplorer.ui.playback import readings

SMALL = {"learn": False, "block": 10, "coarse": 10, "max_iterations": 300, "bands": "rows"}
DATA = {"name": "hypercube", "n": 80, "d": 2, "noise": 0.2}
NOTE = "upper bound from 30 rows"


def spec(rows: int, method: str = "gbcd") -> Spec:
    return Spec(method, {**SMALL, "variance_rows": rows} if method == "gbcd" else {}, data=DATA, kernel="se")


def test_a_run_says_from_how_many_rows_its_variances_are_bounds():
    assert spec(30).open().variance_note == NOTE
    assert spec(0).open().variance_note == ""
    assert spec(2000).open().variance_note == ""  # more than there are: all rows are used, the variance is exact
    assert Spec("gbcd", {**SMALL, "variance_rows": 30, "bands": "auto"}, DATA).open().variance_note == ""  # few rows
    assert Spec("subset-of-data", data=DATA, kernel="se").open().variance_note == ""


def test_a_run_that_has_not_converged_says_that_its_variances_are_estimates():
    for rows, used in ((30, 30), (0, 72)):
        run = spec(rows).open()
        run.finish(steps=1)
        assert run.variance_note == f"estimated from {used} rows: the solver has not converged"
        assert run.finish().reason == "converged"
        assert run.variance_note == (NOTE if rows else "")


def test_the_status_line_says_so_beside_the_snlp():
    for rows, label in ((30, f"SNLP on test rows (variance: {NOTE})"), (0, "SNLP on test rows")):
        run = spec(rows).open()
        run.finish()
        numbers = readings.status_numbers(run, len(run.trace) - 1, None, False)
        assert label in [fact.label for fact in numbers.cells]


def test_the_board_of_a_race_says_so_beside_the_snlp():
    race = Race({"greedy": spec(30), "all rows": spec(0)})
    race.finish(seconds=2.0)

    html = race_panel.standing(race).table

    assert race.variance_notes() == {"greedy": NOTE, "all rows": ""}
    greedy, all_rows = (next(line for line in html.split("<tr") if name in line) for name in ("greedy", "all rows"))
    assert f"({NOTE})" in greedy
    assert "upper bound" not in all_rows


def test_the_command_line_says_so_beside_the_scores(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "spec.json").write_text(spec(30).to_json())

    with pytest.raises(SystemExit):
        main(["run", str(tmp_path / "spec.json"), "--out", str(tmp_path / "store")])

    output = capsys.readouterr().out
    scored = {line.split()[0]: line for line in output.splitlines() if line.split()}
    for name in ("snlp", "nlpd", "coverage68", "coverage95"):
        assert scored[name].endswith(f"  (variance: {NOTE})"), output
    assert NOTE not in scored["smse"]
