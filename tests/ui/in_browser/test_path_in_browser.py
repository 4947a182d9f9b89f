"""From a file to a decision: a messy file is opened, asked about, answered, used, predicted with, and saved.

The same is tested for three files, without a browser, in `test_path.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import expect

from gpexplorer import load_posterior
from gpexplorer.runs.studies.prediction_table import predictions_of_file
from messy_table import PATHS
from pages import PATIENCE, Seen

pytestmark = pytest.mark.ui


def test_a_messy_file_becomes_a_decision(anywhere: Seen, tmp_path: Path):
    seen = anywhere
    seen.is_spent = True
    for name in ("houses.csv", "sensor.csv"):
        look_at_columns(seen, tmp_path, name)
    write, _, target = PATHS["sensor.csv"]
    (tmp_path / "new.csv").write_bytes(write(rows=30, seed=11, new=True))
    seen.press("Use these columns")
    expect(seen.page.get_by_role("group", name="Input columns")).to_have_count(0)
    expect(seen.page.get_by_role("heading", name=f"What predicts {target}?", level=1)).to_be_visible()
    expect(seen.page.get_by_role("button", name=f"What predicts {target}?")).to_be_visible()
    ask(seen)
    check_questions(seen)
    seen.press("Use it")
    expect(seen.page.get_by_text(re.compile(f"model.* predicts? {target}|predict {target}")).first).to_be_visible()
    check_predictions(seen, tmp_path)


def look_at_columns(seen: Seen, folder: Path, name: str) -> None:
    """Upload a file, and look at its columns."""
    write, size, _ = PATHS[name]
    (folder / name).write_bytes(write())
    seen.page.locator("input[type=file]").first.set_input_files(folder / name)
    expect(seen.page.get_by_text(size)).to_be_visible()
    columns = seen.page.get_by_role("group", name="Input columns")
    box = columns.bounding_box()
    assert box is not None
    assert box["width"] > 900
    assert columns.evaluate("(list) => list.scrollHeight <= list.clientHeight")  # all are seen at once
    expect(seen.page.get_by_text(f"Uploaded {name}")).to_be_visible()  # the widget takes no file before


def ask(seen: Seen) -> None:
    """Ask what predicts the target, with two seconds for the answer."""
    seconds = seen.page.get_by_label(re.compile("^Seconds")).locator("visible=true").first
    seconds.fill("2")
    seconds.press("Tab")
    seen.press("Find out")
    seen.page.get_by_role("button", name="Use it").wait_for(timeout=PATIENCE)


def check_questions(seen: Seen) -> None:
    """The error is promised twice for rows in order of time; a button asks again with other held-out rows."""
    promises = seen.page.locator(".facts", has_text="expected error (RMSE)").locator("b")
    expect(promises).to_have_count(2)
    between, beyond = (float(text.strip("± ").replace(",", "")) for text in promises.all_text_contents())
    assert between < beyond
    expect(seen.page.get_by_text(re.compile('"temperature" is −999 in')).last).to_be_visible()
    seen.press("Hold out single rows")
    expect(promises).to_have_count(0)
    expect(promises).to_have_count(1, timeout=PATIENCE)
    expect(seen.page.get_by_role("button", name="Hold out as the rows suggest")).to_be_visible()


def check_predictions(seen: Seen, folder: Path) -> None:
    """New rows are predicted on the page with the numbers that the saved model has."""
    page = seen.page
    with page.expect_download() as model:
        page.get_by_role("button", name=re.compile("^Save the model")).click()
    model.value.save_as(folder / "model.safetensors")
    page.get_by_role("button", name="Predict", exact=True).first.click()
    expect(page.get_by_text("New rows (at most")).to_be_visible(timeout=PATIENCE)
    page.locator("label", has_text="New rows (at most").locator("input[type=file]").set_input_files(folder / "new.csv")
    expect(page.get_by_text("Predicted by the trained answer")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(re.compile("30 of 30 rows predicted"))).to_be_visible()
    with page.expect_download() as table:
        page.get_by_role("button", name="predictions.csv").click()
    shown = pd.read_csv(table.value.path())
    saved = pd.concat(predictions_of_file(load_posterior(folder / "model.safetensors"), folder / "new.csv"))
    for column in ("mean", "sd", "sd_f", "lower_95", "upper_95"):
        np.testing.assert_allclose(shown[column], saved[column], rtol=1e-10)
    assert shown["why"].tolist() == saved["why"].tolist()
    page.set_viewport_size({"width": 390, "height": 844})
    reason = page.locator("td.why", has_text=re.compile(r"\w")).first
    reason.wait_for()
    box = reason.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= 390  # below the numbers of its row, so that it is seen without scrolling
    assert box["height"] < 60
