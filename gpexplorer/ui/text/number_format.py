"""Numbers, sizes and durations as text for the page, and labels for screen readers."""

from __future__ import annotations

import math


def number(value: float) -> str:
    """Return a number with four significant digits, or a dash when it is not finite."""
    if not math.isfinite(value):
        return "—"
    return (f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}").replace("-", "−")


def nbytes(size: float) -> str:
    """Return a number of bytes in the largest unit in which it is at least 1."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            return f"{size:.0f} {unit}" if size >= 10 or unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError("the loop returns")


def span(seconds: float) -> str:
    """Return a duration in milliseconds, seconds, minutes or hours."""
    if seconds < 1e-3:
        return "under 1 ms"
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    if seconds < 120:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def named(label: str, help_: str) -> dict[str, str]:
    """Return label and tooltip of a widget; screen readers read only the tooltip, so it begins with the label."""
    return {"label": label, "description": f"{label}: {help_}"}
