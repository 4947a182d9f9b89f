"""Which numbers of a table are asked about."""

from __future__ import annotations

import numpy as np
import pytest

from gpexplorer.data.table_checks import note_on_stand_in


@pytest.mark.parametrize(
    ("others", "code", "rows", "is_asked"),
    [
        ([1.0, 2.0], -999, 3, True),
        ([1.0, 2.0, 3.0], -999, 1, True),
        ([1.0, 2.0, 3.0], 8, 3, True),
        ([1.0, 2.0, 3.0], 88, 5, True),
        ([0.25, 0.5, 7.5], 99, 3, True),
        ([1.0, 2.0, 3.0], -88, 3, True),
        ([1.0, 2.0, 3.0], 88, 2, False),
        ([1.0, 2.0], 99, 3, False),
        ([1.0, 2.0, 4.0], 9, 3, False),
        ([1.0, 2.0, 4.0], 77, 3, False),
        ([10.0, 20.0, 40.0], 99, 30, False),
        ([1.0, 2.0, 3.0], 98, 3, False),
    ],
)
def test_short_codes_are_asked_about_where_they_are_repeated_far_from_the_others(
    others: list[float], code: float, rows: int, is_asked: bool
) -> None:
    notes = note_on_stand_in("a", np.array(others * 10 + [code] * rows))
    says = f'"a" is {code} in {rows} cell{"s" * (rows > 1)} and from {others[0]:g} to {others[-1]:g} in the others: '
    assert [note.startswith(says) for note in notes] == [True] * is_asked
