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
    "alternating-projections": (87, 5),
    "bcd-cyclic": (71, 4),
    "bcd-gradient": (75, 4),
    "block-nystrom": (92, 5),
    "bsgd": (87, 12),
    "cg": (53, 4),
    "cholesky": (103, 13),
    "cholqr": (158, 2),
    "csi": (3710, 399),
    "fitc": (237, 19),
    "full-batch": (140, 11),
    "gbcd": (146, 3),
    "gpcv-admm": (1368, 66),
    "gpcv-admm-holdout": (1016, 57),
    "gpcv-admm-naive": (4197, 233),
    "greedy-variance": (83, 9),
    "grief": (796, 88),
    "grief-mcmc": (1109, 48),
    "ivm": (119, 10),
    "kmeans": (30, 3),
    "loo": (110, 11),
    "matching-pursuit": (528, 52),
    "minimax": (128, 14),
    "ml": (93, 12),
    "pcg": (58, 4),
    "random": (80, 7),
    "rff": (119, 10),
    "scgd": (100, 11),
    "sdd": (85, 3),
    "sgpr": (237, 23),
    "ski": (1456, 88),
    "smo": (2152, 186),
    "subset-of-data": (2320, 638),
    "subset-of-regressors": (115, 14),
    "svgp": (612, 21),
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
