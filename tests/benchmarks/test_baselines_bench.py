"""The bench of the baselines: every entrant has a line, and an unknown one is refused."""

from __future__ import annotations

import re

import pytest
import torch
import typer

from benchmarks import baselines, cholqr
from gpexplorer.methods.inducing.swapping.cholqr import CholQR


def test_every_entrant_has_a_line_on_a_small_set() -> None:
    race = {name: entrant for name, entrant in baselines.entrants(6).items() if name != "sgpr-gpytorch"}
    title, heads, *lines = baselines.report("friedman1", race, m=6, rows=90, seconds=2.0)
    assert "n = 90, d = 10, m = 6" in title
    assert [line.split()[0] for line in lines] == list(race)
    assert all(len(line.split()) == 8 for line in lines)
    F = {line.split()[0]: float(line.split()[5]) for line in lines}
    assert heads.split()[:2] == ["entrant", "points"]
    assert min(F["cholqr"], F["titsias-512"]) < F["random"]
    assert F["sgpr"] < F["kmeans"]


def test_an_unknown_entrant_is_refused_with_the_list_of_entrants() -> None:
    with pytest.raises(typer.BadParameter, match=r"'titsias-9' is not an entrant; choose from random, .*csi"):
        baselines.command(only="titsias-9")


def test_the_swap_bench_counts_the_reads_of_the_factor_for_both_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholqr, "learned", lambda rows, kernel: kernel.start(rows))
    reads = {}
    for name, settings in {"defaults": {"polish": 4}, "paper": CholQR.published}.items():
        lines = cholqr.report("friedman1", (10_000, 8), 2, torch.float64, "cpu", **settings)
        _, _, _, heads, *table, draws, drift = lines
        assert heads.split()[3:5] == ["products", "reads"]
        assert drift.startswith("after 16 tries the updated objective differs from the recomputed one by")
        assert re.fullmatch(r"a draw of \d+ pivots and \d+ removals takes [\d.]+ ms: [\d.]+ x its products .*", draws)
        assert [row.split()[0] for row in table] == (["1", "2", "polish"] if name == "defaults" else ["1", "2"])
        reads[name] = float(table[1].split()[4])
    assert reads["defaults"] < 0.75  # one draw per eight tries: two products with L, and one for all removals
    assert 2.0 <= reads["paper"] <= 3.0
