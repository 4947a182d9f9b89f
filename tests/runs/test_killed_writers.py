"""A killed process loses no record it had acknowledged, and the run goes on where it was."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import writers
from gpexplorer import Store
from gpexplorer.methods.base import registry
from toy_method import Toy


def test_no_acknowledged_record_is_lost_in_kills(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(registry, "toy", Toy)
    command = [sys.executable, writers.__file__, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr

    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    spec, store = writers.spec(), Store(tmp_path)
    run, whole = store.open(spec), spec.open()
    whole.finish(steps=run.done + 3)
    run.finish(steps=run.done + 3)
    run.close()

    assert len(rounds) == writers.KILLS
    assert all(stored >= acknowledged for acknowledged, stored, _, _ in rounds), rounds
    assert all(refused <= 1 for _, _, refused, _ in rounds), rounds
    kept = [stored for _, stored, _, _ in rounds]
    assert kept == sorted(kept)
    assert kept[-1] > kept[0]  # it went on
    for first, second in zip(run.trace, whole.trace, strict=True):
        torch.testing.assert_close(first.step.state.alpha, second.step.state.alpha, rtol=1e-8, atol=1e-10)
