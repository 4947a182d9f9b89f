"""Changes that a page makes after it has waited for a thread, made while its document is locked.

A coroutine of a page continues without the lock after an `await`. Changes that it makes then are sent separately from
those of the page's other callbacks, and some of them were lost: the text "Reading the store …" never went away.
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
