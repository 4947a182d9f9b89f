"""What a step of each method asks of a GPU does not grow: launches, and reads for which the host waits.

A count that falls should be lowered in the table as well. Each number leaves room for a twentieth more, because the
number of iterations in a step may change with rounding.
"""

from __future__ import annotations

import pytest

from benchmarks import costs
from benchmarks.gpu.simulated_gpu import DeviceWork
from benchmarks.gpu.step_counts import counts_per_step
from gpexplorer import methods
from gpexplorer.methods.base import registry

SMALLER = {"num_inducing": 16, "block": 40, "num_regressors": 20, "per_step": 20}
MOST = {  # launches and reads of a step with 300 rows, 4 inputs and the settings above
    "alternating-projections": (63, 5),
    "bcd-cyclic": (47, 4),
    "bcd-gradient": (49, 4),
    "block-nystrom": (64, 5),
    "bsgd": (87, 10),
    "cg": (42, 4),
    "cholesky": (77, 11),
    "cholqr": (60, 2),
    "csi": (3283, 399),
    "fitc": (168, 1),
    "full-batch": (138, 11),
    "gbcd": (100, 3),
    "gpcv-admm": (738, 8),
    "gpcv-admm-holdout": (726, 8),
    "gpcv-admm-naive": (2728, 66),
    "greedy-variance": (75, 9),
    "grief": (796, 88),
    "grief-mcmc": (1108, 48),
    "ivm": (105, 10),
    "kmeans": (26, 3),
    "loo": (96, 3),
    "matching-pursuit": (465, 52),
    "minimax": (127, 14),
    "ml": (82, 3),
    "pcg": (47, 4),
    "random": (72, 7),
    "rff": (123, 8),
    "scgd": (99, 11),
    "sdd": (57, 3),
    "sgpr": (151, 1),
    "ski": (1456, 88),
    "smo": (1623, 186),
    "states": (2550, 14),
    "subset-of-data": (113, 12),
    "subset-of-regressors": (103, 14),
    "svgp": (248, 11),
    "titsias": (131, 10),
    "vecchia": (410, 45),
}


def test_the_table_has_every_method():
    assert set(MOST) == set(methods)


@pytest.mark.parametrize("key", sorted(MOST))
def test_a_step_asks_for_no_more_launches_and_reads(key: str):
    settings = {name: value for name, value in SMALLER.items() if name in registry[key].param}

    work = counts_per_step(key, 300, 4, settings, steps=2, recorded=False)

    launches, reads = MOST[key]
    assert 0 < work.launches <= launches
    assert work.reads <= reads


@pytest.mark.parametrize(
    ("key", "launches", "reads"), [("sgpr", 2, 1), ("fitc", 2, 1), ("ml", 6, 3), ("loo", 8, 3), ("gpcv-admm", 54, 7)]
)
def test_an_evaluation_that_is_replayed_as_a_graph_asks_for_little(key: str, launches: int, reads: int):
    work = counts_per_step(key, 300, 4, {name: 16 for name in ("num_inducing",) if name in registry[key].param})

    assert work.launches <= launches
    assert work.reads <= reads


def test_the_costs_have_a_column_of_launches_and_reads(monkeypatch: pytest.MonkeyPatch):
    row = {"sentence": "", "seconds": 2.0, "seconds predicted": 1.0, "memory": 3e6, "memory predicted": 1e6, "calls": 5}
    monkeypatch.setattr(costs, "measured", lambda *_: row)
    monkeypatch.setattr(costs, "counts_per_step", lambda *_: DeviceWork(launches=172, reads=2, uploads=3))

    assert costs.line("cholqr", 100, 2).split()[-2:] == ["172", "2"]
