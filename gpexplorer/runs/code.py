"""The run on the screen as a program: run headless, it prints the number on the screen to 1e-8.

Only literals of the spec are written, each by `repr`, so nothing a person typed can become code.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

from .. import data as data_sets
from .spec import Spec

WIDTH = 100


def program(spec: Spec, step: int, metric: str = "smse") -> str:
    """Python text that goes to this step (or to the method's end, if that comes first) and prints one score.

    Rows that no name brings back are read from a file its reader must name; the spec refuses any other rows.
    """
    lines = ["import gpexplorer as gpx", "", *_spec_lines(spec), "", *_open_lines(spec), ""]
    lines += [*_step_lines(step), f'print(run.scores()["{metric}"])', ""]
    return "\n".join(lines)


def notebook(spec: Spec, step: int, metric: str = "smse", note: str = "") -> str:
    """The same program as the text of a notebook (format 4.5), a cell a part, stored without outputs.

    `note` is what a person wrote about the run: it stays text.
    """
    title = f"# {spec.method}, {step} steps\n\nThe last cell prints the number that was on the screen."
    title += "".join(f"\n\n> {_plain(line)}" for line in note.splitlines() if line.strip())
    cells = [
        "\n".join(["import gpexplorer as gpx", "", *_spec_lines(spec), "spec"]),
        "\n".join([*_open_lines(spec), *_step_lines(step), "run.table().tail()"]),
        f'run.scores()["{metric}"]',
    ]
    body = [{"cell_type": "markdown", "id": "title", "metadata": {}, "source": title}]
    body += [_cell(f"part-{k}", source) for k, source in enumerate(cells)]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    held = {"cells": body, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(held, indent=1, ensure_ascii=False) + "\n"


def _plain(line: str) -> str:
    """A line that Markdown shows as it was typed."""
    return re.sub(r"([^\w\s.,;:()])", lambda found: f"&#{ord(found[0])};", line)


def _cell(name: str, source: str) -> dict[str, Any]:
    return {
        "cell_type": "code", "id": name, "metadata": {}, "execution_count": None, "outputs": [], "source": source,
    }  # fmt: skip


def _spec_lines(spec: Spec) -> list[str]:
    """The spec as a call, a field a line, every setting written."""
    lines = ["spec = gpx.Spec("]
    for entry in fields(spec):
        lines += _argument(entry.name, getattr(spec, entry.name))
    return [*lines, ")"]


def _argument(name: str, value: Any) -> list[str]:
    short = f"    {name}={value!r},"
    if len(short) <= WIDTH or not isinstance(value, dict):
        return [short]
    return [f"    {name}={{", *(f"        {key!r}: {part!r}," for key, part in value.items()), "    },"]


def _open_lines(spec: Spec) -> list[str]:
    if not isinstance(spec.data, dict) or "content" not in spec.data or data_sets.is_named(spec.data):
        return ["run = spec.open()"]
    return [
        "# The rows were in memory: name the file they came from, and its columns as they were chosen.",
        'rows = gpx.load("rows.csv", split=spec.split)',
        "run = spec.open(data=rows)  # refuses rows that are not the same",
    ]


def _step_lines(step: int) -> list[str]:
    """To record `step`: the start is a record, but not a step."""
    return [f"run.finish(steps={step})"] if step > 0 else ["run.advance()"]
