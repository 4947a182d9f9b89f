"""Numbers on the page: four figures, thousands apart, one sign for what is below zero."""

from __future__ import annotations

import math

import pytest

from gpexplorer.ui.text import number


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (0.0, "0"), (-0.21504, "−0.215"), (-1115.49, "−1,115.5"), (60860.11, "60,860.1"), (-2e-7, "−2e−07"),
        (math.nan, "—"), (-math.inf, "—"),
    ],
)  # fmt: skip
def test_a_number_is_written_as_people_read_it(value: float, sentence: str):
    assert number(value) == sentence
