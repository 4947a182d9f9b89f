"""Changes of a page that follow upon work in a thread are made while its document is locked.

A coroutine of a page goes on without the lock after it has waited. What it changes then is sent apart from the
changes of the page's other callbacks, and was lost now and then: a text "Reading the store …" stood for ever.
"""

from __future__ import annotations

from collections.abc import Callable

from bokeh.document import Document


def change(document: Document | None, act: Callable[[], None]) -> None:
    """Make a change as soon as the document is locked; at once where no server holds it, and never once it is closed.

    Parameters
    ----------
    document
        The document of the page, as `panel.state.curdoc` was before the work began; None outside a page.
    act
        Makes the change.
    """
    context = None if document is None else document.session_context
    if document is None or context is None:
        act()
    elif not context.destroyed:
        document.add_next_tick_callback(act)
