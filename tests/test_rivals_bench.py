"""The bench of the rivals: every entrant comes to a line, and an unknown one is refused."""

from __future__ import annotations

import pytest
import typer

from gpexplorer.bench import rivals


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
