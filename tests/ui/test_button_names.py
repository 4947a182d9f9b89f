"""What a screen reader calls the buttons: it reads the tooltip in place of the label, so both begin alike."""

from __future__ import annotations

import ast
from pathlib import Path

from gpexplorer import ui
from gpexplorer.ui.playback.player import Player
from gpexplorer.ui.playback.transport import Transport

# A tooltip replaces the label of these.
REPLACED = {"Button", "FileInput", "FileUpload", "FileDownload", "Toggle", "MenuButton", "SplitButton"}


def test_no_tooltip_hides_the_label_of_a_button():
    hidden = [
        f"{path.name}:{call.lineno}"
        for path in sorted(Path(ui.__file__).parent.rglob("*.py"))
        for call in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(call, ast.Call) and getattr(call.func, "attr", getattr(call.func, "id", "")) in REPLACED
        if {"label", "description"} <= {word.arg for word in call.keywords}
    ]

    assert hidden == []


def test_the_button_that_plays_is_called_by_what_it_does_now():
    player = Player()
    transport = Transport(player, lambda: None)
    names = [transport.play.description]

    for playing in (True, False):
        transport._show_playing(playing)
        names.append(transport.play.description)
        assert transport.play.description.startswith(transport.play.label)
    player.close()

    assert names == ["Play: play or pause (space)", "Pause: play or pause (space)", "Play: play or pause (space)"]
