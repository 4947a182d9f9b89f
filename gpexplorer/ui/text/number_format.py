"""Numbers as a person reads them, and names as a screen reader does."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """Four figures, or a dash where there is none."""
    if not math.isfinite(value):
        return "—"
    return (f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def nbytes(size: float) -> str:
    """Bytes in the largest unit that keeps them above 1."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the loop returns")


def span(seconds: float) -> str:
    """A length of time."""
    if seconds < 1e-3:
        return "under 1 ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def named(label: str, help_: str) -> dict[str, str]:
    """Label and tooltip of a button or an upload: a screen reader reads the tooltip alone, so it begins as they do."""
    return {"label": label, "description": f"{label}: {help_}"}
