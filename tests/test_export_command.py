"""The command `export`: a stored run as a page and as a table, and what each of them needs of its rows."""

from __future__ import annotations

import base64
import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from commands import call
from gpexplorer import Spec, Store
from toy_method import ROWS


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("gone", ["removed", "changed", "in memory"])
def test_steps_are_exported_without_the_rows_unless_there_are_priors(gone: str, capsys: pytest.CaptureFixture[str]):
    frame = pd.DataFrame({"x": np.linspace(0.0, 5.0, 30)})
    frame["y"] = np.sin(frame["x"])
    frame.to_csv("rows.csv", index=False)
    priors = {"name": "se", "priors": {"lengthscale": "lognormal(0, 1)"}}
    names, tables = [], []
    for kernel in ("se", priors):
        spec = Spec("ml", kernel=kernel, data="rows.csv", budget={"steps": 3})
        opened = Store("store").open(spec, data=frame) if gone == "in memory" else Store("store").open(spec)
        opened.finish()
        opened.close()
        assert opened.spec is not None
        names.append(str(Path("store") / opened.spec.key()))
        tables.append(opened.table())
    if gone == "changed":
        frame.assign(y=0.5 * frame["x"]).to_csv("rows.csv", index=False)
    else:
        Path("rows.csv").unlink()
    assert call("export", names[0], "--steps", "steps.csv") == 0
    written = pd.read_csv("steps.csv")
    pd.testing.assert_frame_equal(written[list(tables[0])], tables[0], check_dtype=False)
    assert set(written) - set(tables[0]) == {"phase"}

    why = {"removed": 'no file "rows.csv"', "changed": "these are", "in memory": "were in memory"}[gone]
    capsys.readouterr()
    for kind, command in (
        ("the log densities of priors", ["export", names[1], "--steps", "steps.csv"]),
        ("the pictures", ["export", names[0], "--page", "run.html"]),
        ("the pictures", ["export", names[0], "--page", "run.html", "--steps", "steps.csv"]),
    ):
        assert call(*command) == 2
        error = capsys.readouterr().err
        assert f"needs the rows of the run for {kind}" in error
        assert why in error


def test_export_writes_a_stored_run_as_a_page_and_as_a_table(capsys: pytest.CaptureFixture[str]):
    spec = Spec("random", {"num_inducing": 3}, data=ROWS)
    opened = Store("store").open(spec)
    opened.finish(steps=2)
    opened.close()
    name = str(Path("store") / spec.key())

    assert call("export", name, "--page", "run.html", "--steps", "steps.csv", "--pictures", "convergence") == 0
    assert "MB in run.html" in capsys.readouterr().out
    (content,) = re.findall(r'id="content">([^<]*)<', Path("run.html").read_text("utf-8"))
    assert f"step {opened.done}" in gzip.decompress(base64.b64decode(content)).decode()
    assert pd.read_csv("steps.csv")["phase"].tolist() == [record.step.info.phase for record in opened.trace]

    assert call("export", name) == 2
    assert call("export", str(Path("store") / "nonsense"), "--page", "run.html") == 2
    assert "has no run 'nonsense'" in capsys.readouterr().err
    assert call("export", "store", "--page", "run.html") == 2
    assert f"store is a store of 1 run: name one, such as {name}" in capsys.readouterr().err
