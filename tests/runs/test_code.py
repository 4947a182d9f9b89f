"""The program on the page, run by another interpreter, prints the number on the page."""

from __future__ import annotations

import html
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from gpexplorer import Spec, data
from gpexplorer.runs.code import notebook, program

ROOT = Path(__file__).resolve().parents[2]
SPEC = Spec("cholqr", {"num_inducing": 6}, {"name": "friedman1", "n": 80, "seed": 3}, kernel="se", seed=5)


def printed(text: str, threads: int = 1) -> list[float]:
    """The numbers that a new interpreter prints, with so many threads unless the program asks for others."""
    command, env = [sys.executable, "-c", text], {**os.environ, "OMP_NUM_THREADS": str(threads)}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=env)
    assert done.returncode == 0, done.stderr
    return [float(line) for line in done.stdout.split()]


def locally(text: str) -> float:
    """What it computes in this process."""
    names: dict[str, object] = {}
    exec(text.replace("print(", "result = ("), names)
    return names["result"]  # type: ignore[return-value]


def opened(text: str) -> Any:
    """A notebook, read as Jupyter reads it."""
    import nbformat  # takes 1.5 s, which each process that only looks for tests would pay

    return nbformat.reads(text, as_version=4)


def test_another_interpreter_prints_the_number_on_the_screen_whatever_threads_the_machine_offers():
    """Where hyperparameters are learned, the number of threads changes more than the eighth digit."""
    first = SPEC.open()
    for _ in range(8):
        first.advance()
    rows = {"name": "hypercube", "n": 900, "d": 4, "noise": 0.1, "seed": 3}
    spec, before, threads = Spec("sgpr", {"num_inducing": 128}, rows), torch.get_num_threads(), 2
    torch.set_num_threads(threads)
    try:
        run = spec.open()
        run.finish(steps=6)
        text, expected = program(spec, 6), run.scores()["smse"]
    finally:
        torch.set_num_threads(before)

    numbers = printed(f"{program(SPEC, 7)}\n{text}", threads=1)

    assert f"set_num_threads({threads})" in text
    assert numbers == [pytest.approx(first.scores()["smse"], rel=1e-8), expected]


@pytest.mark.parametrize("step", [0, 1, 5])
@pytest.mark.parametrize("metric", ["smse", "snlp"])
def test_any_step_and_metric(step: int, metric: str):
    run = SPEC.open()
    for _ in range(9):
        run.advance()

    assert locally(program(SPEC, step, metric)) == pytest.approx(run.scores(step)[metric], rel=1e-8)


def test_every_field_is_written_and_reads_back_equal():
    spec = Spec(
        "gbcd", data="kin40k", split={"test": 0.1, "seed": 2}, kernel={"name": "se", "theta": [0.1, -1 / 3, 2.0]}
    )
    names: dict[str, object] = {}

    exec(program(spec, 3).partition("run = ")[0], names)

    assert names["spec"] == spec


@pytest.mark.parametrize("transform", ["", "log", "yeo-johnson", "yeo-johnson 0.5"])
def test_a_transform_of_the_target_is_written_where_there_is_one(transform: str):
    spec = replace(SPEC, target_transform=transform)
    book = opened(notebook(spec, 1))

    for text in (program(spec, 3), book.cells[1].source):
        names: dict[str, object] = {}
        exec(text.partition("run = ")[0].removesuffix("spec"), names)
        assert names["spec"] == spec
        assert (f"    target_transform={transform!r},\n" in text) == bool(transform)
        assert ("target_transform" in text) == bool(transform)


def test_a_program_with_a_transform_prints_the_score_of_the_run_in_the_units_of_the_file():
    spec = replace(SPEC, target_transform="yeo-johnson 0.5")
    run, plain = spec.open(), SPEC.open()
    run.finish(steps=3)
    plain.finish(steps=3)

    assert locally(program(spec, 3, "nlpd")) == pytest.approx(run.scores()["nlpd"], rel=1e-8)
    assert run.scores()["nlpd"] != plain.scores()["nlpd"]


def test_what_a_person_typed_stays_text():
    spec = Spec("cholqr", data='"); import os; os.abort() #\n.csv')
    names: dict[str, object] = {}

    exec(program(spec, 1).partition("\nrun = ")[0], names)

    assert names["spec"] == spec


def test_rows_in_memory_are_asked_for_and_checked():
    rows = data.load({"name": "friedman1", "n": 60}, split=0)
    text = program(SPEC.open(data=rows).spec, 2)

    assert "rows.csv" in text
    other = text.replace("gpx.load('rows.csv', split=spec.split)", "gpx.load('friedman1', n=61, split=0)")
    with pytest.raises(ValueError, match="the spec was made for"):
        locally(other)


def test_a_note_in_the_notebook_stays_text():
    book = opened(notebook(SPEC, 1, note="# <img src=x onerror=alert(1)>\n\n[a](javascript:1) $x$"))

    message = book.cells[0].source.split("\n\n> ")[1:]
    assert [html.unescape(line) for line in message] == ["# <img src=x onerror=alert(1)>", "[a](javascript:1) $x$"]
    assert not set("<>[]$") & set("".join(message))


def test_the_notebook_is_one_and_ends_with_the_number():
    import nbformat
    from nbclient import NotebookClient

    book = opened(notebook(SPEC, 4))
    nbformat.validate(book)
    run = SPEC.open()
    run.finish(steps=4)

    NotebookClient(book, timeout=60, resources={"metadata": {"path": str(ROOT)}}).execute()

    assert float(book.cells[-1].outputs[0]["data"]["text/plain"]) == pytest.approx(run.scores()["smse"], rel=1e-8)
