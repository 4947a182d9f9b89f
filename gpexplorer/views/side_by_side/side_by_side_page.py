"""The families side by side as one HTML file that plays without a server and without a network."""

from __future__ import annotations

import os
from pathlib import Path

from ..lesson.lesson_page import SHELL, screen_page, written
from ..lesson.lesson_page import STYLE as SCREEN_STYLE
from .family_frames import FAMILIES, SIZE, StepTimes, family_of, surface_of

HERE = Path(__file__).parent
PLAYER = SHELL + (HERE / "side_by_side_player.js").read_text("utf-8")
STYLE = SCREEN_STYLE + (HERE / "side_by_side_style.css").read_text("utf-8")
BEGIN = """
const player = gpexplorerSideBySide(document.getElementById("screen"), {surface: content.surface})
for (const [key, family] of Object.entries(content.families)) player.add(key, family)
player.time(content.times, "")"""


def save_side_by_side(path: str | os.PathLike[str], n: int = SIZE, largest: int = 2000) -> Path:
    """Run all families and write them as an HTML file of about half a megabyte.

    Parameters
    ----------
    path : str or PathLike
        The file.
    n : int, default 500
        Training rows.
    largest : int, default 2000
        The largest number of rows on which the time of a step is measured.

    Raises
    ------
    SettingError
        If the file cannot be written.

    Notes
    -----
    It takes about half a minute: the seconds in the file are those of this machine.
    """

    def content() -> str:
        families = {key: family_of(key, n) for key in FAMILIES}
        times = StepTimes(largest)
        while times.advance():
            pass
        shown = {"surface": surface_of(n), "families": families, "times": times.table}
        return screen_page(shown, [PLAYER], BEGIN, STYLE)

    return written(path, content)
