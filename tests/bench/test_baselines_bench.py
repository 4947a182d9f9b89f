"""The bench of the rivals: every entrant comes to a line, and an unknown one is refused."""

from __future__ import annotations

import pytest
import torch
import typer

from gpexplorer.bench import cholqr, rivals
from gpexplorer.methods.inducing.swapping.cholqr import CholQR


def test_every_entrant_comes_to_a_line_on_a_small_set() -> None:
    race = {name: entrant for name, entrant in rivals.entrants(6).items() if name != "sgpr-gpytorch"}
    title, heads, *lines = rivals.report("friedman1", race, m=6, rows=90, seconds=2.0)
    assert "n = 90, d = 10, m = 6" in title
    assert [line.split()[0] for line in lines] == list(race)
    assert all(len(line.split()) == 8 for line in lines)
    F = {line.split()[0]: float(line.split()[5]) for line in lines}
    assert heads.split()[:2] == ["entrant", "points"]
    assert min(F["cholqr"], F["titsias-512"]) < F["random"]
    assert F["sgpr"] < F["kmeans"]


def test_an_unknown_entrant_is_answered_with_the_known_ones() -> None:
    with pytest.raises(typer.BadParameter, match=r"'titsias-9' is no entrant; choose from random, .*csi"):
        rivals.command(only="titsias-9")


def test_the_bench_of_the_swap_counts_reads_for_either_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cholqr, "learned", lambda rows, kernel: kernel.start(rows))
    reads = {}
    for name, settings in {"defaults": {"polish": 4}, "paper": CholQR.published}.items():
        _, _, _, heads, *table, drift = cholqr.report("friedman1", (10_000, 8), 2, torch.float64, "cpu", **settings)
        assert heads.split()[5:7] == ["products", "reads"]
        assert drift.startswith("after 16 tries the carried objective is off the recomputed one by")
        assert [row.split()[0] for row in table] == (["1", "2", "polish"] if name == "defaults" else ["1", "2"])
        reads[name] = float(table[1].split()[4])
    assert reads["defaults"] < 0.75  # a draw for eight tries: two products with the factor, one for all removals
    assert 2.0 <= reads["paper"] <= 3.0
