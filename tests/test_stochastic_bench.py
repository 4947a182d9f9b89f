"""The bench of minibatches: the memory of a million rows in a file, measured in a process of its own."""

from __future__ import annotations

from gpexplorer.bench import streaming


def test_a_million_rows_of_twenty_numbers_stay_within_a_gigabyte():
    title, line = streaming.report(1_000_000, {"width": 16, "minibatches": 20}, ("scgd",))

    assert title.startswith("1000000 rows of 20 inputs in a file of 76 MB")
    assert line.startswith("scgd      at most ")
    resident, more = (float(line.split(word)[1].split()[0]) for word in ("at most", "resident,"))
    assert more < resident < 1024.0  # with torch, and the pages of the file that are mapped
    assert "for 40 minibatches" in line
