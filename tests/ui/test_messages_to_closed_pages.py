"""A page that is closed while it is sent pictures leaves nothing in the log; any other error of a connection does."""

from __future__ import annotations

import asyncio
import gc
import logging
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from bokeh.document import Document
from panel.io import document as panel_document
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from gpexplorer.ui.browser.protocol_repairs import repair_connections


class Socket(WebSocketHandler):
    """A connection whose browser is gone: the first fragments of a message fail later, and the next ones at once."""

    def __init__(self, error: Exception) -> None:
        self.error, self.fragments = error, 0
        self.ws_connection: Any = SimpleNamespace(is_closing=lambda: self.fragments > 1, write_message=self.write)

    def write(self, _content: Any, binary: bool = False) -> asyncio.Future[None]:
        self.fragments += 1
        return asyncio.ensure_future(self.fail())

    async def fail(self) -> None:
        raise self.error


class Connection:
    """As much of a connection as Panel needs."""

    _socket: Socket


def complaints(error: Exception, is_over: bool, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log has after a message to this connection; Panel does not wait for it if the session `is_over`."""
    message = SimpleNamespace(header_json="{}", metadata_json="{}", content_json="{}", _buffers=[])
    connection = Connection()

    async def send() -> None:
        connection._socket = Socket(error)
        kept = panel_document._WRITE_MSGS[document] = {connection: [message]}
        panel_document._WRITE_BLOCK[document] = True
        task = asyncio.ensure_future(panel_document._dispatch_msgs(document))
        await asyncio.sleep(0)
        if is_over:
            task.cancel()  # as Panel does
        [ended] = await asyncio.gather(task, return_exceptions=True)
        assert ended is None or (is_over and isinstance(ended, asyncio.CancelledError))
        await asyncio.sleep(0.01)
        kept.clear()

    document = Document()
    with ThreadPoolExecutor(1) as thread:  # a browser test may have left a running loop in the main thread
        thread.submit(asyncio.run, send()).result()
    gc.collect()
    return [entry.getMessage() for entry in caplog.records if entry.levelno >= logging.WARNING]


@pytest.mark.parametrize("is_over", [False, True])
def test_only_the_error_of_a_closed_page_is_kept_out_of_the_log(is_over: bool, caplog: pytest.LogCaptureFixture):
    repair_connections()
    assert complaints(WebSocketClosedError(), is_over, caplog) == []
    assert "A message could not be sent: another error" in complaints(ValueError("another error"), is_over, caplog)
