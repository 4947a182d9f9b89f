"""Numbers in sentences are never broken at the end of a line, and what is no number keeps its hyphens."""

from __future__ import annotations

import pytest

from gpexplorer.errors import DataError
from gpexplorer.ui.text import escaped, named, number, sentence, text

NO_NUMBERS = '2021-03-01, n-1, run-2.csv, a1e-2.csv, SE-ARD, -m, 5 - 3, "-5 kg"'


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("between 3.6e-26 and 1E-3 to 1e-1.", "between 3.6e−26 and 1E−3 to 1e−1."),
        ("NLPD -0.675 (-0.944 to -.318)", "NLPD −0.675 (−0.944 to −.318)"),
        ("x=-5, [-1, 2], x^-1", "x=−5, [−1, 2], x^−1"),
        (NO_NUMBERS, escaped(NO_NUMBERS)),
        ("1,234.5e-10 <b>", "1,234.5e−10 &lt;b&gt;"),
    ],
)  # fmt: skip
def test_numbers_have_minus_signs_and_names_keep_their_hyphens(written: str, shown: str):
    assert text(written) == shown


def test_programs_are_exact_and_tooltips_have_minus_signs():
    assert escaped("x = -1e-3 < 2") == "x = -1e-3 &lt; 2"
    assert named("Jitter", "at least 1e-6.")["description"] == "Jitter: at least 1e−6."
    assert number(-3.6e-26) == "−3.6e−26"


def test_a_visitor_is_not_told_the_folders_of_the_server(tmp_path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("GPEXPLORER_DATA_DIR", str(tmp_path / "sets"))
    monkeypatch.setenv("GPEXPLORER_MAPPED_DIR", str(tmp_path / "sets" / "mapped"))
    sets = tmp_path / "sets"
    put = DataError(f'pol: no answer. Put the file at "{sets}/uci/pol.gz", or "{sets}/mapped/ab.bin".')
    written = DataError(f'pol: it cannot be written to "{sets}" (read-only).')

    assert sentence(put, "") == 'pol: no answer. Put the file at "uci/pol.gz", or "ab.bin".'
    assert sentence(written, "") == "pol: it cannot be written to its folder (read-only)."
