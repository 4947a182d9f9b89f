"""Changes of the page that leave in the order they were made.

Panel writes its own changes to the browser at once where it can, or some time later, while those made on Bokeh's models
wait for the end of the callback. Mixed, one overtakes the other on a busy machine: the browser is told of models it
does not know yet, or a last picture waits for the next click. Inside a hold all of them go Bokeh's way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import panel as pn


@contextmanager
def together() -> Iterator[None]:
    """Hold what changes inside on this session's page, and send it when the block ends."""
    doc = pn.state.curdoc
    if doc is None or doc.session_context is None or doc.callbacks.hold_value:
        yield
        return
    doc.hold("combine")
    try:
        yield
    finally:
        doc.unhold()
