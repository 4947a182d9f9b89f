"""Marks that mean different things in one picture can be told apart with any of three kinds of colour blindness.

Colours are seen through the matrices of Machado, Oliveira and Fernandes (2009) for the whole loss of one kind of cone.
Where two colours come close, the marks have to differ in shape, size, dashes or width as well.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from bokeh.models import Line, Scatter, Segment

import gpexplorer as gpx
from gpexplorer.views.drawing.live import Live
from gpexplorer.views.drawing.palette import CYCLE, DIVERGING, ON_DARK, cycled
from steps_of import small_views

MACHADO = {  # rows of the matrices for red, green and blue light
    "no long cones": "0.152286 1.052583 -0.204868 0.114503 0.786281 0.099216 -0.003882 -0.048116 1.051998",
    "no medium cones": "0.367322 0.860646 -0.227968 0.280085 0.672501 0.047413 -0.011820 0.042940 0.968881",
    "no short cones": "1.255528 -0.076749 -0.178779 -0.078411 0.930809 0.147602 0.004733 0.691367 0.303900",
}
TO_CONES = "0.41222147 0.53633254 0.05144599 0.2119035 0.68069955 0.10739696 0.08830246 0.28171884 0.6299787"
TO_LAB = "0.21045426 0.79361779 -0.00407205 1.9779985 -2.42859221 0.45059371 0.0259040 0.78277177 -0.80867577"
CLOSE = 0.05  # in OKLab; .02 is the least difference that people see
THIN = 0.12  # of thin lines that only their colour tells apart, with all cones
LARGER = 1.5  # a mark or a line that is so many times as large differs by that
FAMILIES = ("cholqr", "gbcd", "grief", "grief-mcmc", "gpcv-admm", "scgd", "vecchia")


def matrix(numbers: str) -> np.ndarray:
    return np.array(numbers.split(), float).reshape(3, 3)


SEEN = {"all cones": np.eye(3)} | {kind: matrix(numbers) for kind, numbers in MACHADO.items()}


def oklab(colour: str, seen: np.ndarray) -> np.ndarray:
    """The colour in the coordinates of Ottosson (2020), as it is seen."""
    parts = np.array([int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    return matrix(TO_LAB) @ np.cbrt(matrix(TO_CONES) @ np.clip(seen @ linear, 0.0, 1.0))


@cache
def distance(first: str, second: str) -> float:
    """The least distance of two colours over all kinds of colour vision."""
    return min(float(np.linalg.norm(oklab(first, seen) - oklab(second, seen))) for seen in SEEN.values())


def shape(glyph: Any) -> tuple[Any, float] | None:
    """What a mark looks like without its colour, and its size; None for areas, which lie behind all others."""
    if isinstance(glyph, Scatter):
        hollow = glyph.fill_alpha == 0 or glyph.fill_color is None
        return ("mark", str(glyph.marker), hollow), float(getattr(glyph.size, "value", glyph.size))
    if isinstance(glyph, Line | Segment):
        return (type(glyph).__name__, str(glyph.line_dash)), float(getattr(glyph.line_width, "value", glyph.line_width))
    return None


def colour(glyph: Any) -> str | None:
    """The one colour of a mark; None where it comes from a column."""
    value = glyph.fill_color if isinstance(glyph, Scatter) and glyph.fill_alpha else glyph.line_color
    value = getattr(value, "value", value)
    return value if isinstance(value, str) and value.startswith("#") else None


def confused(figure: Any) -> list[str]:
    marks = []
    for renderer in figure.renderers:
        glyph = getattr(renderer, "glyph", None)
        if glyph is not None and shape(glyph) and colour(glyph):
            marks.append((renderer.data_source.name, colour(glyph), *shape(glyph)))
    return [
        f"{one[0]} and {other[0]}: {distance(one[1], other[1]):.3f}"
        for one, other in combinations(marks, 2)
        if one[1] != other[1] and one[2] == other[2] and distance(one[1], other[1]) < CLOSE
        and max(one[3], other[3]) < LARGER * min(one[3], other[3])
    ]  # fmt: skip


def test_the_distances_are_those_of_the_references():
    assert oklab("#ffffff", SEEN["all cones"]) == pytest.approx([1.0, 0.0, 0.0], abs=1e-4)
    assert oklab("#ff0000", SEEN["all cones"]) == pytest.approx([0.62796, 0.22486, 0.12585], abs=1e-3)
    for seen in SEEN.values():
        assert oklab("#ffffff", seen) == pytest.approx([1.0, 0.0, 0.0], abs=1e-3)  # grey stays grey
    red_and_green = np.linalg.norm(oklab("#d00000", SEEN["all cones"]) - oklab("#507000", SEEN["all cones"]))
    assert distance("#d00000", "#507000") < 0.4 * red_and_green


@pytest.fixture(scope="module")
def drawn() -> set[Any]:
    """The key, layers and columns of each picture that was drawn: families share pictures, and these make the marks."""
    return set()


@pytest.mark.parametrize("key", FAMILIES)
def test_marks_of_a_picture_can_be_told_apart(key: str, drawn: set[Any]):
    settings = {"chains": 3, "per_step": 6, "warm_up": 2, "samples": 6} if key == "grief-mcmc" else {}
    wrong = []
    for d in (1, 2):
        run = gpx.Spec(key, settings, data={"name": "hypercube", "n": 60, "d": d}).open()
        run.finish(steps=4)
        for view in small_views(run):
            layers = view.data(run, len(run.trace) - 1)
            parts = (view.key, *((name, *frame.columns) for name, frame in layers.items()))
            if parts in drawn:
                continue
            drawn.add(parts)
            live = Live(view, layers)
            for theme in ("light", "dark"):
                live.set_theme(theme)
                wrong += [f"{view.key}, {d} inputs, {theme}: {pair}" for pair in confused(live.figure)]
    assert wrong == []


def test_ten_lines_in_one_picture_can_be_told_apart():
    for twin in (lambda colour: colour, ON_DARK.__getitem__):
        for one, other in combinations([cycled(k) for k in range(len(CYCLE))], 2):
            same_dashes = one["line_dash"] == other["line_dash"]
            colours = twin(one["color"]), twin(other["color"])
            seen = [oklab(colour, SEEN["all cones"]) for colour in colours]
            assert not same_dashes or distance(*colours) >= CLOSE
            assert not same_dashes or np.linalg.norm(seen[0] - seen[1]) >= THIN


def test_both_signs_of_a_map_can_be_told_apart():
    for palette in DIVERGING.values():
        assert distance(palette[0], palette[-1]) > 2 * CLOSE
        assert distance(palette[len(palette) // 4], palette[3 * len(palette) // 4]) > CLOSE
