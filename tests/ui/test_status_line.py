"""The line of numbers of a run: which three are always shown, for every family."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from gpexplorer import Run, Spec
from gpexplorer.ui.playback import readings
from gpexplorer.ui.playback.readings import status_numbers
from gpexplorer.ui.playback.status import Status
from gpexplorer.ui.text import number
from gpexplorer.views.runs.convergence import Convergence
from gpexplorer.views.saved_page.recorded_figures import facts

FAMILIES = ["cholqr", "gbcd", "grief", "gpcv-admm", "scgd", "vecchia", "ml"]


@pytest.mark.parametrize("method", FAMILIES)
def test_the_objective_the_error_and_the_seconds_are_always_shown(method: str):
    """Only a label that began with "objective" was: five of six families showed two numbers."""
    run = Spec(method, data={"name": "snelson-like", "n": 40}, kernel="se").open()
    for _ in range(3):
        run.advance()

    shown = [fact for fact in status_numbers(run, 2, None, can_undo=False).cells if fact.is_first]

    assert shown[0].about == run.method.channels[0].axis
    assert [fact.label for fact in shown[1:]] == ["SMSE on test rows", "seconds of work"]
    assert len(shown[0].label) <= 30  # else it needs a line of its own
    assert shown[0].label.endswith("[nat]") == shown[0].about.endswith("[nat]")
    assert shown[0].value == number(getattr(run.trace[2].step.info, run.method.channels[0].name)) != "—"
    run.close()


def test_the_objective_of_the_start_is_that_of_the_picture_of_convergence():
    """The picture showed 516 nat, and the number beside it was a dash."""
    run = Spec("cholqr", {"num_inducing": 5}, {"name": "snelson-like", "n": 40}, kernel="se").open()
    run.advance()
    view = Convergence()
    assert view.applies(run)

    [_, _, objective, *_] = status_numbers(run, 0, None, can_undo=False).cells

    assert objective.label == "objective F [nat]"
    assert objective.value == number(view.data(run, 0)["now"]["y"].item())
    run.close()


def test_a_number_that_is_not_shown_unfolds():
    status = Status()
    assert status.line.css_classes == ["few"]
    status.unfold()
    assert status.line.css_classes == []


def test_a_score_of_an_earlier_step_says_its_step(monkeypatch: pytest.MonkeyPatch):
    """However long ago it was, and in the words of a saved page. A score is looked for behind the rows of the table."""
    monkeypatch.setattr(readings, "TABLE_ROWS", 1)
    run = Spec("cholqr", {"num_inducing": 5}, {"name": "snelson-like", "n": 40}, kernel="se").open()
    for _ in range(4):
        run.advance()
    assert [fact.value for fact in status_numbers(run, 3, None, can_undo=False).cells[3:5]] == ["—", "—"]

    scores = [run.scores(1)[name] for name in ("smse", "snlp")]

    now, later = (status_numbers(run, at, None, can_undo=False).cells[3:5] for at in (1, 3))
    assert [fact.value for fact in now] == [number(score) for score in scores]
    assert [fact.value for fact in later] == [f"{number(score)} at step 1" for score in scores]
    assert [facts(run, [at])[0]["SMSE"] for at in (1, 3)] == [now[0].value, later[0].value]
    assert status_numbers(run, 0, None, can_undo=False).cells[3].value == facts(run, [0])[0]["SMSE"] == "—"
    run.close()


def test_no_score_is_looked_for_where_there_are_no_test_rows():
    """Each number would otherwise walk through all records, of which a long run has a hundred thousand."""
    split = Spec("cholqr", data={"name": "snelson-like", "n": 40}, kernel="se", split="all").open().split
    without_records = cast(Run, SimpleNamespace(split=split, trace=None))
    assert readings._newest_score(without_records, 100_000, "smse") == "—"
