"""The bench of promises: tables of three kinds, and one real answer beside the truth."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from benchmarks import promises
from benchmarks.__main__ import app


def test_new_rows_of_drawn_tables_are_of_their_kind():
    kinds = [table.kind for table in promises.drawn_tables(1)]
    assert kinds == ["random"] * 3 + ["groups"] * 3 + ["time"] * 3
    for table in promises.drawn_tables(1):
        if table.kind == "groups":
            assert not set(table.train["subject_id"]) & set(table.test["subject_id"])
        if table.kind == "time":
            assert table.train.iloc[:, 0].max() <= table.test.iloc[:, 0].min()


def test_promise_and_truth_of_a_folder_are_printed(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.uniform(0, 6, 160)
    table = pd.DataFrame({"x": x, "y": np.sin(x) + rng.normal(0, 0.2, 160)})
    (tmp_path / "sine").mkdir()
    table[:100].to_csv(tmp_path / "sine" / "train.csv", index=False)
    table[100:].to_csv(tmp_path / "sine" / "test.csv", index=False)
    (tmp_path / "tables.json").write_text(json.dumps({"sine": {"target": "y", "split": "rows at random"}}))
    answer, truth = promises.promise_and_truth(next(promises.files(tmp_path)), 1.0)
    assert 0.1 < truth < 0.4
    assert answer.expected["rmse"].low < 0.3
    shown = CliRunner().invoke(app, ["promises", str(tmp_path), "--draws", "0", "--seconds", "1"])
    assert shown.exit_code == 0
    assert shown.output.splitlines()[-1].startswith("random: the truth is inside on ")
