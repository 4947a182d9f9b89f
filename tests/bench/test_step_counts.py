"""What a step of each method asks of a GPU does not grow: launches, and reads for which the host waits.

A count that falls should be lowered in the table as well. Each number leaves room for a twentieth more, because the
number of iterations in a step may change with rounding.
"""

from __future__ import annotations

import pytest

from gpexplorer import methods
from gpexplorer.bench import costs
from gpexplorer.bench.gpu.simulated_gpu import DeviceWork
from gpexplorer.bench.gpu.step_counts import counts_per_step
from gpexplorer.methods.base import registry

SMALLER = {"num_inducing": 16, "block": 40, "num_regressors": 20, "per_step": 20}
MOST = {  # launches and reads of a step with 300 rows, 4 inputs and the settings above
    "alternating-projections": (91, 13),
    "bcd-cyclic": (75, 12),
    "bcd-gradient": (79, 12),
    "block-nystrom": (96, 13),
    "bsgd": (88, 13),
    "cg": (58, 10),
    "cholesky": (95, 22),
    "cholqr": (187, 2),
    "csi": (3710, 400),
    "fitc": (237, 22),
    "full-batch": (125, 21),
    "gbcd": (155, 18),
    "gpcv-admm": (1420, 145),
    "gpcv-admm-holdout": (1056, 107),
    "gpcv-admm-naive": (4323, 433),
    "greedy-variance": (83, 9),
    "grief": (797, 89),
    "grief-mcmc": (1110, 48),
    "ivm": (119, 10),
    "kmeans": (30, 3),
    "loo": (110, 12),
    "matching-pursuit": (535, 61),
    "minimax": (128, 19),
    "ml": (93, 13),
    "pcg": (64, 10),
    "random": (80, 7),
    "rff": (120, 12),
    "scgd": (97, 14),
    "sdd": (88, 10),
    "sgpr": (237, 28),
    "ski": (1456, 89),
    "smo": (2152, 298),
    "subset-of-data": (2320, 640),
    "subset-of-regressors": (117, 17),
    "svgp": (612, 33),
    "titsias": (146, 10),
}


def test_the_table_has_every_method():
    assert set(MOST) == set(methods)


@pytest.mark.parametrize("key", sorted(MOST))
def test_a_step_asks_for_no_more_launches_and_reads(key: str):
    settings = {name: value for name, value in SMALLER.items() if name in registry[key].param}

    work = counts_per_step(key, 300, 4, settings, steps=2)

    launches, reads = MOST[key]
    assert 0 < work.launches <= launches
    assert work.reads <= reads


def test_the_costs_have_a_column_of_launches_and_reads(monkeypatch: pytest.MonkeyPatch):
    row = {"sentence": "", "seconds": 2.0, "seconds predicted": 1.0, "memory": 3e6, "memory predicted": 1e6, "calls": 5}
    monkeypatch.setattr(costs, "measured", lambda *_: row)
    monkeypatch.setattr(costs, "counts_per_step", lambda *_: DeviceWork(launches=172, reads=2, uploads=3))

    assert costs.line("cholqr", 100, 2).split()[-2:] == ["172", "2"]
