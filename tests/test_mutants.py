"""What the mutation tests change, and what they leave alone because nobody sees it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from equivalent_mutants import EQUIVALENT
from source_mutants import mutants, owners, with_notes

SOURCE = '''
import holoviews as hv
def drawn(x: int = 3, scale=-1.5):
    """Two words."""
    if x < 7:
        return f"{x + 1:.2f} of {LAST}"
    style = {"line_width": 2, "value": 4}
    y = (x.clamp_min(1e-300) * 2.0).reshape(-1, 4)
    parts = dots(y, size=5, value=6, rows=torch.randperm(x, generator=generator(0, "rows")))
    return overlay(parts, y, 3, show_grid=False)
'''


@pytest.mark.parametrize(
    ("sentences", "changes"),
    [
        (False, ["< becomes >=", "7 becomes 8", "+ becomes -", "1 becomes 2", "4 becomes 5", "* becomes /",
                 "2.0 becomes 4.0", "4 becomes 5", "6 becomes 7"]),
        (True, ["< becomes >=", "7 becomes 8", "+ becomes -", "1 becomes 2"]),
    ],
)  # fmt: skip
def test_numbers_change_and_words_sizes_of_marks_and_guards_do_not(sentences: bool, changes: list[str]):
    found = list(mutants(SOURCE, sentences))

    assert sorted(mutant.change for mutant in found) == sorted(changes)
    assert {mutant.function for mutant in found} == {"drawn"}
    bound = next(mutant for mutant in found if mutant.change == "7 becomes 8")
    assert bound.text == "if x < 7:"
    assert compile(bound.tree(), "", "exec")
    no_picture = SOURCE.replace("import holoviews as hv", "")  # in which a size may be a number
    assert len(list(mutants(no_picture))) == 13
    assert len(list(mutants(no_picture.replace("def", "from bokeh.models import Title\ndef")))) == 9


def test_functions_note_the_statements_that_they_reach():
    source = '''
class Sum:
    def of(self, rows):
        """Add."""
        total = 0
        for row in rows:
            if row > 2:
                total += row
            elif row > 1:
                total = (
                    -total)
            else:
                total -= row
        return sum([total],
                   start=0)
'''
    noted: list[tuple[str, int]] = []
    module = {"note": lambda *place: noted.append(place)}
    exec(compile(with_notes(ast.parse(source), "note", "file"), "file", "exec"), module)

    assert module["Sum"]().of([3, 1]) == 2
    assert noted == [("file", line) for line in (5, 6, 7, 8, 7, 9, 13, 14)]
    assert [owners(source)[line] for line in (5, 10, 11, 14, 15)] == [5, 10, 10, 14, 14]


@pytest.mark.parametrize("name", EQUIVALENT)
def test_what_is_called_equivalent_is_a_mutant_of_its_file(name: str, root: Path):
    found = {(mutant.text, mutant.change) for mutant in mutants((root / "gpexplorer" / name).read_text("utf-8"))}

    assert set(EQUIVALENT[name]) <= found
