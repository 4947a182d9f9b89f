"""Changes after work in a thread wait for the lock of the document, and are dropped when the page is closed."""

from __future__ import annotations

from types import SimpleNamespace

from bokeh.document import Document

from gpexplorer.ui.playback.locked_change import change


def served(destroyed):
    document = Document()
    document._session_context = lambda: SimpleNamespace(destroyed=destroyed)
    return document


def test_a_change_waits_for_the_next_tick_of_its_document():
    document, made = served(destroyed=False), []
    change(document, lambda: made.append(1))
    assert made == []
    [callback] = document.session_callbacks
    callback.callback()
    assert made == [1]


def test_a_page_that_is_closed_is_left_alone():
    document, made = served(destroyed=True), []
    change(document, lambda: made.append(1))
    assert made == []
    assert document.session_callbacks == []


def test_without_a_server_a_change_is_made_at_once():
    for document in (None, Document()):
        made = []
        change(document, lambda made=made: made.append(1))
        assert made == [1]
