"""The player of a run, and what a cell does with the explorers that it showed before."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import panel as pn
import param
import pytest
from panel_material_ui.theme import MaterialDesign

import gpexplorer as gpx
from gpexplorer.errors import SettingError
from gpexplorer.ui.notebook import shown_in_cells as cells
from gpexplorer.ui.notebook.relay import file
from pages import until


def alive() -> int:
    return sum(thread.name == "gpexplorer-player" for thread in threading.enumerate())


@pytest.mark.parametrize("is_cell", [True, False])
def test_parts_that_a_cell_builds_have_the_design_of_our_pages(is_cell: bool, monkeypatch: pytest.MonkeyPatch):
    """With the design of a kernel, which is light, titles and legends were dark on the dark page of a cell."""
    monkeypatch.setattr("gpexplorer.ui.page.in_notebook", lambda: is_cell)
    with pn.config.set(design=None):
        explorer = gpx.Explorer(gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like"))
        assert pn.config.design is None
        design = explorer.pictures.top.design
    explorer.close()
    assert design is (MaterialDesign if is_cell else None)


def test_the_position_and_the_record_of_a_player_can_be_watched_and_set():
    run = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like").open()
    before = alive()
    player, seen = run.widget("convergence"), []
    player.param.watch(lambda event: seen.append(event.new), "last")

    player.playing = True
    until(lambda: player.update(0.2) and player.last > 2)
    player.at = 1
    until(lambda: player.update(0.2) and not player.playing and player.at == 1)

    assert seen == sorted(seen)
    assert player.record.index == 1
    player.close()
    until(lambda: alive() == before)
    assert run.advance() is not None  # the run belongs to the caller


def test_a_run_without_a_spec_has_no_player():
    run = gpx.Spec("random", {"num_inducing": 3}, data="snelson-like").open()
    with pytest.raises(SettingError, match="no picture"):
        run.widget("fitt")
    bare = gpx.Run(run.method, run.problem)
    with pytest.raises(SettingError, match=r"Spec\.open"):
        bare.widget()


def test_a_cell_that_is_run_again_closes_what_it_showed_before(monkeypatch: pytest.MonkeyPatch):
    closed: list[str] = []
    cell = {"metadata": {"cellId": "a"}}
    shell = SimpleNamespace(get_parent=lambda: cell, execution_count=1)
    monkeypatch.setattr(cells, "_shell", lambda: shell)
    shown = {name: SimpleNamespaceWithClose(name, closed) for name in ("first", "beside", "again", "elsewhere")}
    board = cells.Cells()

    board.show(shown["first"])
    board.show(shown["beside"])
    cell["metadata"]["cellId"] = "b"
    board.show(shown["elsewhere"])
    assert closed == []
    cell["metadata"]["cellId"], shell.execution_count = "a", 3
    board.show(shown["again"])

    assert closed == ["first", "beside"]


class SimpleNamespaceWithClose:
    """Something that a cell shows, which notes that it was closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name, self.closed, self.widgets = name, closed, []

    def close(self) -> None:
        self.closed.append(self.name)


def test_a_page_whose_browser_is_silent_is_closed(monkeypatch: pytest.MonkeyPatch):
    relay = pytest.importorskip("gpexplorer.ui.notebook.relay")
    monkeypatch.setattr(relay, "SILENCE", 0.2)

    async def silent(seconds: float) -> bool:
        closed: list[int] = []
        connection = relay.Connection(lambda fields: None)
        connection._socket = SimpleNamespace(close=lambda: closed.append(1), close_code=None)
        connection._look()
        await asyncio.sleep(0.12)
        connection.heard = time.monotonic()  # it said that it is there
        await asyncio.sleep(0.12)
        assert closed == []
        await asyncio.sleep(seconds)
        return bool(closed)

    with ThreadPoolExecutor(1) as elsewhere:  # a browser test before may have left a loop running in this thread
        assert elsewhere.submit(lambda: asyncio.run(silent(0.4))).result()


def test_a_player_in_the_test_harness_of_ipywidgets(monkeypatch: pytest.MonkeyPatch):
    """What every front gets: a view of a model whose state has the program, beside a picture for a saved notebook."""
    relay = pytest.importorskip("gpexplorer.ui.notebook.relay")
    harness = pytest.importorskip("ipywidgets.widgets.tests.utils")
    monkeypatch.setattr(relay, "kernel_server", lambda: SimpleNamespace(add=lambda page: "its number"))
    monkeypatch.setattr(cells, "in_notebook", lambda: True)
    monkeypatch.setattr(cells, "_shell", lambda: None)
    player = gpx.Spec("random", {"num_inducing": 3}, data="snelson-like").open().widget()
    harness.setup_test_comm()
    try:
        bundle = player._repr_mimebundle_()
        [widget] = player.widgets
        state = widget.get_state()
        player.close()
    finally:
        harness.teardown_test_comm()

    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == harness.DummyComm.comm_id
    assert (state["_model_module"], state["title"]) == ("anywidget", "Player")
    assert "export default" in state["_esm"]
    assert not re.search(r"https?://", state["_esm"])
    assert bundle["image/svg+xml"].startswith("<svg")


def test_bytes_pass_a_gateway_that_takes_messages_of_text_only(monkeypatch: pytest.MonkeyPatch):
    relay = pytest.importorskip("gpexplorer.ui.notebook.relay")
    content, sent, written = bytes(range(256)), [], []
    monkeypatch.setattr(relay, "kernel_server", lambda: SimpleNamespace(add=lambda page: "its number"))
    monkeypatch.setattr(relay, "file", lambda path: SimpleNamespace(type="font/woff2", content=content))

    async def written_message(part: str | bytes, binary: bool = False) -> None:
        written.append((part, binary))

    async def there_and_back() -> None:
        widget = relay.Relay(print, "a page")
        monkeypatch.setattr(widget, "send", lambda message, buffers=None: sent.append((json.dumps(message), buffers)))
        connection = relay.Connection(widget.send)
        connection._socket = SimpleNamespace(write_message=written_message)
        widget._connections["view"] = connection
        widget._receive(widget, {"view": "view", "ask": "file", "path": "a font", "id": 1}, [])
        connection._receive("head")
        connection._receive(content)
        while len(sent) < 2:
            await asyncio.sleep(0.001)
        messages = {name: value for message, _ in sent for name, value in json.loads(message).items()}
        assert base64.b64decode(messages["base64"]) == content
        widget._receive(widget, {"view": "view", "ask": "send", "fragments": messages["fragments"]}, [])
        while len(written) < 2:
            await asyncio.sleep(0.001)
        widget.close()

    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(lambda: asyncio.run(asyncio.wait_for(there_and_back(), 20))).result()
    assert not any(buffers for _, buffers in sent)
    assert written == [("head", False), (content, True)]


def test_the_parameters_of_a_player_and_the_settings_of_a_method_drive_other_objects():
    run = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like").open()
    run.finish(steps=3)
    player, seen = run.widget("convergence"), []

    class Report(param.Parameterized):
        player = param.Parameter()

        @param.depends("player.at", watch=True)
        def note(self) -> None:
            seen.append(self.player.at)

    report = Report(player=player)
    shown = pn.panel(pn.bind(lambda at, record: f"{at}: {record.index}", player.param.at, player.param.record))
    rx = player.param.at.rx() + 100
    assert shown._pane.object == "3: 3"
    player.at = 2  # in the same cell, before any frame was taken
    until(lambda: player.update(0.2) and player.record.index == 2)

    assert seen[-1] == report.player.at == 2
    assert shown._pane.object == "2: 2"
    assert rx.rx.value == 102
    size = pn.bind(lambda m: 2 * m, run.method.param.num_inducing)
    assert size() == 8
    player.close()


def test_hvplot_draws_the_table_of_a_run():
    import hvplot.pandas  # noqa: F401  (it gives data frames their hvplot)

    run = gpx.Spec("cholqr", {"num_inducing": 4}, data="snelson-like").open()
    run.finish(steps=3)
    assert len(run.table().hvplot.line(y="objective")) == len(run.trace)


def test_files_of_a_page_come_with_their_fonts_and_never_from_elsewhere():
    icons = file("static/extensions/panel-material-ui/material-icons.css?v=1")

    assert icons.type == "text/css"
    assert b"font/woff2;base64," in icons.content
    assert len(file("/static/js/bokeh.min.js").content) > 100_000
    for path in ("static/../../__init__.py", "static/extensions/panel/../../__init__.py", "etc/passwd"):
        with pytest.raises(SettingError, match="no file"):
            file(path)
