"""How far a run is, as one line of text, while another thread steps it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..runs.run import Run


def line(run: Run) -> str:
    """Steps, seconds, the first channel's last number, the share of the budget used and the time to go."""
    if not len(run.trace):
        return "starting"
    parts = [f"step {run.done}", f"{run.trace[-1].seconds:.1f} s"]
    if run.method.channels:
        first = run.method.channels[0]
        recent = [float(getattr(record.step.info, first.name, math.nan)) for record in run.trace[-50:]]
        known = [value for value in recent if math.isfinite(value)]
        parts += [f"{first.label} {known[-1]:.6g}"] if known else []
    if run.outcome:
        return ", ".join([*parts, "taking the last scores"])
    fraction, eta = run.progress()
    if math.isfinite(fraction):
        parts.append(f"{fraction:.0%} of the budget")
    if math.isfinite(eta):
        parts.append(f"about {duration(eta)} to go")
    return ", ".join(parts)


def duration(seconds: float) -> str:
    """1:02:03, or 2:03 where there are no hours."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


@contextmanager
def watching(run: Run, say: Callable[[str], object], every: float) -> Iterator[None]:
    """Say the line every so many seconds while the block runs, from a thread that ends with it."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(every):
            say(line(run))

    watcher = threading.Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
