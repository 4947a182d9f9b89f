"""A messy file on the page: upload, columns, a run of it, a program that prints its number, and predictions."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest
from playwright.sync_api import expect

from messy_table import messy_csv
from pages import Seen, until

pytestmark = [pytest.mark.ui, pytest.mark.panels]


def test_a_messy_file_is_opened_and_a_program_prints_the_number_of_its_run(
    anywhere: Seen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    seen, page = anywhere, anywhere.page
    file = tmp_path / "messy.csv"
    file.write_bytes(messy_csv(rows=150))
    (tmp_path / "empty.csv").write_bytes(b"")

    page.locator("input[type=file]").first.set_input_files(tmp_path / "empty.csv")
    expect(page.locator(".said")).to_contain_text("empty (0 bytes)")
    expect(page.get_by_text("Uploaded empty.csv")).to_be_visible()  # the widget takes no file before
    page.locator("input[type=file]").first.set_input_files(file)
    expect(page.get_by_text("150 rows, 8 columns")).to_be_visible()
    expect(page.get_by_text("only counts the rows")).to_be_visible()
    assert page.get_by_label("colour", exact=True).is_checked()
    assert not page.get_by_label("id", exact=True).is_checked()
    page.get_by_label("Search columns").fill("whe")
    expect(page.get_by_label("colour", exact=True)).to_be_hidden()
    page.get_by_label("Search columns").fill("")
    assert page.get_by_label("when", exact=True).is_checked()
    page.get_by_label("smiles", exact=True).check()
    seen.press("Use these columns")
    expect(page.get_by_text(re.compile(r"\d+ training rows, \d+ test rows, 6 inputs"))).to_be_visible()
    expect(page.get_by_label("Data (rows × inputs)").locator("option:checked")).to_contain_text("messy.csv")

    seen.unfold("Run")
    noise = page.get_by_label("or after", exact=True)
    noise.fill("0,125")
    noise.press("Enter")
    expect(noise).to_have_value("0.125")
    until(lambda: seen.fact("step") == "0")
    seen.press("One step")
    until(lambda: seen.step >= 1)

    page.get_by_role("button", name="Link, code and files").click()
    code = page.locator("div", has_text="import gpexplorer as gpx").last
    until(lambda: "finish(steps=1)" in code.inner_text())
    shown = seen.number("SMSE")
    monkeypatch.chdir(tmp_path)
    printed: list[float] = []
    exec(re.sub(r"\bprint\(", "printed.append(", code.inner_text()), {"printed": printed})
    assert printed[0] == pytest.approx(shown, rel=1e-3)
    check_predictions(seen, file)


def test_the_rows_of_a_group_are_set_aside_together(anywhere: Seen, tmp_path: Path):
    seen, page, rows, size = anywhere, anywhere.page, 240, 8
    file = tmp_path / "patients.csv"
    lines = [f"{i * 37 % 101 / 10},P{i % (rows // size):02d},{i * 53 % 97 / 10}" for i in range(rows)]
    file.write_text("\n".join(["dose,patient,outcome", *lines]))

    page.locator("input[type=file]").first.set_input_files(file)
    expect(page.get_by_text("240 rows, 3 columns")).to_be_visible()
    expect(page.get_by_label("patient", exact=True)).to_be_enabled()
    page.get_by_label("Rows that belong together", exact=True).select_option("patient")
    expect(page.get_by_label("patient", exact=True)).to_be_disabled()
    seen.press("Use these columns")

    divided = page.get_by_text(re.compile(r"\d+ training rows, \d+ test rows, 1 input"))
    until(lambda: sum(map(int, re.findall(r"(\d+) t", divided.inner_text()))) == rows)
    test = int(re.findall(r"(\d+) test", divided.inner_text())[0])
    assert test > 0
    assert test % size == 0


def check_predictions(seen: Seen, file: Path) -> None:
    """The open run predicts the rows of a file, and the table leaves the page as CSV."""
    page = seen.page
    page.get_by_role("button", name="Predict: new rows by the run on the screen").click()
    expect(page.get_by_text("New rows (at most")).to_be_visible()
    page.locator("label", has_text="New rows (at most").locator("input[type=file]").set_input_files(file)
    with page.expect_download() as download:
        page.get_by_role("button", name="predictions.csv").click()
    table = pd.read_csv(download.value.path())
    assert len(table) == 150
    assert table["why"].str.contains("filled: ").sum() == 4  # rows without a size, which are filled as in training
    assert (table["sd"] > 0.0).all()
    assert table["mean"].notna().all()
