"""Two runs in step, without a browser: places, settings that differ, pictures at both records, and what is freed."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec
from gpexplorer.errors import PosteriorError
from gpexplorer.methods.inducing.selection.unsupervised import LargestVariance
from gpexplorer.runs.studies.comparison import Finished, aligned
from gpexplorer.ui.panels.pair_panel import OPEN_RUN, PairPanel
from gpexplorer.ui.session import Session
from gpexplorer.views.runs.convergence import Convergence
from saved_pages import frames_of

ROWS = {"name": "snelson-like", "n": 60}
SPEC = Spec("cholqr", {"num_inducing": 5}, ROWS, kernel="se", seed=1)


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session(SPEC)
    session.open()
    session.player.run_to(6)
    wait(lambda: session.run is not None and session.run.done == 6)
    yield session
    session.close()


def wait(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def shown(panel: PairPanel, at: str) -> list[str]:
    """The heads of both sides once this place is drawn."""
    wait(lambda: panel.update() or re.search(rf"\bat {at}\b", str(panel.note.object)))
    return [str(head.object) for head in panel.heads]


def test_places_of_runs_of_different_length_and_speed():
    slow = pd.DataFrame({"index": [0, 1, 2], "seconds": [1.0, 2.0, 4.0]})
    fast = pd.DataFrame({"index": [0, 1, 2, 3], "seconds": [0.5, 1.0, 1.5, 2.5]})

    steps, by_step = aligned([slow, fast], "step")
    seconds, by_seconds = aligned([slow, fast], "seconds")

    assert (steps.tolist(), by_step.tolist()) == ([0, 1, 2, 3], [[0, 0], [1, 1], [2, 2], [2, 3]])
    assert seconds.tolist() == [0.5, 1.0, 1.5, 2.0, 2.5, 4.0]
    assert by_seconds.tolist() == [[0, 0], [0, 1], [0, 2], [1, 2], [1, 3], [2, 3]]
    assert aligned([slow, fast], "step", most=2)[0].tolist() == [0, 3]


def test_scores_of_runs_on_different_rows_are_not_to_be_compared(session: Session):
    for rows, split, are_others in ((ROWS, 0, False), (ROWS, 1, True), ({"name": "sin-product", "n": 40}, 0, True)):
        kept = replace(SPEC, data=rows, split=split).open()
        kept.finish(steps=2)
        panel = PairPanel(session, lambda kept=kept: {"kept": Finished.of(kept)})
        panel.left.value, panel.right.value = OPEN_RUN, "kept: kept"
        panel.begin()

        shown(panel, "step 6")

        assert ("different rows: their scores cannot be compared" in panel.note.object) == are_others
        panel.close()


def test_two_runs_move_together_and_say_how_they_differ(session: Session):
    other = SPEC.open()
    kept = Spec("cholqr", {"num_inducing": 4}, ROWS, kernel="se", seed=1).open()
    kept.finish(steps=3)
    other.finish(steps=6)
    panel = PairPanel(session, lambda: {"<b>four</b>": Finished.of(kept)})
    panel.left.value, panel.right.value = OPEN_RUN, "kept: <b>four</b>"

    panel.begin()
    left, right = shown(panel, "step 6")

    assert "Inducing points m = 5" in left
    assert "Inducing points m = 4" in right
    assert "&lt;b&gt;four&lt;/b&gt;" in right
    assert "<span>step</span><b>6</b>" in left
    assert f"<span>step</span><b>{kept.done}</b>" in right  # it ended before, and stays there
    panel.place.value = 2
    shown(panel, "step 2")
    for number, run in enumerate((other, kept)):
        live = panel._charts[number]["fit"]._live
        [curve] = [s.data for s in live.figure.select({"name": "mean"}) if hasattr(s, "data")]
        assert live.figure.name == f"Data and prediction, {panel._worker.sides[number].name}, step 2"
        np.testing.assert_allclose(curve["y"], run.plot("fit", 2).layers["mean"]["y"], atol=1e-3)
        ghost = panel._charts[number]["convergence"]._live.figure.select_one({"name": "ghost"})
        assert len(ghost.data["x"]) > 1
    assert all(len(figures) == 2 for figures in panel._figures)
    check_axes(panel)

    worker = panel._worker
    panel.close()
    worker.thread.join(20)
    assert not worker.thread.is_alive()
    assert worker.runs() == {}


def check_axes(panel: PairPanel) -> None:
    """What shows the same quantity has the same axes at every place, also after one figure was zoomed for a while."""

    def ends(key: str) -> list[list[float]]:
        ranges = [(charts[key]._live.figure.x_range, charts[key]._live.figure.y_range) for charts in panel._charts]
        return [[end for each in pair for end in (each.start, each.end)] for pair in ranges]

    for place in (0, 4):
        panel.place.value = place
        shown(panel, f"step {place}")
        for key in ("fit", "convergence"):
            left, right = ends(key)
            assert left == right
    zoomed = panel._charts[0]["fit"]._live.figure.x_range
    zoomed.update(start=1.0, end=2.0)
    panel.place.value = 5
    shown(panel, "step 5")
    left, right = ends("fit")
    assert left[:2] == [1.0, 2.0]
    assert right[0] < 1.0 < 2.0 < right[1]
    assert left[2:] == right[2:]


def test_scores_are_those_of_the_place_shown_and_of_each_place_of_the_saved_page(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("gpexplorer.ui.playback.open_run.SCORING_SHARE", -1.0)  # no step is scored when it is taken
    panel = PairPanel(session, dict)
    panel.right.value = "method: random"
    panel.begin()
    for at in (6, 2):
        panel.place.value = at
        heads = shown(panel, f"step {at}")
        for head, run in zip(heads, panel._worker.runs().values(), strict=True):
            assert f"<span>SMSE</span><b>{run.scores(at)['smse']:.4g}</b>" in head
    with ThreadPoolExecutor(1) as thread:  # tests before this one may have left a loop in theirs
        page = thread.submit(asyncio.run, panel._page()).result().getvalue().decode()
    panel.close()

    facts = [each for run in frames_of(page)["runs"] for each in run["facts"]]
    assert len(facts) == 14
    assert all("at step" not in each["SMSE"] + each["SNLP"] for each in facts)
    assert len({each["SMSE"] for each in facts}) > 7


def test_a_run_that_ended_before_the_other_says_where_and_one_that_was_cut_short_says_why(
    session: Session, monkeypatch: pytest.MonkeyPatch
):
    def say(panel: PairPanel, at: str) -> str:
        panel.begin()
        shown(panel, at)
        return str(panel.note.object)

    def fail(*_: object) -> None:
        raise PosteriorError("K is <singular>.")

    few = replace(SPEC, method="random", settings={"num_inducing": 4, "learn": False}).open()
    few.finish()
    panel = PairPanel(session, lambda: {"<few>": Finished.of(few)})
    panel.right.value = "kept: <few>"
    assert say(panel, "step 6") == "The open run at step 6; &lt;few&gt; ended at step 4."
    panel.place.value = 3
    shown(panel, "step 3")
    assert panel.note.object == "Both runs at step 3."
    panel.right.value = "method: greedy-variance"
    with monkeypatch.context() as patch:
        patch.setattr("gpexplorer.ui.panels.pair_panel.MOST_SECONDS", 0.0)
        cut = say(panel, "step 1")
    with monkeypatch.context() as patch:
        for choice in ("choose", "choose_several"):
            patch.setattr(LargestVariance, choice, fail)
        failed = say(panel, "step 6")
    panel.close()

    title = "Greedy conditional variance"
    assert cut == " ".join(
        ["Both runs at step 1.", *(f"{name} took 1 of 6 steps in 0 s, the most." for name in ("The open run", title))]
    )
    assert re.fullmatch(
        rf"The open run at step 6; {title} ended at step \d\. {title}: .*K is &lt;singular&gt;\..*", failed
    )


def test_a_method_takes_as_many_steps_on_the_same_rows(session: Session):
    panel = PairPanel(session, dict)
    assert panel.right.value == "method: greedy-variance"  # among the methods of the family, one that is usual
    panel.right.value = "method: random"
    panel.begin()
    shown(panel, "step 6")

    [left, right] = panel._worker.runs().values()

    assert left.done == 6
    assert right.method.key == "random"
    assert right.spec.data == left.spec.data
    panel.also.value = "landscape"  # only CholQR has it
    wait(lambda: panel.update() or len(panel._figures[0]) == 3)
    assert len(panel._figures[1]) == 2
    panel.close()


def test_an_open_run_without_steps_gets_a_sentence():
    session = Session(SPEC)
    panel = PairPanel(session, dict)
    panel.begin()
    assert "no steps yet" in panel.note.object
    session.close()


def test_the_best_run_before_is_drawn_behind_a_run_on_the_same_rows(session: Session):
    run = Spec("cholqr", {"num_inducing": 7}, ROWS, kernel="se", seed=1).open()
    run.finish(steps=2)
    others = []
    for m, data in ((3, ROWS), (5, ROWS), (6, {**ROWS, "n": 50})):
        other = Spec("cholqr", {"num_inducing": m}, data, kernel="se", seed=1).open()
        other.finish(steps=4)
        others.append(Finished.of(other))
    view = next(view for view in [Convergence()] if view.applies(run))
    view.earlier = tuple(others)

    layers = view.data(run, 1)

    best = min(others[:2], key=lambda earlier: earlier.steps["objective"].iloc[-1])
    assert layers["ghost"]["y"].tolist() == best.steps["objective"].dropna().tolist()
    assert "grey: CholQR swaps with Inducing points m = " in layers["series"].attrs["title"]
    view.channel = "coverage95"
    without = view.data(run, 1)
    assert without["ghost"].empty
    assert list(without) == list(layers)  # a layer that came or went would have the whole figure drawn anew

    session.change(Spec("cholqr", {"num_inducing": 6}, ROWS, kernel="se", seed=1))
    session.player.run_to(2)
    wait(lambda: session.run is not None and session.run.method.num_inducing == 6)
    views = {view.key: view for view in session.player._open_run.summary.views}
    assert [earlier.spec.settings["num_inducing"] for earlier in views["convergence"].earlier] == [5]
