"""What the tests of benchmarks share: limits of the machine that are measured with small matrices."""

from __future__ import annotations

import pytest

from benchmarks.timing import limits


@pytest.fixture(autouse=True)
def _small_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six products of 400 rows take 0.02 s of a processor, of 1500 rows 0.9 s; few tests read the rates."""
    monkeypatch.setattr(limits, "SQUARE", 400)
