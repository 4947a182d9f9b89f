"""Public names are imported on first use, from any thread."""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

import gpexplorer as gpx

SOURCE = """
import sys
sys.modules["begun_and_allowed"].begun.set()
assert sys.modules["begun_and_allowed"].allowed.wait(30)
Slow = 7
"""


def test_a_name_waits_for_another_thread_that_is_importing_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "slow_to_import.py").write_text(SOURCE)
    events = SimpleNamespace(begun=threading.Event(), allowed=threading.Event())
    monkeypatch.setitem(sys.modules, "begun_and_allowed", events)
    monkeypatch.setattr(gpx, "__path__", [*gpx.__path__, str(tmp_path)])
    monkeypatch.setitem(gpx._MODULE_OF, "Slow", "slow_to_import")
    monkeypatch.delitem(sys.modules, "gpexplorer.slow_to_import", raising=False)

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(getattr, gpx, "Slow")
        assert events.begun.wait(30)
        second = threads.submit(getattr, gpx, "Slow")
        with pytest.raises(TimeoutError):
            second.result(0.05)  # without the wait it fails at once
        events.allowed.set()
        assert (first.result(30), second.result(30)) == (7, 7)
    sys.modules.pop("gpexplorer.slow_to_import")
