"""What the page says of a recommendation: which rows it uses, what its best model is, and which controls it names."""

from __future__ import annotations

import re
import time

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec, data
from gpexplorer.recommendation.row_order import plan_in_time
from gpexplorer.ui.inputs.own_file import FileRows
from gpexplorer.ui.panels.recommend_panel import RecommendPanel, reworded
from gpexplorer.ui.session import Session

SPEC = Spec("cholqr", {"num_inducing": 5}, {"name": "hypercube", "n": 90, "d": 1, "seed": 3}, kernel="se")


def file_rows(rows: int) -> FileRows:
    random = np.random.default_rng(1)
    lines = [f"{x:.4f},{np.sin(6.0 * x) + random.normal(0.0, 0.1):.4f}" for x in random.uniform(size=rows)]
    content = "\n".join(["depth,load", *lines]).encode()
    return FileRows("beams.csv", content, data.Choice(target="load", inputs=("depth",)))


@pytest.mark.usefixtures("few_trees")
@pytest.mark.parametrize("is_file", [True, False])
def test_the_panel_says_which_rows_are_used_before_and_after(is_file: bool) -> None:
    session = Session(SPEC)
    panel = RecommendPanel(session)
    try:
        assert "test rows are not used" in panel.note.object
        if is_file:
            session.change_rows({"file": "beams.csv"}, file_rows(70))
        panel.update()
        before = panel.note.object
        assert ("all rows of the file are used" in before) == is_file
        assert ("test rows are not used" in before) == (not is_file)
        panel.seconds.value = 2
        panel.ask()
        end = time.monotonic() + 60
        while not panel.adopt.visible:
            panel.update()
            time.sleep(0.02)
            assert time.monotonic() < end
        learned_from = next(line for line in panel._answer.sentences if "learned from" in line)
        assert ("learned from 70 rows." in learned_from) == is_file
        assert ("test rows were not used" in learned_from) == (not is_file)
        panel.use()
        assert "It has no test rows" in panel.note.object
        panel.forget()
        assert panel.note.object == before
        if is_file:  # and of rows with a name that are opened afterwards
            session.choose(SPEC)
            panel.update()
            assert "test rows are not used" in panel.note.object
    finally:
        panel.close()
        session.close()


@pytest.mark.parametrize("held_out", ["", "time", "groups", "random"])
def test_sentences_name_only_controls_that_can_be_seen(held_out: str) -> None:
    week = np.arange(90.0)
    level = np.cumsum(np.random.default_rng(0).normal(size=90))
    rows = data.load(pd.DataFrame({"week": week, "level": level}), split="all", target="level").train
    plan = plan_in_time(rows, asked=False)
    assert plan is not None
    session = Session(SPEC)
    panel = RecommendPanel(session)
    try:
        panel.held_out.value = held_out
        said = reworded(plan.sentence)
        names = re.findall("“([^”]+)”", said)
        labels = {control.label for control in (panel.held_out, panel.before, panel.prefer) if control.visible}
        assert set(names) <= labels | set(panel.held_out.options)
        assert "later rows" in names
        assert "before=" not in said
    finally:
        panel.close()
        session.close()
