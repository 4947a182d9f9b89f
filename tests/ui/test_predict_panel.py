"""The panel that predicts a new file with the run on the screen."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.data import Choice
from gpexplorer.errors import DataError
from gpexplorer.ui.panels.predict_panel import PredictPanel
from gpexplorer.ui.session import Session
from messy_table import messy_csv


@pytest.mark.usefixtures("uploads_here")
def test_a_messy_new_file_is_predicted_by_the_open_run_and_can_be_downloaded() -> None:
    choice = Choice("price", ("größe", "colour"), encode=("colour",), decimal=",", missing="drop")
    rows = gpx.data.read_upload("messy.csv", messy_csv(), choice)
    spec = gpx.Spec("cholqr", {"num_inducing": 8}, {"name": "upload", "file": "messy.csv"}, kernel="se-ard")
    session = Session(spec, lambda _: rows)
    panel = PredictPanel(session)
    try:
        session.open()
        end = time.monotonic() + 30
        while session.run is None or not len(session.run.trace):
            assert time.monotonic() < end
            time.sleep(0.02)
        new = "colour;größe\nred;101,5\nblue;999\ngreen;\n".encode("cp1252")
        table = panel.predict("new.csv", new)
        mean, var = session.run.posterior(0, of="y")(np.array([[101.5, 0, 0, 1]]))
        assert table["mean"][0] == pytest.approx(float(mean), rel=1e-12)
        assert table["sd"][0] == pytest.approx(float(var.sqrt()), rel=1e-12)
        assert table["far"][:2].tolist() == [0, 1]
        assert bool(table["mean"].isna()[2])
        panel.show_table("new.csv", table)
        notes = "new.csv is not UTF-8 (byte 0xf6 in line 1); it was read as Windows-1252: check its names."
        assert panel.counts.object.startswith(f"{notes} 2 of 3 rows predicted: ")
        assert "1 far" in panel.counts.object
        assert "<th>price</th>" in panel.head.object
        lines = re.findall(r"<tr>(<td>.*?)</tr>", panel.head.object)
        assert re.findall(r"<td>(.*?)</td>", lines[2]) == ["3", "", "", "", ""]  # only a reason
        decimals = 1 - math.floor(math.log10(np.nanmedian(table["sd"])))
        assert re.findall(r"<td>(.*?)</td>", lines[0])[1] == f"{table['mean'][0]:,.{decimals}f}"
        for file in (pd.read_csv(panel.csv.callback()), pd.read_parquet(panel.parquet.callback())):
            assert file["row"].tolist() == [1, 2, 3]  # as in the table on the page
            assert file["target"].tolist() == ["price"] * 3
        with pytest.raises(DataError, match='no column "größe"'):
            panel.predict("new.csv", b"colour;price\nred;1\n")
    finally:
        panel.close()
        session.close()


@pytest.mark.parametrize(
    ("mean", "sd", "shown"),
    [(351234.4, 20123.0, "351,234"), (0.0123456, 0.00213, "0.0123"), (-21.5, 1.7, "−21.5"), (2.5e-9, 1e-10, "2.5e−09")],
)
def test_predictions_have_as_many_digits_as_their_unit_needs(mean: float, sd: float, shown: str) -> None:
    columns = {"mean": mean, "sd": sd, "sd_f": sd, "lower_95": mean - 2 * sd, "upper_95": mean + 2 * sd, "far": 0}
    table = pd.DataFrame({**columns, "why": ["predicted", "filled: <b>"]})
    panel = PredictPanel(Session(gpx.Spec("cholqr")))
    panel.show_table("new.csv", table)
    assert f"<td>{shown}</td>" in panel.head.object
    assert '<td class="why">filled: &lt;b&gt;</td>' in panel.head.object
    assert panel.counts.object == "2 of 2 rows predicted: 1 filled: &lt;b&gt;."
    panel.close()
    panel._session.close()


def frames(session: Session, panel: PredictPanel, holds: Callable[[], object]) -> None:
    """Take frames, as the page does, until something holds."""
    end = time.monotonic() + 30
    while not holds():
        session.take(0.02)
        panel.update()
        assert time.monotonic() < end


def in_own_loop(story: Coroutine[Any, Any, None]) -> None:
    with ThreadPoolExecutor(1) as thread:  # this thread may have a loop already, of a browser test before
        thread.submit(asyncio.run, story).result()


def test_predictions_name_their_step_and_are_offered_again_when_the_run_has_gone_on() -> None:
    session = Session(gpx.Spec("cholqr", {"num_inducing": 8}, {"name": "friedman1", "n": 60}, budget={"steps": 2}))
    panel = PredictPanel(session)
    header = ",".join(gpx.load({"name": "friedman1", "n": 60}).train.names)

    def wait(holds: Callable[[], object]) -> None:
        frames(session, panel, holds)

    def predict() -> None:
        in_own_loop(panel._predict_again())
        wait(lambda: panel._table is not None)

    async def choose_function() -> None:
        before, end, panel.of.value = panel._table, time.monotonic() + 30, "f"
        while panel._table is None or panel._table is before:
            await asyncio.sleep(0.02)
            assert time.monotonic() < end

    try:
        session.open()
        wait(lambda: session.run is not None and len(session.run.trace))
        panel.update()
        assert not panel.again.visible
        panel._file = "new.csv", f"{header}\n{','.join(['0.5'] * 10)}\n".encode()
        predict()
        panel.update()
        assert "step 0 of CholQR swaps. Nothing has been learned yet: press Play" in panel.note.object
        assert panel.again.visible
        assert panel.again.disabled
        first = float(panel._table["mean"][0])

        session.player.step()
        wait(lambda: session.screen.step == 1)
        panel.update()
        assert not panel.again.disabled
        predict()
        panel.update()
        assert "step 1 of CholQR swaps. The run has not converged: more steps" in panel.note.object
        assert float(panel._table["mean"][0]) != first
        assert panel.again.disabled

        sd = float(panel._table["sd"][0])
        in_own_loop(choose_function())
        assert float(panel._table["sd"][0]) < sd
        session.player.back()
        wait(lambda: session.screen.step == 0)
        predict()
        assert "The run has gone on to step 1: show that step" in panel.note.object
    finally:
        panel.close()
        session.close()


def test_predictions_by_a_run_on_other_rows_go_and_those_by_another_run_say_so() -> None:
    few, more = ({"name": "friedman1", "n": n} for n in (60, 80))
    session = Session(gpx.Spec("cholqr", {"num_inducing": 8}, few))
    panel = PredictPanel(session)
    try:
        session.open()
        frames(session, panel, lambda: session.screen.key)
        first = session.spec
        panel._file = "new.csv", f"{','.join(gpx.load(few).train.names)}\n{','.join(['0.5'] * 10)}\n".encode()
        in_own_loop(panel._predict_again())
        frames(session, panel, lambda: panel._table is not None)
        said = panel.note.object

        key = session.screen.key
        session.change(gpx.Spec("cholqr", {"num_inducing": 9}, few))
        frames(session, panel, lambda: session.screen.key != key)
        panel.update()
        assert panel.note.object == f"{said} Another run is on the screen now: predict again for its predictions."
        session.change(first)
        frames(session, panel, lambda: session.screen.key == key)
        panel.update()
        assert panel.note.object == said
        assert panel.files.visible

        session.change_rows(more)
        frames(session, panel, lambda: session.screen.key != key)
        panel.update()
        assert "predictions of new.csv were removed, because their run was on other rows" in panel.note.object
        assert panel.head.object == panel.counts.object == ""
        assert not panel.files.visible
        assert not panel.again.disabled
    finally:
        panel.close()
        session.close()
