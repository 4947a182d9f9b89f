"""The bench of predictions prints latencies of every way to predict, and sizes in their order."""

from __future__ import annotations

import re

from benchmarks.predict import report


def test_a_kept_posterior_is_faster_than_a_rebuilt_one_and_smaller_than_the_run():
    title, *lines, loading, sizes = report(20_000, 64, 3)

    assert title.startswith("n = 20000, m = 64")
    assert len(lines) == 10
    milliseconds = [float(line.split()[-2]) for line in lines]
    assert milliseconds[4] > 2 * milliseconds[2]  # one row: the rebuilt posterior reads all training rows
    assert loading.startswith("loading the file")
    whole, slim, file = map(float, re.findall(r"(\d+) kB", sizes))
    assert file < slim < whole
