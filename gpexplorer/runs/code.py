"""A run as a Python program, which prints the score that the page shows to 1e-8 and needs no page.

It asks torch for as many threads as the run had. Sums in another order differ by rounding, and an optimiser of
hyperparameters amplifies that: after 16 steps of `sgpr`, predictions with one and with two threads differ by 2e-6.

Only literals of the spec are written, each by `repr`, so nothing that a person typed can become code.
"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import torch

from .. import data as data_sets
from .opening import row_entries
from .spec import TRANSFORMS, Spec

WIDTH = 100
SAVED_MODEL = """\
import pandas as pd

import gpexplorer as gpx

model = gpx.load_posterior("model.safetensors")  # the file that "Save the model" writes

new_rows = pd.read_csv("new.csv")  # with the input columns of the rows that it has learned from
mean, var = model(new_rows)
print(pd.DataFrame({"mean": mean, "sd": var.sqrt()}))
"""


def program(spec: Spec, step: int, metric: str = "smse") -> str:
    """Write a Python program that opens a run, goes to a step and prints one score.

    Parameters
    ----------
    spec : Spec
        The run.
    step : int
        The step to go to. The program stops earlier if the method ends earlier.
    metric : str
        The score to print, such as "smse".

    Returns
    -------
    str
        The program. If the rows came from an upload, it reads the file of that name in the folder in which it runs. If
        they were in memory, its reader must name a file. In both cases the spec refuses rows that are not the same.
    """
    printed = f'print(run.scores()["{metric}"])'
    return "\n".join([*_spec_lines(spec), "", *_open_lines(spec), "", _step_line(step), printed, ""])


def notebook(spec: Spec, step: int, metric: str = "smse", note: str = "") -> str:
    """Write the same program as a notebook (format 4.5), one cell per part, without outputs.

    Parameters
    ----------
    spec, step, metric : Spec, int, str, default "smse"
        As for `program`.
    note : str
        What a person wrote about the run. It is shown as the text that was typed.
    """
    title = f"# {spec.method}, {step} steps\n\nThe last cell prints the number that was on the screen."
    sources = [
        "\n".join([*_spec_lines(spec), "spec"]),
        "\n".join([*_open_lines(spec), _step_line(step), "run.table().tail()"]),
        f'run.scores()["{metric}"]',
    ]
    return _notebook(title, sources, note)


def notebook_of_saved_model(note: str = "") -> str:
    """Write the program `SAVED_MODEL` as a notebook; `note` is as for `notebook`."""
    title = "# Predictions of new rows\n\nThe model is the one that *Save the model* wrote."
    return _notebook(title, SAVED_MODEL.strip().split("\n\n"), note)


def _notebook(title: str, sources: list[str], note: str) -> str:
    """A notebook with this heading, the note below it, and one cell for each source."""
    for line in filter(str.strip, note.splitlines()):  # Markdown shows it as it was typed
        title += "\n\n> " + re.sub(r"([^\w\s.,;:()])", lambda mark: f"&#{ord(mark[0])};", line)
    cells: list[dict[str, Any]] = [{"cell_type": "markdown", "id": "title", "metadata": {}, "source": title}]
    for number, source in enumerate(sources):
        cell = {"cell_type": "code", "id": f"part-{number}", "metadata": {}, "source": source}
        cells.append({**cell, "execution_count": None, "outputs": []})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _spec_lines(spec: Spec) -> list[str]:
    """The imports, as many threads as this process has, and the spec as a call, one field per line.

    Every setting is written. A transform that is none is left out.
    """
    threads = f"torch.set_num_threads({torch.get_num_threads()})  # as in this run: rounding depends on it"
    lines = ["import torch", "", "import gpexplorer as gpx", "", threads, "", "spec = gpx.Spec("]
    for entry in fields(spec):
        name, value = entry.name, getattr(spec, entry.name)
        if name in TRANSFORMS and not value:
            continue
        short = f"    {name}={value!r},"
        if len(short) <= WIDTH or not isinstance(value, dict):
            lines.append(short)
        else:
            lines += [f"    {name}={{", *(f"        {key!r}: {part!r}," for key, part in value.items()), "    },"]
    return [*lines, ")"]


def _open_lines(spec: Spec) -> list[str]:
    if not isinstance(spec.data, dict) or "content" not in spec.data or data_sets.is_named(spec.data):
        return ["run = spec.open()"]
    entries, lines = row_entries(spec.data), list[str]()
    if "file" not in entries:
        lines = ["# The rows were in memory: name the file they came from, and its columns as they were chosen."]
    options = "".join(f", {name}={value!r}" for name, value in entries.items() if name != "file")
    lines.append(f"rows = gpx.load({entries.get('file', 'rows.csv')!r}, split=spec.split{options})")
    return [*lines, "run = spec.open(data=rows)  # refuses rows that are not the same"]


def _step_line(step: int) -> str:
    """The line that takes the run to this step. Record 0 comes before any step."""
    return f"run.finish(steps={step})" if step > 0 else "run.advance()"
