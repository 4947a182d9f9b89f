"""The first screen as one HTML file that plays without a server and without a network.

It is apart because files are written without a page, and the page takes only the player and its style from here.
"""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path

from bokeh.util.paths import bokehjs_path

from ...errors import SettingError
from ...runs.run import Run
from ..saved_page.page_file import content_policy
from .lesson_figures import document_json
from .lesson_frames import Lesson, lesson_of

HERE = Path(__file__).parent
PLAYER = (HERE / "lesson_player.js").read_text("utf-8")
STYLE = (HERE / "lesson_style.css").read_text("utf-8")
BEGIN = """
const content = JSON.parse(document.getElementById("content").textContent)
Bokeh.set_log_level("error")
gpexplorerLesson(document.getElementById("lesson"), content)"""


def save_lesson(run: Run, path: str | os.PathLike[str]) -> Path:
    """Write a run that swaps points over one input as an HTML file of about 1.4 MB; `lesson_of` has the conditions.

    Raises
    ------
    SettingError
        If the file cannot be written, or the run has no lesson.
    """
    target = Path(path)
    try:
        target.write_text(lesson_page(lesson_of(run)), encoding="utf-8")
    except OSError as error:
        raise SettingError(f"Cannot write {target} ({error.strerror or error}): choose another file.") from None
    return target


def lesson_page(lesson: Lesson) -> str:
    """Return the text of the file."""
    text = json.dumps({"lesson": lesson, "document": document_json(lesson)}, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")
    scripts = [(bokehjs_path() / "js" / "bokeh.min.js").read_text("utf-8"), PLAYER, BEGIN]
    return "".join([
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{escape(content_policy(scripts))}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>gpexplorer</title><style>body {{ margin: 0 }}\n{STYLE}</style></head><body>",
        '<div id="lesson" class="lesson"></div>',
        f'<script type="application/json" id="content">{text}</script>',
        *(f"<script>{script}</script>" for script in scripts),
        "</body></html>",
    ])  # fmt: skip
