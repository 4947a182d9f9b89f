"""A screen as one HTML file that plays without a server and without a network, and the first screen as such a file.

It is apart because files are written without a page, and the page takes only the player and its style from here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from ...errors import SettingError
from ...runs.run import Run
from ..saved_page.page_file import UNPACK, content_policy, packed_bokeh
from .lesson_figures import document_json
from .lesson_frames import Lesson, lesson_of

HERE = Path(__file__).parent
SHELL = (HERE / "page_shell.js").read_text("utf-8")
PLAYER = SHELL + (HERE / "lesson_player.js").read_text("utf-8")
STYLE = (HERE / "lesson_style.css").read_text("utf-8")
CONTENT = 'const content = JSON.parse(document.getElementById("content").textContent)\n'
BEGIN = """gpexplorerBokeh().then(() => {
  Bokeh.set_log_level("error")
  gpexplorerLesson(document.getElementById("screen"), content)
})"""


def save_lesson(run: Run, path: str | os.PathLike[str]) -> Path:
    """Write a run that swaps points over one input as an HTML file of about 0.6 MB; `lesson_of` has the conditions.

    Raises
    ------
    SettingError
        If the file cannot be written, or the run has no lesson.
    """
    return written(path, lambda: lesson_page(lesson_of(run)))


def lesson_page(lesson: Lesson) -> str:
    """Return the text of the file."""
    content = {"lesson": lesson, "document": document_json(lesson)}
    return screen_page(content, [UNPACK, PLAYER], BEGIN, bokeh=packed_bokeh())


def screen_page(
    content: Mapping[str, Any], scripts: Sequence[str], begin: str, style: str = STYLE, bokeh: str = ""
) -> str:
    """Return an HTML file in which a script draws `content` into the element "screen".

    Parameters
    ----------
    content : mapping
        What is shown; strict JSON.
    scripts : sequence of str
        What has to be defined first.
    begin : str
        Draws the constant `content`.
    style : str, optional
        By default that of all screens.
    bokeh : str, optional
        The packed program of Bokeh, for scripts that run it.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    scripts = [*scripts, CONTENT + begin]
    return "".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(content_policy(scripts))}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>gpexplorer</title><style>body {{ margin: 0 }}\n{style}</style></head><body>",
        '<div id="screen" class="lesson"></div>',
        f'<script type="application/json" id="content">{text}</script>',
        f'<script type="text/plain" id="bokeh">{bokeh}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ])  # fmt: skip


def written(path: str | os.PathLike[str], content: Callable[[], str]) -> Path:
    """Write a text to a file and return its path; SettingError where that cannot be done."""
    target = Path(path)
    try:
        target.write_text(content(), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"Cannot write {target} ({error.strerror or error}): choose another file.") from None
    return target
