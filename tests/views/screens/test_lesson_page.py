"""The first screen as a file: small, alone, and whole."""

from __future__ import annotations

import re
from html import unescape

import pytest

from gpexplorer.errors import SettingError
from gpexplorer.views.screens.lesson_page import PLAYER, lesson_figures, lesson_of, lesson_spec, save_lesson


@pytest.fixture(scope="module")
def run():
    run = lesson_spec(6).open()
    run.finish()
    return run


def test_the_file_is_small_and_loads_nothing(run, tmp_path):
    content = save_lesson(run, tmp_path / "lesson.html").read_text("utf-8")

    assert len(content.encode()) < 800_000
    assert "default-src 'none'" in unescape(content)
    assert re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=", content) == []


def test_axes_begin_with_the_short_labels_of_a_phone(run):
    """Bokeh does not wipe away the part of a long label that a narrow figure has no room for."""
    figures = lesson_figures(lesson_of(run))
    for name in ("landscape", "curve"):
        label = getattr(figures, name).yaxis.axis_label
        assert re.search(rf'\["{name}", "[^"]+", "{re.escape(label)}"\]', PLAYER)


def test_a_folder_that_is_not_there_is_named(run, tmp_path):
    with pytest.raises(SettingError, match=r"Cannot write .*nowhere"):
        save_lesson(run, tmp_path / "nowhere" / "lesson.html")
