"""Changes of the page that are sent to the browser in the order in which they were made.

Panel sends its own changes at once or a little later; changes made on Bokeh's models wait until the callback ends. On a
busy machine one kind can overtake the other: the browser receives a reference to a model that it does not know yet, or
the last picture is sent only after the next click. While the document is on hold, all changes wait and leave together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import panel as pn


@contextmanager
def together() -> Iterator[None]:
    """Hold all changes made inside the block on this session's page, and send them when the block ends."""
    doc = pn.state.curdoc
    if doc is None or doc.session_context is None or doc.callbacks.hold_value:
        yield
        return
    doc.hold("combine")
    try:
        yield
    finally:
        doc.unhold()
