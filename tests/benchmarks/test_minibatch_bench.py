"""The bench of minibatches: pieces in turns, a million rows in a file, learning that goes on where it was stopped."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
import torch

from benchmarks import stochastic, streaming
from benchmarks.timing import learning, limits
from gpexplorer import Spec
from gpexplorer.runs import Store


def test_every_method_stands_beside_the_floor_and_its_baselines():
    title, head, *lines = stochastic.report("hypercube", "float32", {"batch_size": 8, "width": 6}, ("scgd", "bsgd"), 2)

    assert "b = 8, D = 6" in title
    assert re.fullmatch(r"ms per minibatch +median +least +GEMM \d+ GF/s", head)
    labels = [line[:32].strip() for line in lines]
    assert labels[:3] == [stochastic.FLOOR, stochastic.PLAIN, "GPyTorch SVGP, its own modules"]
    assert labels[3:7] == ["scgd", "its products (scgd)", "bsgd", "its products (bsgd)"]
    assert labels[7:] == ["rows of SCGD", "network, forward and back", "optimiser"]
    assert "1.0 x floor" in lines[0]
    assert lines[1].endswith("1.00 x plain torch")
    for line in lines:
        middle, least = map(float, line[32:].split()[:2])
        assert least <= middle


@pytest.mark.parametrize(
    ("method", "count"),
    [
        ("scgd", 9),  # the network forward (2) and backward (3), Phi'Phi, Phi F^-1, a factor, an inverse
        ("minimax", 17),  # 2 forwards (4), backward (3), Phi'Phi, Phi N, Phi A^-1, 2 for B, 3 factors, 2 inverses
    ],
)
def test_the_products_of_a_minibatch_include_those_of_the_network(method: str, count: int):
    run = stochastic._run("hypercube", "float64", method, {"batch_size": 8, "width": 6})
    learner = stochastic._learner(run)
    with stochastic._Products() as recorded:
        learner.move(0)

    assert len(recorded.calls) == count
    with torch.inference_mode():
        for call in recorded.calls:
            call()


def test_what_is_timed_in_turns_is_compared_round_by_round(monkeypatch: pytest.MonkeyPatch):
    clock, pace = [0.0], iter([1.0, 1.0, 1.0, 1.0, 10.0, 10.0, 10.0, 10.0, 2.0, 2.0, 2.0, 2.0])
    monkeypatch.setattr(limits.time, "perf_counter", lambda: clock[0])

    def takes(seconds: float):
        def work() -> None:
            clock[0] += seconds * next(pace)

        return work

    took = limits.in_turns({"one": takes(3.0), "other": takes(2.0)}, rounds=3)

    assert took == {"one": [3.0, 30.0, 6.0], "other": [2.0, 20.0, 4.0]}
    assert limits.ratio(took["one"], took["other"]) == 1.5


def test_a_million_rows_of_twenty_numbers_stay_within_a_gigabyte():
    title, line = streaming.report(1_000_000, {"width": 16, "minibatches": 20}, ("scgd",))

    assert title.startswith("1000000 rows of 20 inputs in a file of 76 MB")
    assert line.startswith("scgd            at most ")
    resident, more = (float(line.split(word)[1].split()[0]) for word in ("at most", "resident,"))
    assert more < resident < 1024.0  # with torch, and the pages of the file that are mapped
    assert "for 40 minibatches" in line


def small() -> Spec:
    settings = {"width": 6, "batch_size": 10, "epochs": 10, "minibatches": 1000, "schedule": "cosine"}
    return Spec("scgd", settings, data={"name": "hypercube", "n": 80, "d": 3, "noise": 0.2, "seed": 3})


def test_learning_continues_where_the_clock_stopped_it(tmp_path: Path):
    *_, whole = learning.report(small(), math.inf, choose=False, keep=None)

    *lines, stopped = learning.report(small(), 1e-9, choose=False, keep=tmp_path)
    *more, ended = learning.report(small(), math.inf, choose=False, keep=tmp_path)

    assert lines == []
    assert "the same command continues" in stopped
    assert [line.split()[0] for line in more] == [f"{epoch}.0" for epoch in range(1, 11)]
    assert not any("RMSE" in line for line in more)
    assert ended.split(" s ")[1] == whole.split(" s ")[1]  # NLML, test error and reason
    assert "10.0 epochs" in ended


def test_a_rate_is_chosen_once_and_kept_beside_the_runs(tmp_path: Path):
    *tried, chosen, _ = learning.report(small(), 1e-9, choose=True, keep=tmp_path)

    repeated, *_ = learning.report(small(), 1e-9, choose=True, keep=tmp_path)

    errors = {line.split()[1][:-1]: float(line.split()[3]) for line in tried}
    assert len(errors) == 5
    assert f"rate {min(errors, key=lambda rate: errors[rate])}, chosen on rows set aside" in chosen
    assert repeated == chosen  # by what the store holds: nothing is tried again
    assert len(Store(tmp_path).names()) == 2
