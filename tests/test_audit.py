"""The audit of dependencies fails on a vulnerability, and when it could not ask."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

import audit


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "version": "1.0", **more}


@pytest.mark.parametrize(
    ("entries", "code", "says"),
    [
        ([entry("a", vulns=[]), entry("b_c", vulns=[])], 0, "2 packages have no known vulnerability."),
        ([entry("a", vulns=[{"id": "CVE-1"}]), entry("b-c", vulns=[])], 1, "a 1.0: CVE-1"),
        ([entry("a", vulns=[]), entry("b-c", skip_reason="no network")], 2, "Not audited: b-c."),
        ([], 2, "Not audited: a, b-c."),
    ],
)
def test_the_verdict_counts_what_was_not_audited(entries: list[dict[str, Any]], code: int, says: str) -> None:
    got, message = audit.verdict(audit.pinned("# pins\na==1.0\nB_c==1.0  # why\n"), {"dependencies": entries})

    assert got == code
    assert says in message


def test_an_audit_that_could_not_run_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    failed = subprocess.CompletedProcess([], 1, "", "No module named pip_audit")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: failed)

    assert audit.main() == audit.NOT_AUDITED
    assert "Not audited: No module named pip_audit" in capsys.readouterr().err


def test_every_pin_is_audited(root: Path) -> None:
    names = audit.pinned((root / "constraints.txt").read_text("utf-8"))

    assert {"torch", "bokeh", "panel", "tornado"} <= names
    assert len(names) > 100
