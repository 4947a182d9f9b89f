"""Changes after work in a thread wait for the lock of the document, and are dropped when the page is closed."""

from __future__ import annotations

from types import SimpleNamespace

from bokeh.document import Document

from gpexplorer.ui.browser.callbacks import change


def served(destroyed):
    document = Document()
    document._session_context = lambda: SimpleNamespace(destroyed=destroyed)
    return document


def test_a_change_waits_for_the_next_tick_of_its_document():
    document, changes = served(destroyed=False), []
    change(document, lambda: changes.append(1))
    assert changes == []
    [callback] = document.session_callbacks
    callback.callback()
    assert changes == [1]


def test_a_page_that_is_closed_is_left_alone():
    document, changes = served(destroyed=True), []
    change(document, lambda: changes.append(1))
    assert changes == []
    assert document.session_callbacks == []


def test_without_a_server_a_change_is_made_at_once():
    for document in (None, Document()):
        changes = []
        change(document, lambda changes=changes: changes.append(1))
        assert changes == [1]
