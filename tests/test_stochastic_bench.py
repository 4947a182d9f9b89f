"""The bench of minibatches: a million rows in a file, and learning that is gone on with where it was stopped."""

from __future__ import annotations

import math
from pathlib import Path

from gpexplorer import Spec
from gpexplorer.bench import learning, streaming
from gpexplorer.runs import Store


def test_a_million_rows_of_twenty_numbers_stay_within_a_gigabyte():
    title, line = streaming.report(1_000_000, {"width": 16, "minibatches": 20}, ("scgd",))

    assert title.startswith("1000000 rows of 20 inputs in a file of 76 MB")
    assert line.startswith("scgd      at most ")
    resident, more = (float(line.split(word)[1].split()[0]) for word in ("at most", "resident,"))
    assert more < resident < 1024.0  # with torch, and the pages of the file that are mapped
    assert "for 40 minibatches" in line


def small() -> Spec:
    settings = {"width": 6, "batch_size": 10, "epochs": 10, "minibatches": 1000, "schedule": "cosine"}
    return Spec("scgd", settings, data={"name": "hypercube", "n": 80, "d": 3, "noise": 0.2, "seed": 3})


def test_learning_is_gone_on_with_where_the_clock_stopped_it(tmp_path: Path):
    *_, whole = learning.report(small(), math.inf, choose=False, keep=None)

    *told, stopped = learning.report(small(), 1e-9, choose=False, keep=tmp_path)
    *more, ended = learning.report(small(), math.inf, choose=False, keep=tmp_path)

    assert told == []
    assert "the same command goes on" in stopped
    assert [line.split()[0] for line in more] == [f"{epoch}.0" for epoch in range(1, 11)]
    assert not any("RMSE" in line for line in more)
    assert ended.split(" s ")[1] == whole.split(" s ")[1]  # NLML, test error and reason
    assert "10.0 epochs" in ended


def test_a_rate_is_chosen_once_and_kept_beside_the_runs(tmp_path: Path):
    *tried, chosen, _ = learning.report(small(), 1e-9, choose=True, keep=tmp_path)

    again, *_ = learning.report(small(), 1e-9, choose=True, keep=tmp_path)

    errors = {line.split()[1][:-1]: float(line.split()[3]) for line in tried}
    assert len(errors) == 5
    assert f"rate {min(errors, key=lambda rate: errors[rate])}, chosen on rows set aside" in chosen
    assert again == chosen  # by what the store holds: nothing is tried again
    assert len(Store(tmp_path).names()) == 2
