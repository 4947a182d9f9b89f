"""What an experiment of `benchmarks hammer` measured, and the table that all of them fill."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple, Protocol

import psutil

from gpexplorer import __version__

Report = Callable[[str], object]


class Measurement(NamedTuple):
    """One row of the table.

    Attributes
    ----------
    tried : str
        What was done, with the number of cases.
    measured : str
        What came out, with units.
    goal : str
        What should have come out.
    held : bool
        Whether the goal was met.
    """

    tried: str
    measured: str
    goal: str
    held: bool


class Experiment(Protocol):
    """A module of this package that has a function `measure`; its file name is the name of the experiment."""

    def measure(self, share: float, folder: Path, report: Report) -> list[Measurement]:
        """Do the experiment.

        Parameters
        ----------
        share : float
            The share of the full number of cases, such as 0.01 for a quick look.
        folder : Path
            An empty directory for files, which is deleted afterwards.
        report : callable
            Receives lines of progress.

        Returns
        -------
        list of Measurement
            At least one.
        """


def cases(full: int, share: float, least: int = 1) -> int:
    """The number of cases of an experiment at a share of the full number."""
    return max(round(full * share), least)


def log_row(lines: Sequence[str]) -> Measurement:
    """The row of a server's log, which should have no lines; the first one is quoted."""
    lines = [line for line in lines if line.strip()]
    quote = f", the first: {lines[0][:200]}" if lines else ""
    return Measurement("lines in the log after all this", f"{len(lines)}{quote}", "0", not lines)


def read_rows(path: Path) -> dict[str, list[Measurement]]:
    """The measurements of earlier experiments, by name, from a file that `write_rows` wrote."""
    if not path.exists():
        return {}
    return {name: [Measurement(*row) for row in rows] for name, rows in json.loads(path.read_text("utf-8")).items()}


def write_rows(path: Path, rows: Mapping[str, Sequence[Measurement]]) -> None:
    """Keep the measurements, so that experiments can be done one at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1), "utf-8")


def markdown(rows: Mapping[str, Sequence[Measurement]]) -> str:
    """The table of all measurements as Markdown, with the versions and the machine below it."""
    lines = ["| experiment | tried | measured | goal | held |", "|---|---|---|---|---|"]
    lines += [
        "| " + " | ".join([name, *map(_cell, row[:3]), "yes" if row.held else "**no**"]) + " |"
        for name in sorted(rows)
        for row in rows[name]
    ]
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "panel", "bokeh", "tornado"))
    memory = psutil.virtual_memory().total / 2**30
    lines += ["", f"gpexplorer {__version__}, Python {platform.python_version()}, {packages}; {platform.system()}, "]
    lines[-1] += f"{os.cpu_count()} cores, {memory:.0f} GiB."
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    """A text that cannot end its cell of a Markdown table."""
    return text.replace("|", "\\|").replace("\n", " ")
