"""Serving the page: the options that reach the server, messages about its address, and what it looks up only once."""

from __future__ import annotations

import socket
import subprocess
import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import panel as pn
import panel_material_ui as pmui
import pytest
import torch
from panel.io.server import DocHandler
from panel_material_ui.theme import MaterialDesign, MuiDarkTheme, MuiDefaultTheme

from commands import call
from gpexplorer.errors import StoreError
from gpexplorer.ui import session_page
from gpexplorer.ui.shared_limits import Limits


def test_serve_passes_its_options_on(monkeypatch: pytest.MonkeyPatch):
    from gpexplorer.ui import server as serving

    seen: dict[str, Any] = {}
    monkeypatch.setattr(serving, "serve", lambda **options: seen.update(options))

    caps = ("--max-sessions", "7", "--max-memory", "2.5", "--threads", "3", "--ready-pages", "4")
    caps += ("--max-sessions-per-address", "5")
    assert call("serve", "--port", "5099", "--origin", "lab.example:80", "--show", *caps) == 0

    assert seen.pop("limits") == Limits(7, 2.5e9, 3, 4, 5)
    expected = {"port": 5099, "address": "localhost", "show": True, "origins": ("lab.example:80",), "store": None}
    assert seen == expected


def test_limits_that_leave_no_memory_are_a_sentence(capsys: pytest.CaptureFixture[str]):
    assert call("serve", "--max-memory", "0.001") == 2
    assert "raise --max-memory" in capsys.readouterr().err


def test_a_port_in_use_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from gpexplorer.ui import server as serving

    def taken(**_: Any) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(serving, "serve", taken)

    assert call("serve") == 2
    assert (
        "Cannot listen on localhost:5006 (Address already in use): choose another --port or" in capsys.readouterr().err
    )


def test_a_port_in_use_is_reported_before_the_page_is_imported():
    with socket.create_server(("localhost", 0)) as other:
        port = other.getsockname()[1]
        code = (
            "import sys\nfrom gpexplorer.__main__ import main\n"
            f"try:\n    main(['serve', '--port', '{port}'])\n"
            "finally:\n    print('panel' in sys.modules, 'torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert f"Cannot listen on localhost:{port} (Address already in use): choose another --port" in done.stderr
    assert done.stdout == "False False\n"


def test_serve_listens_before_it_prepares_pages_and_prints_its_address_after_both(monkeypatch: pytest.MonkeyPatch):
    from gpexplorer.ui import server as serving

    order: list[str] = []
    monkeypatch.setattr(serving, "protect", lambda _, max_sessions, **__: order.append(f"guard of {max_sessions}"))
    monkeypatch.setattr(serving, "repair_protocol", lambda: None)
    monkeypatch.setattr(serving, "warm", lambda: order.append("warm"))
    for name in ("get_session", "get"):
        monkeypatch.setattr(DocHandler, name, getattr(DocHandler, name))
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    loop = SimpleNamespace(
        start=lambda: order.append("answers"), add_callback=lambda call: order.append(call.__qualname__)
    )
    tornado = Mock(_websocket_origins=set(), _applications={"/explorer": None}, prefix="")
    server = SimpleNamespace(start=lambda: None, io_loop=loop, _tornado=tornado)
    monkeypatch.setattr("panel.serve", lambda *_, start, **__: order.append(f"listens, started: {start}") or server)
    monkeypatch.setattr("builtins.print", lambda text, **_: order.append(text))

    assert call("serve", "--port", "5099") == 0

    # A taken port raises where the server begins to listen, so it is reported before the slow preparation.
    address = "Explorer: http://localhost:5099/explorer"
    begun = ["ReadySessions.keep_filled", "ReadySessions.keep_serving", "ClosedPages.keep_freeing"]
    assert order == ["listens, started: False", "guard of 60", "warm", *begun, address, "answers"]


def test_a_store_that_cannot_be_opened_is_not_reported_as_a_port(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    from gpexplorer.ui import server as serving

    def unreadable(**_: Any) -> None:
        raise StoreError("The store /nowhere cannot be opened.")

    monkeypatch.setattr(serving, "serve", unreadable)

    assert call("serve") == 2
    message = capsys.readouterr().err
    assert "/nowhere cannot be opened" in message
    assert "Cannot listen" not in message


def test_a_server_for_measurements_counts_its_players_and_those_that_compute():
    from benchmarks.hammer.observed_server import players
    from gpexplorer.ui.playback.player import Player

    computing, living = players()
    player = Player()
    assert players() == (computing, living + 1)
    player.close()
    player.thread.join(10)
    assert players() == (computing, living)


@pytest.mark.parametrize("theme", [MuiDefaultTheme(), MuiDarkTheme()], ids=["light", "dark"])
@pytest.mark.parametrize("component", [pn.pane.HTML("x"), pmui.Button(label="x")], ids=["pane", "button"])
def test_what_a_design_changes_is_kept_per_class_and_not_changed_by_who_asks(component: Any, theme: Any):
    expected = MaterialDesign._get_modifiers(component, theme)

    for _ in range(2):
        own, of_children = session_page._get_modifiers(MaterialDesign, component, theme)
        assert (own, of_children) == expected
        own["stylesheets"] = of_children["margin"] = "changed by who asked"
