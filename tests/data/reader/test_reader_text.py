"""Nothing in the text of a reader is trusted: a field of another kind, or one that is missing, is an error."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

import gpexplorer as gpx
from gpexplorer.data.reader.table_reader import reader_from
from gpexplorer.errors import DataError

TEXT = gpx.load(
    pd.DataFrame({"x": np.arange(30.0) ** 2, "wood": ["elm", "fir", "oak"] * 10, "y": np.arange(30.0) % 7}),
    split="all",
).train.reader.to_json()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("median", "1" + "0" * 400), ("median", "NaN"), ("median", "true"), ("median", '"1"'), ("rows", "true"),
        ("rows", "1.5"), ("small", "1"), ("decimal", '"!"'), ("kind", "[]"), ("on_gap", '"?"'), ("order", '"myd"'),
    ],
)  # fmt: skip
def test_a_field_of_another_kind_is_refused(field: str, value: str) -> None:
    wrong = re.sub(rf'"{field}": [^,}}]*', f'"{field}": {value}', TEXT)
    assert wrong != TEXT
    with pytest.raises(DataError, match="cannot be read"):
        reader_from(wrong)


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        (r'"names": [^]]*]', '"names": "elm"'), (r'"counts": [^]]*]', '"counts": [-1, 2, 3]'),
        (r'"counts": [^]]*]', '"counts": [1]'), ('"low"', '"lower"'), (r'"texts": \[]', '"texts": [1]'),
    ],
)  # fmt: skip
def test_a_part_that_does_not_fit_is_refused(part: str, instead: str) -> None:
    wrong = re.sub(part, instead, TEXT)
    assert wrong != TEXT
    with pytest.raises(DataError, match="cannot be read"):
        reader_from(wrong)
