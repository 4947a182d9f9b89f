"""From a file to a decision by the parts of a page, for three messy files; the test in the browser has one of them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from gpexplorer import Spec, data, load_posterior
from gpexplorer.runs.studies.prediction_table import predictions_of_file
from gpexplorer.ui.explorer import START, Explorer
from messy_table import PATHS

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("few_trees", "uploads_here")]
PREDICT = 2  # the place of its panel below the pictures


def wait(page: Explorer, holds: Callable[[], object]) -> None:
    """Let the page follow until this holds."""
    for _ in range(600):
        page.update(wait=0.1)
        if holds():
            return
    raise AssertionError(f"{page.title.object} {page.recommendation.note.object}")


@pytest.mark.parametrize("name", PATHS)
def test_a_messy_file_becomes_a_decision(name: str, tmp_path: Path) -> None:
    write, size, target = PATHS[name]
    content, new = write(), write(rows=30, seed=11, new=True)
    (tmp_path / "new.csv").write_bytes(new)
    page = Explorer(Spec(**START))
    try:
        page.settle()
        page.sources.own.offer(name, content, data.preview(name, content))
        assert size in page.sources.own.summary.object
        page.sources.own._use_columns()
        wait(page, lambda: f">What predicts {target}?</h1>" in page.title.object)
        assert page.recommendation.begin.label == f"What predicts {target}?"

        page.recommendation.seconds.value = 2
        page.recommendation.ask()
        wait(page, lambda: page.recommendation.adopt.visible)
        check_promises(page.recommendation.words.object, in_order_of_time=name == "sensor.csv")

        page.recommendation.use()
        wait(page, lambda: re.search(f"model.* predicts? {target}|predict {target}", page.title.object))
        check_predictions(page, new, tmp_path)
    finally:
        page.close()


def check_promises(words: str, in_order_of_time: bool) -> None:
    """The error is promised, twice for rows in order of time."""
    promises = re.findall(r"<b>± ([^<]+)</b><span>expected error \(RMSE\)", words)
    assert len(promises) == 1 + in_order_of_time
    if in_order_of_time:
        between, beyond = (float(text.replace(",", "")) for text in promises)
        assert between < beyond


def check_predictions(page: Explorer, new: bytes, folder: Path) -> None:
    """New rows are predicted on the page with the numbers that the saved model has."""
    [save] = page.recommendation.files
    (folder / "model.safetensors").write_bytes(save.callback().getvalue())
    page.below.open(PREDICT)
    panel = page.below.panels[PREDICT]
    panel._file = "new.csv", new
    with ThreadPoolExecutor(1) as thread:  # this thread may have a loop already, of a browser test before
        thread.submit(asyncio.run, panel._predict_again()).result()
    wait(page, lambda: panel.counts.object)
    assert "Predicted by the trained answer" in panel.note.object
    assert panel.counts.object.startswith("30 of 30 rows predicted")
    shown = pd.read_csv(panel.csv.callback())
    saved = pd.concat(predictions_of_file(load_posterior(folder / "model.safetensors"), folder / "new.csv"))
    for column in ("mean", "sd", "sd_f", "lower_95", "upper_95"):
        np.testing.assert_allclose(shown[column], saved[column], rtol=1e-10)
    assert shown["why"].tolist() == saved["why"].tolist()
