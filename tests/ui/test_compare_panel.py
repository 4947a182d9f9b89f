"""What the compare panel shows, without a browser: the table, a baseline, a sweep that is cut short, values typed."""

from __future__ import annotations

import asyncio
import re
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec, Store, data
from gpexplorer.errors import SettingError
from gpexplorer.runs.studies import comparison
from gpexplorer.runs.studies.comparison import Finished
from gpexplorer.runs.studies.sweep import Swept, around, grid, sweep
from gpexplorer.ui.panels.compare_panel import ComparePanel
from gpexplorer.ui.panels.sweep_panel import SweepPanel, SweepWorker, values
from gpexplorer.ui.session import Session
from gpexplorer.ui.tables import RunTable, Steps, html_table, rows
from gpexplorer.ui.text import number

ROWS = {"name": "hypercube", "n": 60, "d": 2, "noise": 0.2, "seed": 1}


def ended(**settings: object) -> Finished:
    spec = Spec("cholqr", {"num_inducing": 5, **settings}, ROWS, budget={"steps": 2})
    run = spec.open()
    run.finish()
    return Finished.of(run)


@pytest.fixture(scope="module")
def runs() -> dict[str, Finished]:
    return {"<b>five</b>": ended(), "four": ended(num_inducing=4)}


def test_names_on_the_board_are_data_and_titles_our_own(runs: dict[str, Finished]):
    board = RunTable()
    board.fill(runs, "smse", None, baseline="four")

    assert all(name.startswith("c") for name in board.table.value.columns)
    assert "<b>five</b>" in board.table.value["c0"].tolist()
    assert all("<" not in title for title in board.table.titles.values())
    board.table.selection = [0]
    assert board.selected == [board.table.value["c0"].iloc[0]]


def test_the_steps_are_numbers_with_a_format_of_the_browser_and_their_texts_are_no_markup():
    steps = Steps()
    steps.update(pd.DataFrame({"step": [10, 9], "phase": ["<b>", ""], "row out": [12.0, np.nan]}))

    assert [kind.kind for kind in steps.table.value.dtypes.drop("c1")] == ["i", "f"]
    assert set(steps.table.formatters) == {"c0", "c2"}
    steps.update(pd.DataFrame({"<i>": ["a"], "objective": [-1.5]}))  # of another method
    assert set(steps.table.formatters) == {"c1"}
    assert steps.table.titles == {"c0": "&lt;i&gt;", "c1": "objective"}


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests of words and tables: each run that is added draws two pictures again, which takes half a second."""
    monkeypatch.setattr(ComparePanel, "_draw_pictures", lambda panel: None)


@pytest.mark.usefixtures("without_pictures")
def test_a_note_says_what_cannot_be_compared(runs: dict[str, Finished]):
    session = Session(Spec("cholqr", {}, ROWS))
    panel = ComparePanel(session)
    transformed = Spec("cholqr", {"num_inducing": 5}, ROWS, budget={"steps": 2}, target_transform="yeo-johnson").open()
    transformed.finish()

    try:
        for name, run in runs.items():
            panel.add(name, run)
        alike = panel.note.object
        panel.add("transformed", Finished.of(transformed))
        different = panel.note.object
        panel.add("twin", panel.runs[comparison.best(panel.runs)["smse"]])
        doubtful = panel.note.object
    finally:
        session.close()

    assert alike.startswith("Best by SMSE")
    assert "The runs" not in alike
    assert "6 test rows cannot tell its SMSE from that of" in doubtful
    assert ": compare on more rows or splits." in doubtful
    assert "different transforms of the target; compare scores, not objectives." in different
    assert "data sets or splits" not in different


@pytest.mark.usefixtures("without_pictures")
def test_a_sweep_of_another_spec_replaces_no_row_and_the_same_again_stays_one():
    spec = Spec("cholqr", {}, ROWS, budget={"steps": 1})
    bases = [spec, replace(spec, method="fitc", settings={}), replace(spec, settings={"objective": "pp"})]
    bases += [replace(spec, data={**ROWS, "n": 50}), replace(spec, seed=3), replace(spec, budget={"steps": 2}), spec]
    session = Session(spec)
    panel = ComparePanel(session)
    try:
        for base in bases:
            specs = grid(base, {"num_inducing": [3, 4]}, labels=True)
            panel.add_all({swept.name: swept.finished for swept in sweep(specs)})
        said = panel.note.object
    finally:
        session.close()

    assert len(panel.runs) == 2 * len(set(bases))
    names = [name.replace("Inducing points ", "") for name in panel.runs if name.endswith(("m = 4", "pp", "2 steps"))]
    assert names[:2] == ["CholQR swaps, m = 4", "FITC / SPGP, moving inputs, m = 4"]
    own_words = ("Objective = pp", "at most 2 steps")
    assert names[2:] == [f"CholQR swaps, m = {m}, {own}" for own in own_words for m in (3, 4)]
    assert len([name for name in panel.runs if "seed = 3" in name or "n 50" in name]) == 4
    assert re.search("Best by SMSE: <b>(CholQR swaps|FITC)", said)


def test_saved_pictures_are_called_by_what_they_show(runs: dict[str, Finished]):
    session = Session(Spec("cholqr", {}, ROWS))
    panel = ComparePanel(session)
    panel.small.value = True

    panel.add_all(runs)
    panel.channel.value, panel.over.value, panel.cost.value = "objective", "step", "memory"

    names = [chart._live.figure.name for chart in (panel.curves, panel.front, *panel._small_charts)]
    assert names[:2] == ["Compare, objective F [nat] over step", "Pareto front, SMSE over memory"]
    assert names[2:] == [f"{name}, objective F [nat] over step" for name in runs]
    session.close()


def test_beside_a_baseline_its_own_row_is_even(runs: dict[str, Finished]):
    frame = rows(runs, "smse", None, baseline="four").set_index("run")

    assert frame.loc["four", "seconds ratio"] == 1.0
    assert frame.loc["four", "smse less"] == 0.0
    assert frame.loc["<b>five</b>", "smse less"] == pytest.approx(
        frame.loc["<b>five</b>", "smse"] - frame.loc["four", "smse"]
    )
    assert frame.loc["four", "memory"] == pytest.approx(runs["four"].memory / 1e6)
    assert "smse less" not in rows(runs, "smse", 1)


def test_values_come_as_a_person_writes_them():
    assert values("8, 16,2.5") == [8, 16, 2.5]
    assert values("vfe, true , ") == ["vfe", True]
    with pytest.raises(SettingError, match="list of values is empty"):
        values(" , ")


def test_values_proposed_lie_around_the_present_one_and_within_its_bounds():
    spec = Spec("cholqr", {"num_inducing": 10}, ROWS)

    assert around(spec, "num_inducing") == [5, 10, 20, 40]
    assert around(spec, "seed") == [0, 1, 2, 3]
    assert around(spec, "learn") == [False, True]
    assert set(around(spec, "objective")) == {"vfe", "tight-vfe", "pp"}
    assert around(Spec("cholqr", {"num_inducing": 1}, ROWS), "num_inducing") == [1, 2, 4]
    assert around(Spec("cholqr", {}, ROWS), "num_inducing") == [32, 64, 128, 256]


def test_a_sweep_can_be_stopped_within_a_step():
    specs = {name: Spec("cholqr", {"num_inducing": 5}, ROWS, budget={"steps": 10_000}) for name in ("a", "b")}
    sweeper = SweepWorker(specs, None)
    while sweeper._run is None:
        time.sleep(0.01)
    sweeper.close()
    sweeper.thread.join(timeout=20)

    assert sweeper.over
    done = sweeper.take()
    assert done.name == "a"
    assert done.finished.last["steps"] < 10_000
    assert sweeper.take() is None


@pytest.mark.usefixtures("without_pictures")
def test_kept_runs_are_repeated_on_ten_splits_until_a_person_stops_them(runs: dict[str, Finished]):
    session = Session(Spec("cholqr", {}, ROWS))
    panel = ComparePanel(session)
    sweeps = panel.sweeps
    try:
        sweeps.repeat()
        assert "no kept run of the open data" in sweeps.note.object
        for name, run in runs.items():
            panel.add(name, run)
        assert not panel.families.visible
        sweeps.repeat()
        assert sweeps.note.object == "20 runs remaining."
        assert (sweeps.go.label, sweeps.on_splits.disabled) == ("Stop", True)
        sweeps._worker.thread.join(timeout=60)
        panel.sweeps.update()
    finally:
        session.close()

    assert len(panel.runs) == 20
    assert (sweeps.go.label, sweeps.on_splits.disabled, sweeps.note.object) == ("Sweep", False, "")
    for name, run in runs.items():  # the run on its own split is the same again
        assert panel.runs[name].last["smse"] == run.last["smse"]
        others = [each.spec.split for each_name, each in panel.runs.items() if each_name.startswith(name)]
        assert sorted(others) == list(range(10))
    assert "10 splits" in panel.note.object
    assert re.fullmatch(r"<h2>[^<]*SMSE[^<]*\(sign test over splits, p = [.\d]+\)\.</h2>", panel.note.object)
    assert "different data sets or splits" not in panel.note.object
    mean = sum(run.last["smse"] for name, run in panel.runs.items() if name.startswith("four")) / 10
    assert f"<td>10 splits</td><td>{number(mean)}</td>" in panel.families.object
    panel.channel.value = "snlp"  # the sentence and the table are of the score whose curves are shown
    assert "SNLP" in panel.note.object
    assert "<th>mean SNLP</th>" in panel.families.object


@pytest.mark.usefixtures("without_pictures")
def test_the_rows_of_an_upload_are_divided_again_and_rows_in_memory_are_one_split():
    rng = np.random.default_rng(2)
    arrays = (rng.normal(size=(40, 2)), rng.normal(size=40))
    read, spec = lambda split: data.load(arrays, split=split), Spec("random", {"num_inducing": 4}, {"file": "mine.csv"})
    kept = spec.open(data=read(spec.split))
    kept.finish(steps=1)
    session = Session(spec, read)
    in_memory = Session(Spec("random", {}, {"content": kept.spec.data["content"]}), read)
    try:
        panel = ComparePanel(session)
        panel.add("mine", Finished.of(kept))
        panel.sweeps.repeat()
        panel.sweeps._worker.thread.join(timeout=60)
        panel.sweeps.update()
        refused = ComparePanel(in_memory).sweeps
        refused.repeat()
    finally:
        session.close()
        in_memory.close()

    assert len({run.spec.data["content"] for run in panel.runs.values()}) == 10
    assert "<td>10 splits</td>" in panel.families.object
    assert "given in memory, as one split" in refused.note.object


def test_a_sweep_says_how_long_the_rest_takes_and_keeps_its_failure(monkeypatch: pytest.MonkeyPatch):
    session, now = Session(Spec("cholqr", {}, ROWS)), [100.0]
    monkeypatch.setattr("gpexplorer.ui.panels.sweep_panel.time.monotonic", lambda: now[0])
    added, ended_runs = list[str](), [Swept("a", ended(), "done"), Swept("b", None, "There is no <split> 3.")]
    panel = SweepPanel(session, added.extend, dict)
    worker = SimpleNamespace(over=False, take=lambda: ended_runs.pop(0) if ended_runs else None, close=lambda: None)
    try:
        panel._total = panel._remaining = 5
        panel._begin(lambda: worker)
        now[0] = 120.0
        panel.update()
        assert panel.note.object == "3 runs remaining, about 30 s. There is no &lt;split&gt; 3."
        panel.toggle()
    finally:
        session.close()

    assert added == ["a"]
    assert panel.note.object == "Stopped. 3 runs remaining. There is no &lt;split&gt; 3."


def test_runs_are_handed_over_before_their_first_step():
    seen = []
    [swept] = sweep({"one": Spec("cholqr", {"num_inducing": 5}, ROWS, budget={"steps": 1})}, opened=seen.append)

    assert swept.finished is not None
    assert len(seen) == 1


def test_one_stored_run_that_cannot_be_read_is_named_and_the_others_are_shown(tmp_path: Path):
    store = Store(tmp_path)
    for inducing in (4, 5):
        run = store.open(Spec("cholqr", {"num_inducing": inducing}, ROWS, budget={"steps": 2}))
        run.finish()
        run.close()
    bad = tmp_path / ("<b>" + "0" * 13)
    bad.mkdir()
    (bad / "spec.json").symlink_to("/etc/hostname")
    (bad / "journal.jsonl").write_text("")
    session = Session(Spec("cholqr", {}, ROWS), store=store)
    panel = ComparePanel(session)

    try:
        with ThreadPoolExecutor(1) as thread:  # browser tests leave a running loop in the main thread
            thread.submit(asyncio.run, panel.look_back()).result()
    finally:
        session.close()

    assert len(panel.runs) == 2
    assert "The run &lt;b&gt;0000000000000 cannot be read." in panel.note.object
    assert "spec.json is a link" in panel.note.object
    assert str(tmp_path) not in panel.note.object


def test_a_run_stands_once_in_the_table_and_leaves_it_without_leaving_the_store(tmp_path: Path):
    session = Session(Spec("cholqr", {"num_inducing": 5}, ROWS, kernel="se"), store=Store(tmp_path))
    session.open()
    panel = ComparePanel(session)

    def do(action: Any) -> list[str]:
        with ThreadPoolExecutor(1) as thread:  # browser tests leave a running loop in the main thread
            thread.submit(asyncio.run, action()).result()
        return list(panel.runs)

    def play(steps: int) -> None:
        session.player.run_to(steps)
        end = time.monotonic() + 30
        while session.screen.step < steps:
            assert time.monotonic() < end
            session.take(wait=0.2)

    try:
        play(1)
        kept = do(panel.keep_open)
        assert len(kept) == 1
        assert do(panel.look_back) == kept
        assert do(panel.keep_open) == kept
        assert f"It is in the table already, as {kept[0]}." in panel.note.object
        assert "stay in the store" in panel.forget.description
        panel.board.table.selection = [0]
        panel.forget.clicks += 1
        assert not panel.runs
        [stored] = do(panel.look_back)
        assert panel.runs[stored].test_errors is None
        assert do(panel.keep_open) == [stored]
        assert panel.runs[stored].test_errors is not None  # the run that is open says more than its file
        play(2)
        assert len(do(panel.keep_open)) == 2
    finally:
        session.close()


def test_a_long_reason_beside_numbers_unfolds_and_loses_no_word():
    short, first = "Its 10 seconds are used up.", "The budget of 10 s is used up after 1,204 steps; raise it to go on."
    long = " ".join([first, "Of 3 starts, the kernel's own <b>was</b> taken:", *["it came near"] * 20, "the end."])
    markup = html_table(["", "SMSE", ""], [["a", 0.5, short], ["b", 0.25, long], ["c", 1.0, "x" * 300]])

    assert f'<td class="why">{short}</td>' in markup
    assert (
        f"<details><summary>{first} …</summary>Of 3 starts, the kernel&#x27;s own &lt;b&gt;was&lt;/b&gt; taken"
        in markup
    )
    assert "it came near the end.</details>" in markup
    assert markup.count("x") >= 300
