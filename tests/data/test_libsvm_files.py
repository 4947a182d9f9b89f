"""Files in the format of LIBSVM, as of many public sets: a target, and the inputs that are not 0 by their numbers."""

from __future__ import annotations

import gzip
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import dump_svmlight_file

import gpexplorer as gpx
from gpexplorer.data.files.reading import read_bytes, read_path, strips
from gpexplorer.data.files.size_limits import UPLOAD
from gpexplorer.errors import DataError
from gpexplorer.runs.studies.prediction_table import predictions_of_file

RNG = np.random.default_rng(0)
X = np.where(RNG.uniform(size=(80, 4)) < 0.3, 0.0, RNG.normal(size=(80, 4)))
Y = X[:, 0] + 2.0 * X[:, 3] + 5.0


def saved(X: np.ndarray, y: np.ndarray, zero_based: bool = False, comment: str | None = None) -> bytes:
    dump_svmlight_file(X, y, file := io.BytesIO(), zero_based=zero_based, comment=comment)
    return file.getvalue()


@pytest.mark.parametrize("name", ["rows.libsvm", "rows.svm", "rows.svmlight", "rows.txt", "rows.dat", "rows.libsvm.gz"])
@pytest.mark.parametrize("zero_based", [False, True])
def test_rows_are_read_with_zeros_where_nothing_is_written(tmp_path: Path, name: str, zero_based: bool):
    data = saved(X, Y, zero_based, comment="made by a test" if zero_based else None)
    path = tmp_path / name
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    raw = read_path(path)
    first = 0 if zero_based else 1

    assert raw.table.column_names == [*(f"x{first + i}" for i in range(4)), "y"]
    np.testing.assert_allclose(raw.table.to_pandas().to_numpy(), np.column_stack([X, Y]), rtol=1e-12)
    assert raw.notes == (f"{name} is in the format of LIBSVM: inputs are x{first} to x{first + 3}, the target is y.",)
    assert pd.concat(strip.table.to_pandas() for strip in strips(path)).equals(raw.table.to_pandas())
    split = gpx.load(path)
    assert split.train.target == "y"
    assert split.train.d == 4


def test_a_file_to_predict_has_the_inputs_of_training_even_if_its_last_ones_are_0(tmp_path: Path):
    (tmp_path / "train.txt").write_bytes(saved(X, Y))
    run = gpx.Spec("ml", kernel="se-ard", budget={"seconds": 3}).open(data=gpx.load(tmp_path / "train.txt"))
    run.finish()
    model = run.posterior(of="y")
    new = np.where(np.arange(4) == 3, 0.0, X[:5])
    (tmp_path / "new.txt").write_bytes(saved(new, np.zeros(5)))
    table = pd.concat(list(predictions_of_file(model, tmp_path / "new.txt")))

    np.testing.assert_allclose(table["mean"], new[:, 0] + 5.0, atol=0.3)


@pytest.mark.parametrize(
    "text",
    [
        "5.1 10:30\n5.2 11:45\n5.3 12:20\n",  # a number and a time
        "5.1 1:30 2:45\n5.2 3:15 4:20\n5.3 5:20 6:10\n",  # a number and two times
        "a b\n1 2\n3 4\n5 6\n",
    ],
)
def test_times_and_other_rows_are_not_taken_for_it(text: str):
    assert not any("LIBSVM" in note for note in read_bytes("rows.txt", text.encode(), UPLOAD).notes)


def test_inputs_that_look_like_times_are_read_where_all_rows_count_them_from_1():
    """They were read as columns of times without a word."""
    raw = read_bytes("ages.txt", b"7 1:30 2:45 3:10\n8 1:41 2:20 3:59\n9 1:12 2:33 3:15\n", UPLOAD)
    assert raw.table.to_pydict() == {"x1": [30, 41, 12], "x2": [45, 20, 33], "x3": [10, 59, 15], "y": [7, 8, 9]}


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("1 1:2 2:3\n" * 5 + "1 1:x 2:3\n", "rows.svm is not in the format of LIBSVM"),
        ("1 1:2 2:3\n" * 5 + "1 2:2 1:3\n", "rows.svm is not in the format of LIBSVM"),
        ("1 1:.5 90000:3\n" * 5, "90,001 columns and the limit is 1,000"),
        ("1 1:.5 2:3\n" * 5 + "1 99999999999:3\n", "rows.svm is not in the format of LIBSVM"),
        ("a,b\n1,2\n3,4\n", "rows.svm is not in the format of LIBSVM"),
        ("\n\n", "rows.svm"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(lines: str, sentence: str):
    with pytest.raises(DataError, match=sentence):
        read_bytes("rows.svm", lines.encode(), UPLOAD)
