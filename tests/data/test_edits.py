"""Rows added and taken out by hand: what the set holds then, what it is called, and what a link and a program carry."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch

from gpexplorer import Spec, data
from gpexplorer.errors import DataError
from gpexplorer.runs import link
from gpexplorer.runs.code import program

ROWS = {"name": "snelson-like", "n": 40, "seed": 3}
EDITS = [[7.5, -3.25], [4], [35], [6.0, 0.1]]  # the third takes out what is then the last row: the one added first


def test_edits_are_done_in_their_order_and_leave_the_test_rows():
    plain, changed = data.load(ROWS), data.load({**ROWS, "edits": EDITS})

    kept = [row for row in range(36) if row != 4]
    assert torch.equal(changed.train.X[:35], plain.train.X[kept])
    assert len(changed.train) == 36
    assert changed.train.X[-1].tolist() == [6.0]
    assert float(changed.train.y[-1]) == 0.1
    assert torch.equal(changed.test.X, plain.test.X)
    assert changed.key != plain.key
    assert data.load({**ROWS, "edits": []}).key == plain.key


def test_a_link_and_an_exported_program_contain_the_edits():
    spec = Spec("cholqr", {"num_inducing": 5}, {**ROWS, "edits": EDITS}, kernel="se")
    text = link.write(spec)

    assert link.read(text, Spec("random")).spec == spec
    assert link.read(text, Spec("random")).corrected == ()
    names: dict[str, object] = {}
    exec(program(spec, 1).partition("\nprint")[0], names)
    run = spec.open()
    run.finish(steps=1)
    assert names["run"].scores()["smse"] == run.scores()["smse"]  # type: ignore[attr-defined]


FORMS = {
    "frame": lambda x, y: pd.DataFrame({"x": x, "y": y}),
    "pair": lambda x, y: (x[:, None], y),
    "series": lambda x, y: pd.DataFrame({"y": y}, index=pd.Index(x, name="x")),
    "Arrow": lambda x, y: pa.table({"x": x, "y": y}),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("named", [{"name": "rows.csv"}, {"name": "upload", "file": "rows.csv"}])
def test_edits_of_a_spec_change_rows_that_are_passed_with_it(form: str, named: dict[str, str]):
    x = np.linspace(0.0, 5.0, 30)
    source = FORMS[form](x, np.sin(x))
    spec = Spec("cholesky", data={**named, "edits": EDITS[:2]}, split="all", budget={"steps": 1})
    run = spec.open(data=source)
    train, plain = run.split.train, data.load(source, split="all")
    assert len(train) == 30
    np.testing.assert_allclose(train.X[:, 0] * train.scale.x_sd + train.scale.x_mean, [*np.delete(x, 4), 7.5])

    again = run.spec  # names the rows that were passed, and the edits
    assert again.data["edits"] == EDITS[:2]
    for rows in (source, plain):
        assert again.open(data=rows).split.key == run.split.key
    assert spec.open(data=plain).split.key != run.split.key  # a split is as it is
    with pytest.raises(DataError, match="the spec was made for"):
        again.open(data=data.load(FORMS[form](x, np.cos(x)), split="all"))
    with pytest.raises(DataError, match=r'were in memory.*"edits": \[\[7.5, -3.25\], \[4\]\]'):
        again.open()
    with pytest.raises(DataError, match="there is no row 99"):
        replace(spec, data={**named, "edits": [[99]]}).open(data=source)


@pytest.mark.parametrize(
    ("edits", "says"),
    [
        ("all", "give a list of at most 60"),
        ([[1.0, float("nan")]], "is not a list of finite numbers"),
        ([[True]], "is not a list of finite numbers"),
        ([[10**400]], "is not a list of finite numbers"),
        ([[1, 2]] * 61, "give a list of at most 60"),
        ([[36]], "there is no row 36 to remove from 36"),
        ([[-1]], "there is no row -1"),
        ([[1.5]], "there is no row 1.5"),
        ([[1.0, 2.0, 3.0]], "needs 1 inputs and a target, but this one has 3 numbers"),
    ],
)
def test_edits_that_cannot_be_made_are_refused_with_a_sentence(edits: object, says: str):
    with pytest.raises(DataError, match=says):
        data.load({**ROWS, "edits": edits})


def test_wrong_edits_in_a_link_are_dropped_and_the_rest_is_kept():
    opened = link.read("v=1&data=snelson-like&data.n=40&data.edits=%5B%5B%22x%22%5D%5D&seed=4", Spec("random"))

    assert opened.spec.seed == 4
    assert opened.spec.data == "snelson-like"
    assert "is not a list of finite numbers" in opened.corrected[0]
