"""Calls that fail, one at a time, in a few places of every scenario; and an interrupt in the middle of a record."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from benchmarks.hammer import faults
from benchmarks.hammer.fault_scenarios import SCENARIOS, Scenario
from gpexplorer import Spec, Store

FEW = 3


@pytest.fixture(autouse=True, scope="module")
def _little_is_searched_for_garbage() -> None:
    """The scenarios search after each failure, and what other tests have left is not theirs."""
    gc.collect()
    gc.freeze()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_no_call_that_fails_loses_what_was_acknowledged(tmp_path: Path, scenario: Scenario):
    tried = [faults.fail_calls(scenario, kind, tmp_path / "faults", most=FEW) for kind in faults.KINDS]

    assert sum(each.failed for each in tried) >= 10
    assert [sentence for each in tried for sentence in each.broken] == []


def test_an_invariant_that_is_broken_is_seen(tmp_path: Path):
    """A scenario that writes in place, and so leaves half a file."""

    def act(folder: Path, acknowledged: list[int]) -> None:
        for number in range(2):
            (folder / "file").write_text(f"{number}" * 10)
            acknowledged.append(number)

    def check(folder: Path, acknowledged: list[int]) -> None:
        assert not (folder / "file").exists() or len((folder / "file").read_text()) == 10

    tried = faults.fail_calls(Scenario("in place", act, check), "write", tmp_path / "faults")
    assert tried.failed == 2
    assert len(tried.broken) == 2


def test_a_run_that_goes_on_after_an_interrupt_keeps_its_later_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The interrupt came while a record was written, and the later records were in memory only."""
    write, store = os.write, Store(tmp_path)
    spec = Spec("random", {"num_inducing": 3}, {"name": "friedman1", "n": 30, "seed": 1})
    run = store.open(spec)
    run.advance()

    def interrupted(file: int, raw: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        write(file, bytes(raw)[:30])
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.advance()
    for _ in range(3):
        assert run.advance() is not None
    assert len(store.kept(spec.key()).records) == len(run.trace) == 5
    run.close()
