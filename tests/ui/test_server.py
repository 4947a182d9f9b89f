"""Serving the page from the command line: what it is told, and what it says of its address."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from gpexplorer.__main__ import main


def call(*arguments: str) -> int:
    """The exit code of one command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return int(ended.value.code or 0)


def test_serve_passes_what_it_was_told(monkeypatch: pytest.MonkeyPatch):
    from gpexplorer.ui import server as serving

    seen: dict[str, Any] = {}
    monkeypatch.setattr(serving, "serve", lambda **options: seen.update(options))

    assert call("serve", "--port", "5099", "--origin", "lab.example:80", "--show") == 0

    expected = {"port": 5099, "address": "localhost", "show": True, "origins": ("lab.example:80",), "store": None}
    assert seen == expected


def test_a_port_in_use_is_a_sentence(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from gpexplorer.ui import server as serving

    def taken(**_: Any) -> None:
        raise OSError(98, "Address already in use")

    monkeypatch.setattr(serving, "serve", taken)

    assert call("serve") == 2
    assert (
        "Cannot listen on localhost:5006 (Address already in use): choose another --port or" in capsys.readouterr().err
    )


def test_serve_names_its_address_once_it_listens(monkeypatch: pytest.MonkeyPatch):
    from gpexplorer.ui import page
    from gpexplorer.ui import server as serving

    order: list[str] = []
    monkeypatch.setattr(serving, "guard", lambda _: None)
    monkeypatch.setattr(page, "warm", lambda _: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    loop = SimpleNamespace(start=lambda: order.append("answers"))
    server = SimpleNamespace(start=lambda: None, io_loop=loop)
    monkeypatch.setattr("panel.serve", lambda *_, start, **__: order.append(f"listens, started: {start}") or server)
    monkeypatch.setattr("builtins.print", lambda text, **_: order.append(text))

    assert call("serve", "--port", "5099") == 0

    assert order == ["listens, started: False", "Explorer: http://localhost:5099/explorer", "answers"]
