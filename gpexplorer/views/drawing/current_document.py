"""A repair of Bokeh's current document, and a document of its own for each drawing.

Bokeh 3.9 keeps a stack of current documents for callbacks. `bokeh.io.doc.patch_curdoc` does not remove its entry when
the callback raises, so one exception in one session makes that session's document the current one of the whole
process. HoloViews attaches each new plot to the current document; once the session is over, every drawing in every
other session raises "Patched curdoc has been previously destroyed", until the server is restarted.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from bokeh.document import Document
from bokeh.io import doc as bokeh_doc

IMPORTERS = ("panel.io.handlers", "bokeh.application.handlers.code")  # modules with a name of their own for it


@contextmanager
def current_document(document: Any) -> Iterator[None]:
    """Make a document the current one inside the block, also if the block raises."""
    stack = bokeh_doc._PATCHED_CURDOCS
    entry = weakref.ref(document)
    stack.append(entry)
    try:
        yield
    finally:
        for index in reversed(range(len(stack))):
            if stack[index] is entry:
                del stack[index]
                break


@contextmanager
def own_document() -> Iterator[None]:
    """Make a new document the current one inside the block, so that what is drawn belongs to no session."""
    document = Document()
    with current_document(document):
        yield


def repair_current_document() -> None:
    """Use `current_document` in place of `patch_curdoc`, everywhere in this process."""
    bokeh_doc.patch_curdoc = current_document
    for name in IMPORTERS:
        if name in sys.modules:
            sys.modules[name].patch_curdoc = current_document  # type: ignore[attr-defined]
