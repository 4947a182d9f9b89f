"""A public set by its name, a table of one's own, and a bad one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import expect

from pages import Seen, until

pytestmark = pytest.mark.ui


def write_csv(path: Path, rows: int = 120, d: int = 8, seed: int = 0) -> Path:
    """A table of d inputs and a target that depends on two of them, far from the origin."""
    rng = np.random.default_rng(seed)
    X = rng.normal(50.0, 3.0, (rows, d))
    y = 1000.0 + 5.0 * np.sin(X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=rows)
    header = ",".join(f"input{i}" for i in range(d)) + ",target"
    np.savetxt(path, np.column_stack([X, y]), delimiter=",", header=header, comments="", fmt="%.6f")
    return path


def upload(seen: Seen, path: Path) -> None:
    seen.page.locator("input[type=file]").first.set_input_files(path)


def test_a_csv_of_eight_columns_plays(anywhere: Seen, tmp_path: Path):
    seen = anywhere
    upload(seen, write_csv(tmp_path / "mine.csv"))
    expect(seen.page.get_by_text("120 rows, 9 columns")).to_be_visible()

    seen.press("Use these columns")

    expect(seen.page.get_by_text("108 training rows, 12 test rows, 8 inputs")).to_be_visible()
    until(lambda: seen.fact("step") == "0")
    seen.press("Play or pause")
    until(lambda: seen.step >= 4)
    assert seen.number("SMSE") < 1.5


def test_a_bad_csv_becomes_a_sentence_and_the_page_lives_on(seen: Seen, tmp_path: Path):
    bad = tmp_path / "bad.csv"
    bad.write_text("a,b\n1,2\n3\n4,5,6\n")

    upload(seen, bad)

    expect(seen.page.locator(".MuiAlert-message .said")).to_contain_text("bad.csv")
    seen.press("Play or pause")
    until(lambda: seen.step >= 2)


def test_a_file_is_read_again_after_others_were_refused_and_stays_where_one_goes_back(anywhere: Seen, tmp_path: Path):
    seen, mine, book = anywhere, write_csv(tmp_path / "mine.csv", d=2), tmp_path / "book.xlsx"
    page, refusal = seen.page, seen.page.locator(".MuiAlert-message .said")
    book.write_bytes(b"PK\x03\x04")
    use = page.get_by_role("button", name="Use these columns")
    upload(seen, mine)
    use.click()
    expect(page.get_by_text("108 training rows, 12 test rows, 2 inputs")).to_be_visible()
    expect(use).to_be_hidden()

    upload(seen, book)
    expect(refusal).to_contain_text("spreadsheet")
    expect(page.get_by_text("Uploaded book.xlsx")).to_be_visible()  # the widget takes no file before
    expect(page.get_by_role("button", name="Choose columns")).to_be_hidden()
    upload(seen, mine)
    expect(use).to_be_visible()
    expect(refusal).to_be_hidden()
    seen.press("Close: leave the rows")
    expect(use).to_be_hidden()
    until(lambda: page.locator("input[type=file]").first.evaluate("(chosen) => chosen.value") == "")  # after 2 s
    upload(seen, mine)
    expect(use).to_be_visible()

    until(lambda: "rows=own" in page.evaluate("location.search"))
    page.get_by_label("Data (rows × inputs)", exact=True).select_option("sin-product · 400 × 2")
    expect(page.get_by_text("360 training rows")).to_be_visible()
    until(lambda: "data=sin-product" in page.evaluate("location.search"))
    page.go_back()
    expect(page.get_by_text("108 training rows, 12 test rows, 2 inputs")).to_be_visible()
    page.reload()
    expect(refusal).to_contain_text("Choose your file again")


def test_kin40k_by_its_name_plays_in_eight_dimensions(anywhere: Seen):
    seen = anywhere
    seen.unfold("Data")
    seen.page.get_by_label("Data (rows × inputs)", exact=True).select_option("kin40k · 40,000 × 8")

    expect(seen.page.get_by_text("36,000 training rows, 4,000 test rows, 8 inputs")).to_be_visible()
    until(lambda: seen.fact("step") == "0")
    seen.press("Play or pause")
    until(lambda: seen.step >= 3)
    assert seen.number("SMSE") < 1.1
